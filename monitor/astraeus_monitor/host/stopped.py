"""When every process of a job here was stopped or frozen: a suspension, if all its nodes share it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .procfs import Stat
from .tree import Identity

MAX_INTERVALS = 40


class Stopped:
    """Intervals in CLOCK_BOOTTIME seconds, newest last."""

    def __init__(self) -> None:
        self.intervals: list[tuple[float, float]] = []
        self.since: float | None = None

    def see(self, at: float, states: list[str], *, frozen: bool) -> bool:
        """Take the states of all living processes of the job's tasks in; whether the job is stopped."""
        stopped = frozen or (bool(states) and all(state == "T" for state in states))
        if stopped and self.since is None:
            self.since = at
        elif not stopped and self.since is not None:
            self.intervals = [*self.intervals, (self.since, at)][-MAX_INTERVALS:]
            self.since = None
        return stopped

    def ages(self, now: float) -> list[tuple[float, float]]:
        """(age of start, age of end) as the report carries them; an end of 0 is still going on."""
        closed = [(round(now - start, 2), round(now - end, 2)) for start, end in self.intervals]
        if self.since is not None:
            closed.append((round(now - self.since, 2), 0.0))
        return closed[-MAX_INTERVALS:]

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"intervals": self.intervals, "since": self.since}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.intervals = [(float(a), float(b)) for a, b in saved["intervals"]]
        self.since = saved["since"]


def living_states(trees: list[list[Identity]], stat: Callable[[int], Stat | None]) -> list[str]:
    """States of the living processes of these trees, up to the first that is not stopped: one is enough."""
    states = []
    for tree in trees:
        for pid, start in tree:
            seen = stat(pid)
            if seen is not None and seen.start == start and seen.state not in "ZX":
                states.append(seen.state)
                if seen.state != "T":
                    return states
    return states
