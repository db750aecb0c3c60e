"""What should stand in a job's comments, and a loop that brings it there."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from astraeus_protocol.findings import Finding

from ..slurm.command import Away
from . import piece
from .writer import NAMES, Outcome, Wanted, Writer

log = logging.getLogger(__name__)
RETRY_S = 5.0
RETRY_MAX_S = 120.0
GIVE_UP_S = 3600.0
"""A job that stays COMPLETING, or a slurmctld away, for longer keeps what stands in its comments."""


def stalled(findings: list[Finding], note: str = "") -> Wanted:
    """Both comments while findings are open."""
    text = piece.open_text(findings, note)
    return Wanted(text, text)


def over(finding: Finding, until: float, note: str) -> Wanted:
    """No piece in the Comment, a closing one in the AdminComment."""
    return Wanted("", piece.closing_text(finding, until, note))


class _Task(msgspec.Struct):
    wanted: Wanted
    due: float
    since: float
    wait_s: float = RETRY_S


class Annotations:
    """``skip(job, field, why)`` is called once for each field that is left alone and why."""

    def __init__(self, writer: Writer, skip: Callable[[int, str, str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.writer, self.skip, self.clock = writer, skip, clock
        self._wake = asyncio.Event()
        now = clock()
        self._tasks = {job: _Task(Wanted(comment, admin_comment), due=now, since=now)
                       for job, comment, admin_comment in writer.store.all_wanted()}

    def want(self, job: int, wanted: Wanted) -> None:
        """Bring the job's comments to this as soon as it can be; what was wanted before counts no more."""
        self.writer.store.put_wanted(job, wanted.comment, wanted.admin_comment)
        self.writer.store.after(partial(self._take, job, wanted))

    def _take(self, job: int, wanted: Wanted) -> None:
        now = self.clock()
        self._tasks[job] = _Task(wanted, due=now, since=now)
        self._wake.set()

    def pending(self, job: int) -> bool:
        """Something is still to be written into the job's comments."""
        return job in self._tasks

    async def settle(self, job: int, wanted: Wanted, also: Mapping[str, str] | None = None) -> Outcome:
        """The same at once, for a restart, which needs to know how it went. Raises Away."""
        self._drop(job)
        outcome = await self.writer.write(job, wanted, also)
        self._tell(job, outcome)
        return outcome

    async def run(self) -> None:
        """The loop; ends when cancelled."""
        while True:
            now = self.clock()
            for job, task in [(job, task) for job, task in self._tasks.items() if task.due <= now]:
                if self._tasks.get(job) is task:  # else a restart took it over while another was written
                    await self._try(job, task)
            self._wake.clear()
            dues = [task.due for task in self._tasks.values()]
            wait = max(0.01, min(dues) - self.clock()) if dues else None
            try:
                async with asyncio.timeout(wait):  # not wait_for: judging.loop says why
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _try(self, job: int, task: _Task) -> None:
        outcome = None
        try:
            outcome = await self.writer.write(job, task.wanted)
            self._tell(job, outcome)
        except Away as fault:
            log.warning("job %d: comments not written yet: %s", job, fault)
        except Exception:
            log.exception("job %d: comments not written", job)
        if self._tasks.get(job) is not task:
            return  # something else is wanted by now
        if (outcome and outcome.state != "completing") or self.clock() - task.since > GIVE_UP_S:
            try:
                return self._drop(job)
            except sqlite3.Error as fault:  # what stands there already is found to stand there, later
                log.warning("job %d: its comments are written, but not that they are: %s", job, fault)
        task.due = self.clock() + task.wait_s
        task.wait_s = min(task.wait_s * 2, RETRY_MAX_S)

    def _drop(self, job: int) -> None:
        if job in self._tasks:
            self.writer.store.drop_wanted(job)
            self.writer.store.after(partial(self._tasks.pop, job, None))

    def _tell(self, job: int, outcome: Outcome) -> None:
        for field, why in outcome.skipped.items():
            if self.writer.store.skip_once(job, field, why):
                self.skip(job, NAMES.get(field, field), why)
