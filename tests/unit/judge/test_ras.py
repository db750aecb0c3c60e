"""What the rules make of NCCL's RAS."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.judging.ask_ras import asked
from astraeus_controller.rules import judge
from astraeus_controller.rules.collective_ras import RULE
from astraeus_controller.rules.conclusion import Conclusion
from astraeus_controller.rules.picture import Picture, RasView, WorkerView
from astraeus_protocol.devices import Ras, RasComm, RasGroup, RasRank
from msgspec import structs

from .views import gpu, odd, picture, process, waiting, worker

HOST = "10.0.0.{}"


def member(rank: int, why: str = "", s: float = 0, looks: int = 0) -> RasRank:
    """Rank as the rules' workers are laid out: two on a node, PIDs from 4000."""
    return RasRank(rank, HOST.format(rank // 2 + 1), 4000 + rank, why, s, looks)


def group(count: int, *ranks: int, kind: str = "AllReduce", n: int | None = None) -> RasGroup:
    return RasGroup(len(ranks) if n is None else n, {kind: count} if count else {}, [member(rank) for rank in ranks])


def comm(*groups: RasGroup, missing: tuple[RasRank, ...] = (), size: int = 8, still_s: float = 700, looks: int = 20,
         states: dict[str, int] | None = None, name: str = "world") -> RasComm:
    return RasComm(name, size, list(missing), len(missing), list(groups), states or {"RUNNING": size}, {}, still_s,
                   looks)


def view(*comms: RasComm, node: str = "c1", s: float = 5, unknown: str = "") -> RasView:
    return RasView(node, Ras(s=s, version="2.30.7", of=4, comms=list(comms), unknown=unknown))


def told(*views: RasView, workers: list[WorkerView] | None = None, **more: Any) -> Picture:
    found = picture(*(workers or [waiting(rank) for rank in range(8)]), **more)
    step = structs.replace(found.job.steps[0], ras=views)
    return structs.replace(found, job=structs.replace(found.job, steps=(step,)))


def only(found: list[Conclusion], verdict: str = "stalled") -> Conclusion:
    [one] = [c for c in found if c.verdict == verdict]
    return one


LATE = comm(group(4242, 0, 1, 2, 3, 5, 6, 7), group(4241, 4))
LOST = (member(5, "missing", 600, 20),)
GONE = comm(group(4242, 0, 1, 2, 3, 4, 6, 7), missing=LOST)


def test_the_seed_s_sentence() -> None:
    """Patience 15 min, the last output 14:02, RAS says it from 14:04 on: stalled at 14:14, after 12 min."""
    found = only(judge(told(view(GONE))))
    assert (found.rule, found.worker, found.rank, found.node, found.pid) == (RULE, "123-5", 5, "c3", 4005)
    assert found.said == (
        "no output since 14:02 UTC; NCCL: NCCL RAS: rank 5 (node c3, PID 4005) is missing: collective #4242 "
        "(AllReduce) in progress on the others; 7 of 7 other ranks wait")
    assert found.since_s == 720
    early = structs.replace(GONE, missing=[member(5, "missing", 599, 20)])
    assert not [c for c in judge(told(view(early))) if c.verdict == "stalled"]


@pytest.mark.parametrize(("views", "rank", "words"), [
    ((view(LATE),), 4, "NCCL RAS: rank 4 (node c3, PID 4004) is behind: it has launched AllReduce #4241, the others "
                       "AllReduce #4242"),
    # Text names those ahead; the others are behind, and too many to be named.
    ((view(comm(group(4242, 3, 4), group(4241, n=6))),), None,
     "NCCL RAS: 6 of 8 ranks are behind: they have launched AllReduce #4241, the others AllReduce #4242"),
    ((view(comm(group(9, 0, 1, 2, 3), group(8, 4, 5, 6, 7))),), None, "NCCL RAS: 4 of 8 ranks are behind"),
    # Rank 3 waits for rank 2 in their own communicator, and is behind in another for that.
    ((view(comm(group(5, 3), group(4, 2), size=2, name="pair"), comm(group(7, 1), group(6, 3), size=2)),), 2,
     "rank 2 (node c2, PID 4002) is behind: it has launched AllReduce #4, the others AllReduce #5"),
    ((view(comm(RasGroup(7, {"AllReduce": 51}, [member(r) for r in range(7)]),
                RasGroup(1, {"AllReduce": 50, "AllGather": 1}, [member(7)]))),), 7,
     "rank 7 (node c4, PID 4007) is behind: it has launched AllGather #1, AllReduce #50, the others no AllGather, "
     "AllReduce #51"),
    ((view(comm(group(7, 0), missing=(member(6, "dead", 700, 9),))),), 6, "is considered dead: collective #7"),
    ((view(comm(missing=(RasRank(6, "10.9.9.9", 77, "missing", 700, 9),))),), None,
     "NCCL RAS: rank 6 of 8 (10.9.9.9, PID 77) is missing"),
])
def test_who_is_named(views: tuple[RasView, ...], rank: int | None, words: str) -> None:
    found = only(judge(told(*views)))
    assert words in found.said
    assert found.rank == rank, found.said


@pytest.mark.parametrize("said", [
    view(),
    view(comm(group(9, 0, 1), group(8, 2), states={"RUNNING": 7, "FINALIZE": 1})),
    view(comm(group(9, 0, 1), group(8, 2), still_s=29)),
    view(comm(group(9, 0, 1), group(8, 2), looks=1)),
    view(comm(group(9, *range(8)), states={"RUNNING": 2, "NOCOMM": 6})),
    view(comm(group(9, 0), missing=(member(5, "missing", 0, 1),))),
    view(GONE, s=91),
    view(GONE, unknown="port 28028: Connection refused"),
])
def test_what_proves_nothing(said: RasView) -> None:
    assert not [c for c in judge(told(said)) if c.verdict == "stalled"]


def test_two_answers_that_contradict_each_other_say_nothing() -> None:
    """Rank 5 was stopped for a minute and goes on: dead to the others, as they are to it."""
    others = tuple(member(rank, "dead", 700, 9) for rank in (0, 1, 2, 3, 4, 6, 7))
    its = comm(group(9, 5), missing=others)
    assert not [c for c in judge(told(view(GONE), view(its, node="c3"))) if c.verdict == "stalled"]


def test_who_exited_well_is_not_missed() -> None:
    workers = [waiting(rank) for rank in range(8)]
    workers[5] = odd(5, "X", 600, 0)
    assert not [c for c in judge(told(view(GONE), workers=workers)) if c.verdict == "stalled"]


def test_a_state_goes_before_and_ras_is_said_beside_it() -> None:
    workers = [waiting(rank) for rank in range(8)]
    workers[5] = odd(5, "T")
    found = only(judge(told(view(GONE), workers=workers)))
    assert found.rule == "collective_stuck"
    assert ("rank 5 (node c3, PID 4005) is stopped (state T) for 10m; 7 of 7 other ranks wait; NCCL: NCCL RAS: rank 5 "
            in found.said)
    assert found.evidence["ras"]


@pytest.mark.parametrize("own", [True, False], ids=["RANK", "the task's"])
def test_pids_of_containers_are_the_same_on_each_node(own: bool) -> None:
    workers = [structs.replace(waiting(rank), processes=(process(
        4000 + rank, pulse_gone_s=600.0, pulse=0.0, inner=10 + rank % 2, rank=str(rank) if own else ""),))
               for rank in range(8)]
    lost = RasRank(5, "10.0.0.3", 11, "missing", 700, 9)
    rest = RasGroup(7, {"AllReduce": 9}, [RasRank(r, HOST.format(r // 2 + 1), 10 + r % 2) for r in range(8) if r != 5])
    found = only(judge(told(view(comm(rest, missing=(lost,))), workers=workers)))
    assert (found.rank, found.pid) == (5, 4005)


def test_not_while_the_gang_works_or_writes() -> None:
    beating = [worker(rank) for rank in range(8)]
    writing = [waiting(rank, writing_s=60.0) for rank in range(8)]
    for workers in (beating, writing):
        assert not judge(told(view(GONE), workers=workers))


def test_a_pulse_that_is_not_known_is_no_veto() -> None:
    """A CUDA main thread that spins has none, and RDMA ties nobody."""
    workers = [worker(rank, processes=(process(4000 + rank, pulse=None, pulse_gone_s=None, tied=False),))
               for rank in range(8)]
    found = only(judge(told(view(GONE), workers=workers)))
    assert (found.rule, found.rank, found.gang) == (RULE, 5, True)
    first = structs.replace(GONE, missing=[member(5, "missing", 0, 1)])
    assert "NCCL RAS: rank 5" in only(judge(told(view(first), workers=workers)), "suspect").said


def test_when_it_is_asked() -> None:
    nodes = {"0": ("c1", "c2")}
    quiet = [waiting(rank) for rank in range(8)]
    assert asked(told(workers=quiet)) == nodes
    stopped = [odd(0, "T"), *quiet[1:]]
    assert asked(told(workers=stopped)) == {"0": ("c2", "c3")}, "first where nobody is stopped"
    assert asked(told(workers=[worker(rank) for rank in range(8)])) == {}, "it works"
    assert asked(told(workers=[waiting(0)])) == {}, "it is alone"
    assert asked(told(workers=[waiting(rank, began_s=59.0) for rank in range(8)])) == {}, "it has just begun"
    assert asked(told(workers=[waiting(rank, gpus=(gpu(ever_busy=False),)) for rank in range(8)])) == {}, "never began"
    spins = [worker(rank, output_s=age, processes=(process(4000 + rank, pulse_gone_s=None),)) for age in (299.0,)
             for rank in range(8)]
    assert asked(told(workers=spins)) == {}, "it prints seldom"
    late = [structs.replace(one, output_s=301.0) for one in spins]
    assert asked(told(workers=late)) == nodes
    assert asked(told(workers=quiet, suspended=True)) == {}
