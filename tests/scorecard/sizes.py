"""The same causes and look-alikes in gangs of 2 to 1,024 ranks, written anew at each run: as files they take 100 MB."""

from __future__ import annotations

from collections.abc import Callable

from scorecard.recording import record
from scorecard.size import NODES, Made, Size
from scorecard.sized_faults import FAULTS, all_on_storage, hot, sleeps, stopped, zombie
from scorecard.sized_lookalikes import WELL, saves
from scorecard.verdict import Case, parsed

LARGEST = (stopped, all_on_storage, sleeps, hot, saves)
"""Run with 1,024 ranks, too: one each of state, storage, place, GPUs and look-alikes. Each takes three seconds."""
NOT_OF_2 = (zombie,)
"""Of two one is no minority: that a process of unseen end is to blame can't be known."""


def _made(make: Callable[[Size], Made], ranks: int) -> Callable[[], Made]:
    return lambda: make(Size(ranks))


CASES: dict[str, Callable[[], Made]] = {
    f"{make.__name__.replace('_', '-')}-of-{ranks}": _made(make, ranks) for make in (*FAULTS, *WELL) for ranks in NODES
    if (ranks < 1024 or make in LARGEST) and not (ranks == 2 and make in NOT_OF_2)}


def case(name: str) -> Case:
    """A sized case, written now."""
    return parsed(name, record(*CASES[name]()))
