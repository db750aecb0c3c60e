"""Samples of all jobs' processes, made in the main loop: ``stat`` and ``status`` never block."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable
from functools import partial

from .host.exits import Exits
from .host.kept import Kept
from .host.procfs import Proc
from .log import fenced
from .watch.job import JobWatch


class Sampler:
    """Keeps what makes a sample cheap and an exit known at once. ``woken``: a process has just ended."""

    def __init__(self, proc: Proc, selector: selectors.BaseSelector, woken: Callable[[], None]) -> None:
        self.kept = Kept(proc)
        self.exits = Exits(selector, woken) if proc.root == "/proc" else None

    def sample(self, jobs: Iterable[JobWatch], now: float, *, pulse: bool) -> list[JobWatch]:
        """Sample every job that was not let go; those of which a task's process or slurmstepd has just gone.

        A job that can't be read now (no descriptor is free) keeps what the sample before told.
        """
        absent: list[JobWatch] = []
        alive: set[tuple[int, int]] = set()
        for job in jobs:
            if job.dropped:
                continue
            if fenced(f"job {job.job}: a sample",
                      partial(job.sample, self.kept, now, self.exits, pulse=pulse), otherwise=False):
                absent.append(job)
            alive.update(p.id for _, worker in job.running() for p in worker.roster.processes)
        self.kept.tidy()
        if self.exits:
            self.exits.keep(alive)
        return absent
