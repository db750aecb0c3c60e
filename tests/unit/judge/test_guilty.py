"""Who is guilty where nobody is in an odd state: what must be known before a place or a connection names anybody."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.rules import judge
from astraeus_controller.rules.edges import by_edges
from astraeus_controller.rules.gang import Gang, gang_of
from astraeus_controller.rules.guilty import culprits
from astraeus_controller.rules.picture import WorkerView
from astraeus_protocol.readings import Edge, Oom, Place
from msgspec import structs

from .views import NOW, odd, picture, process, worker

FUTEX = Place("futex_do_wait", "futex", 1.0, 25)
SLEEP = Place("hrtimer_nanosleep", "clock_nanosleep", 1.0, 25)
POLL = Place("poll_schedule_timeout.constprop.0", "poll", 1.0, 25)
RUNS = Place("", "", 1.0, 25, user=99.0)
SPINS = Place("", "", 1.0, 25, user=15.0, system=85.0)


def quiet(rank: int, place: Place | None = FUTEX, *, cpu: float | None = 0.4, edges: tuple[Edge, ...] = (),
          gone_s: float | None = 600.0, node: str = "", **more: Any) -> WorkerView:
    one = process(4000 + rank, pulse=0.0, pulse_gone_s=gone_s, place=place, cpu=cpu, edges=edges)
    return worker(rank, processes=(one,), **({"node": node} if node else {}) | more)


def named(*workers: WorkerView) -> list[int]:
    gang = gang_of(picture(*workers).job.steps[0])
    assert gang is not None
    return [sign.member.worker.rank for sign in culprits(gang)]


def four(guilty: Place | None, others: Place = FUTEX, **of_others: Any) -> list[WorkerView]:
    return [quiet(rank, guilty if rank == 2 else others, **({} if rank == 2 else of_others)) for rank in range(4)]


@pytest.mark.parametrize(("odd_one", "others", "found"), [
    (SLEEP, FUTEX, [2]),
    (RUNS, FUTEX, [2]),
    (POLL, FUTEX, [2]),
    (structs.replace(RUNS, share=0.6), FUTEX, [2]),  # it moves: at work
    (SLEEP, SPINS, [2]),
    (FUTEX, SPINS, [2]),
    (Place("futex_wait_queue", "", 1.0, 25), FUTEX, []),  # another kernel's name for the same
    (Place("ep_poll", "epoll_wait", 1.0, 25), POLL, []),
    (FUTEX, POLL, []),  # it waits for those that wait for their data
    (FUTEX, RUNS, []),  # it waits for those that compute
    (FUTEX, SLEEP, []),
    (SLEEP, Place("anon_pipe_read", "read", 1.0, 25), []),
    (None, FUTEX, []),
    (structs.replace(SLEEP, samples=24), FUTEX, []),
    (structs.replace(SLEEP, s=91.0), FUTEX, []),
])
def test_by_place(odd_one: Place | None, others: Place, found: list[int]) -> None:
    assert named(*four(odd_one, others)) == found


def test_nobody_by_place_unless_all_are_known_and_most_wait() -> None:
    three = [quiet(0), quiet(1), quiet(2, SLEEP)]
    assert named(*three, quiet(3)) == [2]
    assert named(*three, quiet(3, None)) == []
    assert named(*three, quiet(3, state="stale")) == []  # the one to blame may be there
    assert named(*four(SLEEP, gone_s=0.0)) == []  # healthy: the majority has its pulse
    assert named(*four(SLEEP, gone_s=None)) == []
    assert named(quiet(0), quiet(1, SLEEP)) == []  # halves
    assert named(*three, odd(3, "D", 600)) == [3]  # a state goes before
    assert named(*[quiet(rank, SLEEP if rank in (2, 5) else FUTEX) for rank in range(8)]) == [2, 5]
    traced = structs.replace(three[2], processes=(structs.replace(three[2].processes[0], traced=True),))
    assert named(three[0], three[1], traced, quiet(3)) == []


@pytest.mark.parametrize(("own", "others", "found"), [
    (0.0, 61.4, [2]), (1.0, 5.0, [2]), (0.5, 0.4, []), (0.0, 4.9, []), (1.1, 61.0, []), (None, 61.0, [])])
def test_by_idleness(own: float | None, others: float, found: list[int]) -> None:
    assert named(*[quiet(rank, cpu=own if rank == 2 else others) for rank in range(4)]) == found
    assert named(*[quiet(rank, cpu=own if rank < 2 else others) for rank in range(4)]) == []


def ring(*ends: tuple[Edge, ...], nodes: str = "") -> list[int]:
    gang = gang_of(picture(*(quiet(rank, edges=own, node=nodes[rank:rank + 1])
                             for rank, own in enumerate(ends))).job.steps[0])
    assert isinstance(gang, Gang)
    return [sign.member.worker.rank for sign in by_edges(gang)]


def lost(number: int) -> Edge:
    return Edge(number, unacked=1, backoff=8)


def unread(number: int, count: int, for_s: float = 20.0) -> Edge:
    return Edge(number, queued=count, unread_s=for_s)


def test_a_cut_link() -> None:
    a, b, c, d = (Edge(n) for n in range(4))  # between 0-1, 1-2, 2-3, 3-0
    assert ring((a, d), (a, lost(1)), (b, c), (lost(2), d)) == [2]
    assert ring((a, d), (a, lost(1)), (lost(1), lost(2)), (lost(2), d)) == [2]
    assert ring((a, d), (a, lost(1)), (b, c), (c, d)) == []  # one connection has two ends
    assert ring((a, d), (a, Edge(1, unacked=1, backoff=2)), (b, c), (Edge(2, unacked=1, backoff=2), d)) == []
    # Ranks 2 and 3 share a node of which both links are dead; of two nodes it could be either.
    assert ring((a, lost(3)), (a, lost(1)), (b, c), (c, d), (), nodes="xyzzw") == [2, 3]
    assert ring((a, lost(3)), (a, lost(1)), (b, c), (c, d), nodes="xxzz") == []


def test_who_does_not_read() -> None:
    a, b, c, d = (Edge(n) for n in range(4))
    assert ring((a, d), (a, b), (unread(1, 9000), c), (c, d)) == [2]
    assert ring((a, d), (unread(0, 4000), b), (unread(1, 9000), c), (c, d)) == [2]
    assert ring((a, d), (unread(0, 5000), b), (unread(1, 9000), c), (c, d)) == []
    assert ring((a, d), (a, b), (unread(1, 9000, 9.0), c), (c, d)) == []  # it may yet
    assert ring((a, d), (a, b), (unread(7, 9000), b, c), (c, d)) == []  # not of the gang
    assert ring((a, d), (a, b), (unread(1, 5), c), (c, d)) == []  # a word to a key-value store, not a gradient


def test_a_place_alone_makes_no_stall_and_no_early_suspect() -> None:
    workers = four(SLEEP, output_s=20.0)
    for rank in range(4):
        workers[rank] = structs.replace(workers[rank], output_s=20.0, output_at=NOW - 20)
    assert judge(picture(*workers)) == []
    [found] = judge(picture(*four(SLEEP, output_s=31.0)[:2], *[quiet(r, SLEEP if r == 2 else FUTEX, output_s=31.0)
                                                               for r in (2, 3)]))
    assert (found.verdict, found.rank) == ("suspect", 2)
    # Before its patience is over only shown: neither a stuck collective nor anything that is acted on.
    [found] = judge(picture(*[quiet(r, SLEEP if r == 2 else FUTEX, output_s=899.0) for r in range(4)]))
    assert (found.verdict, found.evidence["places"][2]) == (  # type: ignore[index]
        "suspect", [2, 4002, "hrtimer_nanosleep", "clock_nanosleep", 1.0, 25])
    assert judge(picture(*[quiet(r, RUNS if r == 2 else FUTEX, output_s=899.0) for r in range(4)])) == []


def test_a_killed_helper_is_said() -> None:
    workers = [quiet(rank, output_s=720.0) for rank in range(4)]
    workers[1] = structs.replace(workers[1], oom=Oom(1, 700.0), oom_at=NOW - 700)
    [found] = judge(picture(*workers, after=600))
    assert found.said.endswith("no rank stands out; a process of rank 1 on c1 was killed for lack of memory at "
                               "14:02 UTC")
    assert found.evidence["killed"] == [[1, "c1", 1]]


def test_a_local_process_is_named_as_itself() -> None:
    found = [process(4240 + n, local=n, rank=str(n), pulse=0.0, pulse_gone_s=600.0, cpu=0.4,
                     place=SLEEP if n == 2 else FUTEX) for n in range(4)]
    [said] = judge(picture(worker(0, processes=tuple(found)), after=600))
    assert (said.verdict, said.rank, said.pid) == ("stalled", 0, 4242)
    assert said.said.endswith("rank 0 · local process 2 (RANK=2, PID 4242) on c1 sleeps in hrtimer_nanosleep "
                              "(clock_nanosleep); 3 of 3 other processes wait in futex_do_wait (futex)")
