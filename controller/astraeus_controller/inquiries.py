"""What is asked of Slurm about one job at a time: a queue with a pace, so that slurmctld never feels us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .slurm.command import Away
from .slurm.jobs import Jobs
from .slurm.types import JobFacts

log = logging.getLogger(__name__)
INTERVAL_S = 0.1
"""Between two questions: a node that starts 500 jobs at once is asked about them over 50 s."""
RETRY_S = 15.0


class Inquiries:
    """``answer(job, facts)`` is called with each answer; None: Slurm does not know the job."""

    def __init__(self, jobs: Jobs, answer: Callable[[int, JobFacts | None], None]) -> None:
        self.jobs, self.answer = jobs, answer
        self._urgent: dict[int, None] = {}
        self._queue: dict[int, None] = {}
        self._wake = asyncio.Event()

    @property
    def urgent(self) -> set[int]:
        """Jobs whose verdict waits for Slurm's word."""
        return set(self._urgent)

    def ask(self, job: int, *, urgent: bool = False) -> None:
        """Ask about this job; one that waits is asked about once. ``urgent`` goes first: a verdict waits."""
        (self._urgent if urgent else self._queue).setdefault(job)
        self._wake.set()

    async def run(self) -> None:
        """The loop; ends when cancelled."""
        while True:
            if not self._urgent and not self._queue:
                self._wake.clear()
                await self._wake.wait()
            source = self._urgent or self._queue
            job = next(iter(source))
            self._urgent.pop(job, None)
            self._queue.pop(job, None)
            try:
                shown = await self.jobs.show(job)
            except Away as fault:
                log.warning("slurm: %s", fault)
                self._queue.setdefault(job)
                await asyncio.sleep(RETRY_S)
                continue
            except Exception:
                log.exception("job %d: Slurm's answer could not be read", job)
                await asyncio.sleep(INTERVAL_S)
                continue
            try:
                self.answer(job, shown.facts if shown else None)
            except Exception:
                log.exception("job %d: Slurm's answer could not be used", job)
            await asyncio.sleep(INTERVAL_S)
