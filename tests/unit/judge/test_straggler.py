"""Who holds the gang back: the signs of a picture, and what two passes in a row make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from astraeus_controller.judging.straggling import Straggling
from astraeus_controller.rules import stragglers
from astraeus_controller.rules.conclusion import Conclusion
from astraeus_controller.rules.picture import GpuView, MetricView, Picture, RailClass, RailView, WorkerView
from astraeus_protocol.devices import Gpu, Rail
from astraeus_protocol.findings import Finding

from .views import NOW, picture, process, shows, worker

WELL: dict[str, Any] = {"busy": 98.0, "sm_mhz": 1980.0, "sm_max_mhz": 1980.0, "reasons": 0, "temp_c": 61.0,
                        "slowdown_c": 90.0, "power_w": 600.0, "limit_w": 700.0, "power_usual_w": 600.0}


def card(index: int = 0, before: dict[str, Any] | None = None, **told: Any) -> GpuView:
    """A GPU at two looks 15 s apart: as it is now, and ``before``, where that differs."""
    now = Gpu(index=index, uuid=f"GPU-{index}", ever_busy=True, idle_s=0.0, **WELL | told)
    last = msgspec.structs.replace(now, **before or {})
    return GpuView(index=index, busy=now.busy, idle_s=0.0, ever_busy=True, told=now, before=last, looked_at=NOW - 5,
                   apart_s=15.0)


def four(odd: GpuView | None = None, *, rank: int = 2, others: Callable[[], GpuView] = card,
         **more: Any) -> tuple[WorkerView, ...]:
    """Four ranks of one GPU each on nodes of their own, one of them with an odd GPU; ``more``: of each."""
    return tuple(worker(r, 5.0, node=f"c{r + 1}", gpus=((odd,) if odd and r == rank else (others(),)), **more)
                 for r in range(4))


def of(*workers: WorkerView, **job: Any) -> list[Conclusion]:
    return stragglers(picture(*workers, **job))


def said(*workers: WorkerView, **job: Any) -> list[tuple[str, int | None, str]]:
    return [(one.verdict, one.rank, one.said) for one in of(*workers, **job)]


def ratio(at: Picture, name: str = "step_seconds") -> Picture:
    """The run names a time per iteration."""
    policy = msgspec.structs.replace(at.job.policy, straggler_metric=name)
    steps = tuple(msgspec.structs.replace(step, policy=policy) for step in at.job.steps)
    return msgspec.structs.replace(at, job=msgspec.structs.replace(at.job, steps=steps, policy=policy))


HOT = {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": 0x40}


@pytest.mark.parametrize(("odd", "words"), [
    (card(3, **HOT), "GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across the gang, 92 °C"),
    (card(3, **HOT | {"reasons": 0x48}), "GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across the gang, 92 °C"),
    (card(reasons=0x20), "GPU 0 slowed down by heat: 61 °C"),
    (card(before={"held_s": {"sw_thermal": 5.0}}, held_s={"sw_thermal": 8.0}),
     "GPU 0 slowed down by heat: 61 °C, 20 % of the time"),
    (card(reasons=0x80, power_w=200.0),
     "GPU 0 slowed down by power: 200 W of its 700 W, 600 W across the gang"),
    (card(reasons=8, sm_mhz=990.0), "GPU 0 slowed down by the hardware: 990 MHz against 1980 MHz across the gang"),
    # case 21, B and C: far below its own limit; and a limit below its peers'
    (card(reasons=4, power_w=240.0, limit_w=400.0, sm_mhz=1900.0),
     "GPU 0 slowed down by power: 1900 MHz against 1980 MHz across the gang, "
     "its limit is 400 W, 700 W across the gang"),
    (card(reasons=4, power_w=240.0),
     "GPU 0 slowed down by power: 240 W of its 700 W, 600 W across the gang"),
    (card(sm_mhz=1650.0), "GPU 0 runs slowly: 1650 MHz against 1980 MHz across the gang"),
])
def test_a_gpu_that_is_slowed_down(odd: GpuView, words: str) -> None:
    assert said(*four(odd)) == [("straggler", 2, words)]


@pytest.mark.parametrize("odd", [
    card(reasons=4, power_w=690.0, sm_mhz=1700.0),  # case 21 A: capped at its limit, as every busy one is
    card(before={"reasons": 0}, reasons=0x40), card(before={"reasons": 0x40}, reasons=0),
    card(before={"power_w": 650.0}, reasons=4, power_w=240.0), card(reasons=4, power_w=60.0, busy=3.0),
    card(before={"held_s": {"sw_thermal": 5.0}}, held_s={"sw_thermal": 5.4}),
    card(before={"sm_mhz": 1980.0}, sm_mhz=1200.0), card(sm_mhz=1200.0, busy=20.0),
    card(sm_mhz=1200.0, sm_max_mhz=1410.0),  # another make
    card(sm_mhz=1690.0), card(sm_mhz=None, reasons=None, power_w=None, limit_w=None), card(reasons=0x1),
    card(reasons=0x2),
])
def test_a_gpu_that_is_well(odd: GpuView) -> None:
    assert of(*four(odd)) == []


def test_a_look_without_one_before_it_tells_nothing() -> None:
    assert of(*four(msgspec.structs.replace(card(sm_mhz=1386.0, reasons=0x40), before=None))) == []


def test_a_sign_that_more_than_half_share_names_nobody() -> None:
    hot = [worker(r, 5.0, node=f"c{r}", gpus=(card(**HOT) if r < 3 else card(),)) for r in range(4)]
    assert of(*hot) == []
    two = [worker(r, 5.0, node=f"c{r}", gpus=(card(**HOT) if r < 2 else card(),)) for r in range(4)]
    assert [one.rank for one in of(*two)] == [0, 1]


def test_in_a_gang_of_one_worker_its_gpus_are_counted() -> None:
    """torchrun: eight processes, eight GPUs, one task."""
    tied = tuple(process(4000 + n, local=n, rank=str(n)) for n in range(8))
    cards = tuple(card(n, **(HOT if n in (3, 5) else {})) for n in range(8))
    (one,) = of(worker(0, 5.0, gpus=cards, processes=tied))
    assert one.said.startswith("GPU 3 slowed down by heat: 1386 MHz against 1980 MHz")
    assert one.said.endswith("92 °C (and 1 more of its GPUs)")
    assert (one.evidence["gpu"], one.evidence["uuid"], one.evidence["class"]) == (3, "GPU-3", "gpu")
    assert of(worker(0, 5.0, gpus=tuple(card(n, **HOT) for n in range(8)), processes=tied)) == []


@pytest.mark.parametrize(("pids", "count", "rank"), [([4005], 4, 5), (None, 4, 6), ([1], 4, 6), (None, 3, 4)])
def test_tasks_that_all_see_all_gpus_of_their_node(pids: list[int] | None, count: int, rank: int) -> None:
    """``srun -n8 --gres=gpu:4``, without --gpus-per-task: GPU 2 of the second node is one GPU."""
    def cards(rank: int) -> tuple[GpuView, ...]:
        return tuple(card(n, pids=pids, **(HOT if n == 2 and rank > 3 else {})) for n in range(count))
    (one,) = of(*(worker(r, 5.0, gpus=cards(r), node=f"c{r // 4}") for r in range(8)))
    assert (one.rank, one.evidence["gpu"]) == (rank, 2)


@pytest.mark.parametrize("change", [
    {"began_s": 599.0}, {"processes": (process(4000, tied=False),)},
])
def test_before_the_warm_up_is_over_and_without_a_gang(change: dict[str, Any]) -> None:
    workers = four(card(**HOT))
    assert of(*(msgspec.structs.replace(one, **change) for one in workers[:3]),
              workers[3] if "began_s" in change else msgspec.structs.replace(workers[3], **change)) == []


@pytest.mark.parametrize(("change", "why"), [
    ({"state": "stale"}, "a node has not reported"), ({"state": "exited"}, "the gang is ending"),
    ({"processes": (process(4003, state="T", state_s=20.0),)}, "the gang waits for a member"),
    ({"processes": (process(4003, traced=True),)}, "under a debugger"),
])
def test_while_something_else_is_the_matter_what_was_found_stays(change: dict[str, Any], why: str) -> None:
    workers = four(card(**HOT))
    (one,) = of(*workers[:3], msgspec.structs.replace(workers[3], **change))
    assert (one.verdict, one.said) == ("unknown", why)
    assert not of(*workers, suspended=True)


def test_who_can_not_be_read_now_is_said_to_be_unknown() -> None:
    found = of(*four(card(busy=None, sm_mhz=None, reasons=None, power_w=None)))
    assert [(one.verdict, one.workers) for one in found] == [("unknown", ("123-2",))]


@pytest.mark.parametrize(("values", "expected"), [
    ((1.1, 1.1, 1.45, 1.0), "step_seconds is 1.45 against 1.1 across the gang"),
    ((1.0, 1.2), "step_seconds is 1.2 against 1 across the gang"),
    ((1.0, 1.0, 1.19, 1.0), None),
    ((293.0, 292.2, 293.0, 293.1), None),  # case 64: all-reduce makes all wait alike
    ((3.169, 3.446, 3.249, 3.172), None),
    ((1.1, None, 1.45, 1.0), "step_seconds is 1.45 against 1.05 across the gang"),
    ((None, None, 1.45, 1.0), None), ((0.0, 0.0, 1.45, 1.0), None),
])
def test_a_time_per_iteration_that_stands_out(values: tuple[float | None, ...], expected: str | None) -> None:
    workers = [worker(r, 5.0, metrics=shows(value, None if value is None else 3.0, "step_seconds"))
               for r, value in enumerate(values)]
    found = [one for one in stragglers(ratio(picture(*workers))) if one.verdict == "straggler"]
    assert [one.said for one in found] == ([expected] if expected else [])
    if expected:
        assert found[0].rank == max(range(len(values)), key=lambda rank: values[rank] or 0)
    saving = [msgspec.structs.replace(one, writing_s=30.0 if one.rank == 0 else 0.0) for one in workers]
    assert not [one for one in stragglers(ratio(picture(*saving))) if one.verdict == "straggler"]


def test_the_strongest_is_said_first_and_weaker_ones_beside_it() -> None:
    odd = card(3, **HOT | {"errors": {"ecc_uncorrected": 4}, "xids": [63, 31]})
    workers = [msgspec.structs.replace(one, metrics=(MetricView("t", 2.0 if one.rank == 2 else 1.0, 1.0, NOW),))
               for one in four(odd)]
    (one,) = stragglers(ratio(picture(*workers), "t"))
    assert one.said == ("t is 2 against 1 across the gang; GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across "
                        "the gang, 92 °C; GPU 3 has had uncorrectable ECC errors +4, Xid 63 in this job")
    assert one.evidence["class"] == "time"


@pytest.mark.parametrize(("odd", "words"), [
    (card(temp_c=88.0), "GPU 0 is close to its slowdown: 88 °C of 90 °C"),
    # case 25: nothing that needs anybody to do anything now
    (card(errors={"remap_pending": 1, "ecc_uncorrected": 4}),
     "GPU 0 has had uncorrectable ECC errors +4, a row remap pending in this job"),
    (card(temp_c=87.0), ""), (card(errors={"ecc_corrected": 99}), ""), (card(xids=[31, 43]), ""),
])
def test_weak_signs_alone_are_a_risk(odd: GpuView, words: str) -> None:
    assert said(*four(odd)) == ([("at_risk", 2, words)] if words else [])


def rails(*slow: str, nodes: int = 4) -> dict[str, Any]:
    """Fields of a job: a rail of each node, those of these nodes slow."""
    usual = Rail("mlx5_0", rate_gb=400.0, width=4, speed="NDR", state="ACTIVE", compute=True, kind="x")
    bad = msgspec.structs.replace(usual, rate_gb=100.0, width=1, speed="EDR")
    names = [f"c{n + 1}" for n in range(nodes)]
    return {"rails": tuple(RailView(name, bad if name in slow else usual) for name in names),
            "rail_classes": {"x": RailClass(rates={400.0: 20, 100.0: len(slow)})}}


def test_a_link_that_is_off_is_said_of_the_first_worker_of_its_node() -> None:
    workers = [worker(r, 5.0, node=f"c{r // 2 + 1}") for r in range(8)]
    (one,) = of(*workers, **rails("c3"))
    assert (one.verdict, one.rank, one.node, one.evidence["class"], one.evidence["kind"]) == (
        "straggler", 4, "c3", "link", "rate")
    assert one.said == "rail mlx5_0: 100 Gb/s (1X EDR), made for 400 Gb/s as 20 others of its class"
    assert len(of(*workers, **rails("c2", "c3"))) == 2
    assert of(*workers, **rails("c1", "c2", "c3")) == [], "more than half of the nodes"
    assert of(*(msgspec.structs.replace(one, node="c3") for one in workers), **rails("c3")) == [], "on one node"
    blind = of(*workers, rails_unknown=(("c3", "no answer before the deadline"),))
    assert [(one.verdict, one.workers) for one in blind] == [("unknown", ("123-4", "123-5"))]


def idle() -> GpuView:
    return card(busy=40.0, power_w=300.0)


def spins() -> GpuView:
    return card(busy=100.0, power_w=350.0)


@pytest.mark.parametrize(("others", "odd", "rank", "words"), [
    (idle, card(), 2, "its GPUs are 98 % busy against 40 % across the gang, at 600 W against 300 W: the others seem to "
                      "wait for it"),
    (spins, card(), 2, "its GPUs work at their usual power while 3 of 3 others spin: they seem to wait for it"),
    (idle, spins(), 2, ""),  # the waiter: as busy, at little of its own power
    (idle, card(power_usual_w=None), 2, ""),
    (idle, card(), 0, ""), (spins, card(), 0, ""),  # rank 0 evaluates
    (spins, card(busy=3.0, power_w=100.0), 2, ""),
    (card, spins(), 2, ""),
])
def test_who_waits_is_told_from_who_is_waited_for(others: Callable[[], GpuView], odd: GpuView, rank: int,
                                                  words: str) -> None:
    workers = four(odd, rank=rank, others=others)
    assert said(*workers) == ([("at_risk", rank, words)] if words else [])
    assert said(*(msgspec.structs.replace(one, writing_s=20.0) for one in workers)) == []


@pytest.mark.parametrize(("pulses", "rank"), [
    ((60, 60, 30, 60), 2), ((30, 30, 30, 30), None), ((30, 60, 60, 60), None), ((60, 60, 45, 60), None),
    ((60, 60, 1, 60), None), ((60, 60, 30, None), None)])
def test_a_rhythm_is_an_estimate(pulses: tuple[float | None, ...], rank: int | None) -> None:
    workers = [worker(r, 5.0, processes=(process(4000 + r, pulse=pulse, pulse_base=60.0),))
               for r, pulse in enumerate(pulses)]
    expected = ("by its own rhythm, an estimate, its iterations take 2.0 times as long as they did, the others' 1.0 "
                "times")
    assert said(*workers) == ([] if rank is None else [("at_risk", rank, expected)])


# Two passes in a row


def at(odd: GpuView | None, second: float) -> Picture:
    """The gang so many seconds on; every GPU was looked at then."""
    workers = tuple(msgspec.structs.replace(one, gpus=tuple(msgspec.structs.replace(gpu, looked_at=NOW + second)
                                                            for gpu in one.gpus)) for one in four(odd))
    return msgspec.structs.replace(picture(*workers), now=NOW + second)


class Told:
    """What ``Straggling`` says, with the findings that it led to."""

    def __init__(self) -> None:
        self.straggling = Straggling()
        self.held: dict[str, Finding] = {}

    def look(self, odd: GpuView | None, second: float) -> list[str]:
        now = at(odd, second)
        found = []
        for turn in self.straggling.look(now, stragglers(now), list(self.held.values())):
            if turn.conclusion is not None and turn.finding is None:
                one = turn.conclusion
                self.held[one.verdict] = Finding(
                    key=one.verdict, kind=one.verdict, rule="straggler", run="123", run_name="llm", job=123, restarts=0,
                    step="0", worker=one.worker, rank=one.rank, node=one.node, pid=one.pid, since=one.since,
                    detected_at=now.now, said=one.said, details=one.evidence)
                found.append(f"open {one.verdict} since {one.since - NOW:g}")
            elif turn.finding is not None and turn.conclusion is None:
                del self.held[turn.finding.kind]
                found.append(f"close {turn.finding.kind}: {turn.why}")
            elif turn.finding is not None and turn.conclusion is not None:
                details = turn.finding.details | turn.conclusion.evidence
                self.held[turn.finding.kind] = msgspec.structs.replace(turn.finding, details=details)
                found.append(f"update {turn.finding.kind}")
        return found


def test_two_looks_open_and_two_close_it() -> None:
    told, hot = Told(), card(3, **HOT)
    assert [told.look(hot, 0), told.straggling.pending(123), told.look(hot, 0), told.look(hot, 4)] == [[], True, [], []]
    assert told.look(hot, 10) == ["open straggler since 0"]
    assert not told.straggling.pending(123)
    assert [told.look(hot, 20), told.look(None, 30), told.look(None, 30)] == [[], [], []]
    assert told.look(hot, 45) == []
    assert [told.look(None, 60), told.look(None, 75)] == [[], ["close straggler: "]]


def test_a_link_must_stand_until_all_nodes_have_read_their_rails() -> None:
    straggling, opened = Straggling(), []
    for second in range(0, 46, 5):
        workers = [worker(r, 5.0, node=f"c{r + 1}") for r in range(4)]
        now = msgspec.structs.replace(picture(*workers, **rails("c3")), now=NOW + second)
        opened += [second for turn in straggling.look(now, stragglers(now), []) if turn.kind == "open"]
    assert opened[:1] == [30]
    straggling = Straggling()
    for second in range(0, 46, 5):
        slow = ("c3",) if second < 15 else ("c2", "c3", "c4")
        now = msgspec.structs.replace(picture(*workers, **rails(*slow)), now=NOW + second)
        assert not list(straggling.look(now, stragglers(now), []))


def test_one_look_of_two_opens_nothing() -> None:
    told, hot = Told(), card(3, **HOT)
    assert [told.look(hot if n % 2 else None, 15.0 * n) for n in range(8)] == [[]] * 8


def test_a_risk_that_becomes_more_and_less_again() -> None:
    told, warm, hot = Told(), card(temp_c=89.0), card(**HOT)
    assert [told.look(warm, 0), told.straggling.pending(123)] == [[], False]
    assert told.look(warm, 15) == ["open at_risk since 0"]
    assert told.look(hot, 30) == []
    assert told.look(hot, 45) == ["close at_risk: it holds the gang back now", "open straggler since 30"]
    assert [told.look(warm, 60), told.look(warm, 75)] == [
        [], ["close straggler: it is only at risk now", "open at_risk since 60"]]


def test_what_can_not_be_seen_neither_opens_nor_closes() -> None:
    told, hot = Told(), card(**HOT)
    blind = card(busy=None, sm_mhz=None, reasons=None, power_w=None)
    assert [told.look(hot, 0), told.look(blind, 15), told.look(hot, 30)] == [[], [], ["open straggler since 0"]]
    assert [told.look(blind, 45 + 15 * n) for n in range(4)] == [[]] * 4
    told.straggling.forget_others(set())
    assert not told.straggling.pending(123)
