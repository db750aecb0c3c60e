"""Recordings of gangs whose ranks only their Python stacks tell apart: each main thread sleeps in a futex."""

from __future__ import annotations

from scorecard.people import FAULT, FUTEX, quiet
from scorecard.stalls import Made, expect
from scorecard.world import every

REDUCE = ["all_reduce (torch/distributed/distributed_c10d.py:2501)", "step (train.py:88)", "<module> (train.py:120)"]
BARRIER = "barrier (torch/distributed/distributed_c10d.py:5356)"


def told_by_stacks(title: str, guilty: list[str], others: list[str] = REDUCE, *, at: float = 165, rank: int | None = 2,
                   says: str, also: dict[int, list[str]] | None = None, cause: str = "") -> Made:
    """Four ranks whose main threads all sleep in a futex; their stacks are read once they are suspect."""
    world = quiet(FUTEX)  # no place tells them apart
    world.ranks[2].cpu = every(5, FAULT)
    world.stacks = [(at, {one: others for one in range(4)} | {2: guilty} | (also or {}))]
    return world, expect(title, "PyTorch gloo with this fault, py-spy 0.4.3", rule="silent", rank=rank,
                         worker="1001-2" if rank == 2 else "1001", says=[says],
                         cause=cause or "collective stuck" + (": rank 2 does not join it" if rank else "")), ""


def waits_for_a_lock() -> Made:
    return told_by_stacks("rank 2 waits for a lock that it holds itself", ["fault (train.py:24)", *REDUCE[1:]],
                          says="rank 2 (node c3, PID 4002) stands out by its Python stack: 3 ranks in all_reduce "
                               "(torch/distributed/distributed_c10d.py:2501) · rank 2 in fault (train.py:24)",
                          cause="deadlock in Python: rank 2 waits for a lock in fault (train.py:24)")


def in_another_group() -> Made:
    return told_by_stacks("rank 2 is at the barrier of another process group", [BARRIER, "fault (train.py:61)"],
                          says=f"rank 2 in {BARRIER}")


def at_the_same_barrier_from_elsewhere() -> Made:
    return told_by_stacks("all ranks are at a barrier, rank 2 came to it from another line",
                          [BARRIER, "validate (train.py:61)"], [BARRIER, "step (train.py:88)"],
                          says=f"3 ranks in {BARRIER} under step (train.py:88) · rank 2 in {BARRIER} under validate")


def joins_a_thread() -> Made:
    return told_by_stacks("rank 2 joins a thread that never ends",
                          ["Thread._wait_for_tstate_lock (threading.py:1139)", "Thread.join (threading.py:1119)",
                           "step (train.py:88)"],
                          says="rank 2 in Thread._wait_for_tstate_lock (threading.py:1139)",
                          cause="deadlock in Python: rank 2 is in Thread._wait_for_tstate_lock, "
                                "from step (train.py:88)")


def waits_on_an_empty_queue() -> Made:
    return told_by_stacks("rank 2 waits on an empty queue",
                          ["Condition.wait (threading.py:327)", "Queue.get (queue.py:171)",
                           "next_batch (loader.py:41)"],
                          says="rank 2 in Condition.wait (threading.py:327)",
                          cause="deadlock in Python: rank 2 is in Condition.wait, from next_batch (loader.py:41)")


def survivors_in_two_places() -> Made:
    return told_by_stacks("three places: nobody can be named", ["fault (train.py:24)"], rank=None,
                          also={3: ["_engine_run_backward (torch/autograd/graph.py:979)"]},
                          says="no rank stands out")


def read_before_the_stall() -> Made:
    return told_by_stacks("stacks that a person asked for while all was well name nobody later",
                          ["fault (train.py:24)"], at=60, rank=None, says="no rank stands out")


STACKS = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    waits_for_a_lock, in_another_group, at_the_same_barrier_from_elsewhere, joins_a_thread, waits_on_an_empty_queue,
    survivors_in_two_places, read_before_the_stall), 131)}
