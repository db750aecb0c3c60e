"""Who is asked for Python stacks, and what they answered: once for a suspicion, and whenever a person asks.

Commands travel in the replies to reports, as stop files do; a command is repeated until its node has answered.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterable

from astraeus_protocol.findings import Finding
from astraeus_protocol.report import Command, Report, TakeStacks

from .fleet import Fleet
from .history.stacks import Reading
from .history.store import Store

log = logging.getLogger(__name__)
WAIT_S = 60.0
"""For so long nodes are waited for: two reports of a healthy one, and the reading itself."""
AGAIN_S, TIMES = 300.0, 3
"""For a suspicion that names nobody it is asked again after this, so many times in all."""
APART_S = 5.0
"""A person who asks again so soon is told what was just read."""
KEPT = 16
"""Readings in memory beside those under way; the others are in the store."""

Episode = tuple[int, int, str]
"""(job, restarts, step) of a suspicion that became a stall: one episode."""


class Asking:
    """A reading under way: until when its nodes are waited for (the fleet's time), and the nonce of each."""

    def __init__(self, reading: Reading, nonces: dict[str, str], now: float) -> None:
        self.reading, self.nonces, self.began = reading, nonces, now
        self.until = now + WAIT_S


class StackBook:
    """``now``: the fleet's time."""

    def __init__(self, fleet: Fleet, store: Store, now: Callable[[], float]) -> None:
        self.fleet, self.store, self.now = fleet, store, now
        self._open: dict[int, Asking] = {}
        self._done: dict[str, Asking] = {}
        """By their ask, the newest last."""
        self._asked: dict[Episode, tuple[float, int]] = {}

    @property
    def jobs(self) -> set[int]:
        """Jobs of which something is being read: their nodes report every 2 s."""
        return set(self._open)

    def person(self, job: int, run: str, step: str, *, native: bool) -> Reading | None:
        """Begin a reading, or join the one that is under way; None: something else is being read just now.

        Raises LookupError where no node can be asked.
        """
        now = self.now()
        self._end_late(now)
        if not any(self._has(job, node, step) for node in self.fleet.nodes_of(job)):
            raise LookupError(job)
        known = self._open.get(job)
        if known is not None and known.reading.native == native and known.reading.step in ("", step):
            return known.reading
        if known is not None and (native or known.reading.native or step):
            return None
        if known is not None:  # of one step, for a finding: of all steps it serves both
            return self._begin(job, run, step, native=False, finding=known.reading.finding)
        last = self._newest(job)
        if last and now - last.began < APART_S and (last.reading.native, last.reading.step) == (native, step):
            return last.reading
        return self._begin(job, run, step, native=native, finding="")

    def last(self, job: int, ask: str = "") -> Reading | None:
        """The newest reading of the job, that which is under way first; or, while it is remembered, the one of this
        ``ask``: another may have begun right after it."""
        self._end_late(self.now())
        known = self._done.get(ask) or self._open.get(job) or self._newest(job)
        if known and known.reading.job != job:
            known = None
        return known.reading if known else self.store.stacks.last(job)

    def _newest(self, job: int) -> Asking | None:
        return next((one for one in reversed(self._done.values()) if one.reading.job == job), None)

    def suspect(self, jobs: set[int], findings: Iterable[Finding], being_stopped: set[int]) -> None:
        """Ask for the stacks of jobs that have become suspect. ``findings``: all that are open."""
        now, still = self.now(), set()
        for finding in findings:
            if finding.job not in jobs or finding.kind not in ("suspect", "stalled"):
                continue
            episode = (finding.job, finding.restarts, finding.step)
            still.add(episode)
            at, times = self._asked.get(episode, (0.0, 0))
            due = not times or (finding.rank is None and times < TIMES and now - at >= AGAIN_S)
            held = self.fleet.jobs.get(finding.job)
            # After a start of the controller reports come one by one: all nodes are to be asked, and at once.
            heard = held is not None and (held.all_heard or held.settled(now))
            if due and heard and finding.job not in being_stopped and self._ask_for(finding):
                self._asked[episode] = now, times + 1
        for episode in [one for one in self._asked
                        if one[0] not in self.fleet.jobs or (one[0] in jobs and one not in still)]:
            del self._asked[episode]

    def _ask_for(self, finding: Finding) -> bool:
        """Whether a reading for it is under way now; one that a person asked for is as good."""
        known = self._open.get(finding.job)
        if known is not None:
            if known.reading.native or known.reading.step not in ("", finding.step):
                return False
            known.reading.finding = known.reading.finding or finding.key
            return True
        try:
            self._begin(finding.job, finding.run, finding.step, native=False, finding=finding.key)
        except LookupError:
            return False
        return True

    def heard(self, report: Report) -> None:
        """Take the answers in a report."""
        for job in report.jobs:
            known = self._open.get(job.job)
            if known and job.stacks and job.stacks.ask == known.reading.ask and report.node in known.nonces:
                known.reading.answers[report.node] = job.stacks
        self._end_late(self.now())

    def commands(self, report: Report) -> list[Command]:
        """For the reply to a report."""
        found: list[Command] = []
        for job in report.jobs:
            known = self._open.get(job.job)
            if known and known.nonces.get(report.node) == job.nonce and report.node not in known.reading.answers:
                asked = known.reading
                found.append(TakeStacks(job.job, job.nonce, asked.ask, asked.step, asked.native))
        return found

    def waiting_for(self, reading: Reading) -> list[str]:
        """Nodes that have not answered."""
        return [node for node in reading.nodes if node not in reading.answers]

    def _begin(self, job: int, run: str, step: str, *, native: bool, finding: str) -> Reading:
        held, now = self.fleet.jobs.get(job), self.now()
        nonces = {node: nonce for node, nonce in self.fleet.nodes_of(job).items()
                  if not self.fleet.nodes[node].silent(now) and self._has(job, node, step)}
        if held is None or not nonces:
            raise LookupError(job)
        reading = Reading(ask=secrets.token_hex(4), job=job, run=run, restarts=held.restarts, step=step,
                          native=native, finding=finding, at=self.fleet.wall(now), nodes=sorted(nonces))
        self._open[job] = Asking(reading, nonces, now)
        return reading

    def _has(self, job: int, node: str, step: str) -> bool:
        """The node runs the step."""
        part = self.fleet.jobs[job].parts[node].job
        return any(one.step == step for one in part.steps) if step else bool(part.steps)

    def _end_late(self, now: float) -> None:
        """End the readings that are whole, late, or of an attempt that is over."""
        for job, asking in list(self._open.items()):
            held = self.fleet.jobs.get(job)
            over = held is None or held.restarts != asking.reading.restarts or held.ended
            if self.waiting_for(asking.reading) and now < asking.until and not over:
                continue
            asking.reading.done = True
            del self._open[job]
            self._done[asking.reading.ask] = asking
            if len(self._done) > KEPT:
                del self._done[next(iter(self._done))]
            if asking.reading.answers:
                self._keep(asking.reading)

    def _keep(self, reading: Reading) -> None:
        try:
            with self.store.together():
                kept = self.store.stacks.put(reading)
        except sqlite3.Error as fault:
            log.warning("job %d: its stacks can't be kept: %s", reading.job, fault)
            return
        if not kept:
            log.warning("job %d: its stacks are too many to be kept", reading.job)
