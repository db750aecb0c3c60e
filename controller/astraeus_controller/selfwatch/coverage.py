"""How many of the GPU jobs that run are truly watched, and why the others are not.

Truly watched is more than registered: every node of the job is heard, and something can be read of it. A share that
counted jobs whose monitors are silent, or read nothing, would look best when all is blind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from astraeus_protocol import report as wire

from ..fleet import Fleet
from ..fleet.state import ALIVE, Job
from ..judging.watched import Watch
from ..slurm.types import Snapshot

YOUNG_S = 120.0
"""A job that began within this time may not have been reported yet."""
RUNS = frozenset({"RUNNING"})
UNHEARD, SILENT, PARTLY, UNREAD = "no monitor", "silent node", "node not heard yet", "unreadable"
"""No monitor: Prolog did not hand it over, its node can't reach the controller, or its user said --no-stall-watch,
which nobody but its node knows."""
CHOSEN = ("--no-stall-watch", "the site leaves out", "without a batch script", "without GPUs")
"""Words of a watch's reason where nobody wants the job watched: such a job is left out of the share."""


class Coverage(msgspec.Struct, frozen=True):
    """``running``: GPU jobs that run and are to be watched; ``watched``: those that truly are; ``why``: the others."""

    running: int
    watched: int
    why: dict[str, int]

    @property
    def share(self) -> float:
        """1 where nothing runs."""
        return self.watched / self.running if self.running else 1.0


class Covering:
    """``watches``: what judging says of each job; ``now``: CLOCK_BOOTTIME in seconds."""

    def __init__(self, fleet: Fleet, watches: Callable[[], dict[int, Watch]], now: Callable[[], float]) -> None:
        self.fleet, self.watches, self.now = fleet, watches, now
        self.gpu_jobs: frozenset[int] = frozenset()
        """Jobs with GPUs by Slurm's word: the only one of those that reach no monitor."""
        self._first: dict[int, float] = {}

    def polled(self, snapshot: Snapshot) -> None:
        """Slurm's list of what runs: it tells since when a job has been there."""
        now = self.now()
        self._first = {row.job: self._first.get(row.job, now) for row in snapshot.jobs if row.state in RUNS}

    def of(self, may_see: Callable[[int], bool] = lambda job: True) -> Coverage:
        """The share now, of the jobs that may be seen."""
        found: Counter[str] = Counter()
        for job in self._running():
            if may_see(job) and (why := self._why_not(job)) is not None:
                found[why] += 1
        watched = found.pop("", 0)
        return Coverage(watched + found.total(), watched, dict(sorted(found.items())))

    def _running(self) -> Iterable[int]:
        seen = {job for job, held in self.fleet.jobs.items() if not held.ended and _has_gpus(held)
                and (not held.state or held.state in ALIVE)}
        return sorted(seen | (self._first.keys() & self.gpu_jobs))

    def _why_not(self, job: int) -> str | None:
        """"" where it is truly watched; None where it is left out of the count."""
        held, now = self.fleet.jobs.get(job), self.now()
        if held is None or not held.parts:
            return UNHEARD if now - self._first.get(job, now) >= YOUNG_S else None
        watch = self.watches().get(job)
        if watch is not None and not watch.watched and any(words in watch.reason for words in CHOSEN):
            return None
        live = held.live
        if any(self.fleet.nodes[node].silent(now) for node in live if node in self.fleet.nodes):
            return SILENT
        if now - held.first < YOUNG_S:
            return "" if watch is not None and watch.watched else None
        if not held.all_heard:
            return PARTLY
        if watch is None or not watch.watched or not any(_read(part.job) for part in live.values()):
            return UNREAD
        return ""


def _has_gpus(held: Job) -> bool:
    return any(part.job.gpus for part in held.parts.values())


def _read(job: wire.Job) -> bool:
    """Anything that counts as progress can be read of it on this node."""
    return any(step.output_s is not None or any(
        worker.output_s is not None or worker.cpu_idle_s is not None or any(gpu.busy is not None for gpu in worker.gpus)
        for worker in step.workers) for step in job.steps)

