"""Judges jobs as their reports come, sweeps all of them, and carries out what a round changes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from functools import partial

from astraeus_protocol.findings import Event, Finding

from ..actions import annotate, evidence
from ..actions.annotate import Annotations
from ..actions.may_restart import PROGRESSED_S
from ..actions.node_flags import NodeFlags
from ..actions.restarts import Restarts
from ..fleet import Fleet
from ..history.store import Store
from ..inquiries import Inquiries
from ..rules.incident import said
from ..rules.picture import Picture
from .incidents import Incidents, Turn
from .near import near
from .pass_ import Change, Pass
from .watched import Watch, watch
from .words import incident_opened, incident_over, numbered

log = logging.getLogger(__name__)
SWEEP_S = 15.0
SLICE_S = 0.005
"""After so long without a pause reports get their turn."""
INLINE_S = 0.002
"""A job whose last judging took less is judged before its report is answered: a suspect then reports sooner."""
REST = 20
"""A job that took longer rests for this many times its last judging: it has many nodes, each with a report."""


class Judging:
    """``emit`` stores and logs an event; ``now`` is CLOCK_BOOTTIME in seconds."""

    def __init__(self, fleet: Fleet, passes: Pass, store: Store, annotations: Annotations, restarts: Restarts,
                 inquiries: Inquiries, incidents: Incidents, flags: NodeFlags, emit: Callable[[Event], None],
                 now: Callable[[], float]) -> None:
        self.fleet, self.passes, self.store = fleet, passes, store
        self.annotations, self.restarts, self.inquiries = annotations, restarts, inquiries
        self.incidents, self.flags, self.emit, self.now = incidents, flags, emit, now
        self.watches: dict[int, Watch] = {}
        self.near: set[int] = set()
        """Jobs whose patience is soon over, or in which one more look names a straggler: their nodes report often."""
        self._gave_back: dict[int, int] = {}
        """Job to the restart count of its attempt that is known to give the budget back."""
        self.stores = True
        self.swept_at: float | None = None
        """When a sweep ended last in which not every job failed."""
        self._failed = 0
        self._cost, self._dirty = dict[int, float](), dict[int, float]()
        self._wake = asyncio.Event()

    def picture(self, job: int) -> Picture | None:
        return next(self.fleet.pictures(self.now(), [job]), None)

    def watched_jobs(self) -> int:
        return sum(watch.watched for watch in self.watches.values())

    def stalled_of(self, job: int) -> list[Finding]:
        """Its open stalled findings, those that are only listed left out."""
        return [f for f in self.passes.memory if f.job == job and f.kind == "stalled" and f.action != "list"]

    def touched(self, jobs: Iterable[int]) -> None:
        """Something new is known of these jobs: judge small ones now, the others soon."""
        began = time.perf_counter()
        for job in jobs:
            cost = self._cost.get(job, 0.0)
            if cost < INLINE_S and time.perf_counter() - began < SLICE_S:
                self.judge(job)
            else:
                self._dirty.setdefault(job, self.now() + cost * REST)
                self._wake.set()

    def judge(self, job: int) -> None:
        """One round for one job; a fault in it never stops the others. What can't be stored did not happen: the
        next round concludes it again."""
        began = time.perf_counter()
        held = self.passes.held(job)
        try:
            picture = self.picture(job)
            if picture is None:
                self.watches.pop(job, None)
                self.near.discard(job)
                return
            if self.fleet.jobs[job].facts is None and not picture.job.ended:
                self.inquiries.ask(job)
            self.watches[job] = watch(picture)
            self._carry_out(self.passes.judge(picture, self.now()), picture.job.policy.mode == "act", picture)
            (self.near.add if near(picture) or self.passes.straggling.pending(job) else self.near.discard)(job)
            self._note_progress(picture)
        except sqlite3.Error as fault:
            self.passes.put_back(held)
            self._not_stored(fault)
        except Exception:
            self.passes.put_back(held)
            self._failed += 1
            log.exception("job %d could not be judged", job)
        finally:
            self._cost[job] = time.perf_counter() - began

    async def run(self) -> None:
        """Dirty jobs when they are due, everything every SWEEP_S; ends when cancelled."""
        swept = self.now()
        while True:
            now = self.now()
            due = [job for job, at in self._dirty.items() if at <= now]
            if now - swept >= SWEEP_S:
                swept, due, self._failed = now, list(self.fleet.jobs), 0
            await self._judge_all(due)
            if swept == now:
                try:
                    if not due or self._failed < len(due):
                        self.swept_at = self.now()
                    self._after_sweep()
                except Exception:
                    log.exception("what a sweep leaves to do was not done; the next one tries again")
            self._wake.clear()
            until = min([swept + SWEEP_S, *self._dirty.values()])
            try:
                # Not wait_for: up to Python 3.11 that one loses a cancellation that meets a wake, and goes on for ever.
                async with asyncio.timeout(max(0.01, until - self.now())):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0.01)

    async def _judge_all(self, jobs: list[int]) -> None:
        began = time.perf_counter()
        for job in jobs:
            self._dirty.pop(job, None)
            self.judge(job)
            if time.perf_counter() - began >= SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()

    def _after_sweep(self) -> None:
        now = self.now()
        self._close_orphans(now)
        self._look_at_incidents(now)
        self.fleet.forget(now)
        self.near &= self.fleet.jobs.keys()
        self.passes.forget()
        for held in (self.watches, self._cost, self._gave_back):
            for job in held.keys() - self.fleet.jobs.keys():
                del held[job]
        for job in self.fleet.needs_facts():
            self.inquiries.ask(job)

    def _close_orphans(self, now: float) -> None:
        held = [self.passes.held(job) for job in {finding.job for finding in self.passes.memory}]
        try:
            self._carry_out(self.passes.orphans(now), act=True)
        except sqlite3.Error as fault:
            for one in held:
                self.passes.put_back(one)
            self._not_stored(fault)

    def _look_at_incidents(self, now: float) -> None:
        held = self.incidents.held()
        try:
            with self.store.together():
                for job in self._take(self.incidents.look(self.fleet.wall(now))):
                    self._annotate(job, [], self._acts(job))
        except sqlite3.Error as fault:
            self.incidents.put_back(held)
            self._not_stored(fault)

    def _not_stored(self, fault: sqlite3.Error) -> None:
        if self.stores:
            log.error("history can't be written (%s): until it can, nothing new is said or done", fault)
        self.stores = False

    def _note_progress(self, picture: Picture) -> None:
        """An attempt that gives the budget back is remembered when it does: it may end without us."""
        job = picture.job
        if not job.restarts or self._gave_back.get(job.job) == job.restarts:
            return  # nothing was spent before a job's first attempt
        if any(f.job == job.job and f.kind == "stalled" for f in self.passes.memory):
            return  # what ranks say while they are stopped is no progress
        if evidence.attempt_progressed_s(picture) >= PROGRESSED_S:
            self.store.gave_back(job.job, job.restarts)
            self._gave_back[job.job] = job.restarts

    def _carry_out(self, changes: list[Change], act: bool, picture: Picture | None = None) -> None:
        if not changes:
            return
        held = self.incidents.held()
        try:
            with self.store.together():
                self._store(changes, act, picture)
        except BaseException:
            self.incidents.put_back(held)
            raise
        if not self.stores:
            log.info("history can be written again")
        self.stores = True

    def _store(self, changes: list[Change], act: bool, picture: Picture | None) -> None:
        for change in changes:
            self._note(change, act, picture)
        stalled = [c for c in changes if c.finding.kind == "stalled" and c.kind != "check"]
        told = self._take([turn for change in stalled for turn in self._turns(change)])
        own = {change.finding.job for change in stalled}
        for job in own:
            self._annotate(job, stalled, act)
        for job in told - own:
            self._annotate(job, [], self._acts(job))

    def _note(self, change: Change, act: bool, picture: Picture | None) -> None:
        finding, event = change.finding, change.event
        if change.kind == "check":
            self.inquiries.ask(finding.job, urgent=True)
            return
        if change.kind == "close":
            self.store.close_finding(finding.key, change.why)
            self.store.after(partial(self.restarts.drop, finding.key))
            self.flags.over(finding.key)
        else:
            self.store.put_finding(finding, self.passes.offset(finding.key))
            self._own(finding)
            number = self._keep_evidence(finding, picture)
            event = numbered(event, finding, number) if event and number else event
        if event is not None:
            self.emit(event)
        if change.kind in ("open", "update"):
            self.flags.note(finding, act)
        if change.kind in ("open", "update") and finding.kind == "stalled" and finding.action == "restart":
            self.store.after(partial(self.restarts.want, finding))

    def _turns(self, change: Change) -> list[Turn]:
        """What a stall that opened or closed does to incidents."""
        at = self.fleet.wall(self.now())
        if change.kind == "close":
            return self.incidents.closed(change.finding, at)
        return self.incidents.opened(change.finding, at, self.watched_jobs())

    def _take(self, turns: Iterable[Turn]) -> set[int]:
        """Stores what became of incidents; the jobs whose comments have to say it. One event when an incident opens
        and one when it is over: a job that joins only changes the words of the first."""
        told: set[int] = set()
        for turn in turns:
            incident = turn.incident
            self.store.incidents.put(incident)
            if turn.kind == "close":
                self.emit(incident_over(incident, self.fleet.wall(self.now()), turn.left, turn.into))
            elif turn.kind == "open":
                self.emit(incident_opened(incident))
            else:
                self.store.incidents.tell_again(incident_opened(incident))
                log.info("%s now: %s", incident_opened(incident).run, said(incident))
            told |= {*turn.joined, *turn.left}
        return told

    def _acts(self, job: int) -> bool:
        return (picture := self.picture(job)) is not None and picture.job.policy.mode == "act"

    def _keep_evidence(self, finding: Finding, picture: Picture | None) -> int | None:
        held = self.fleet.jobs.get(finding.job)
        if picture is None or held is None or not held.parts or finding.kind == "node_silent":
            return None
        return self.store.evidence.put(finding, next(iter(held.parts.values())).job.uid, picture)

    def _own(self, finding: Finding) -> None:
        held = self.fleet.jobs.get(finding.job)
        if held is not None and held.parts:
            self.store.put_owner(finding.job, finding.run, next(iter(held.parts.values())).job.uid)

    def _annotate(self, job: int, changes: list[Change], act: bool) -> None:
        """Bring the job's comments in step with its findings; a restart under way does that by itself."""
        if self.restarts.owns(job):
            return
        open_now = self.stalled_of(job)
        if open_now:
            if act:
                self.annotations.want(job, annotate.stalled(open_now, self.restarts.note(job)))
            return
        self.store.after(partial(self.restarts.drop_note, job))
        last = [c for c in changes if c.finding.job == job and c.kind == "close" and c.finding.action != "list"]
        if last and (self.store.has_pieces(job) or self.annotations.pending(job)):
            why = "progress again" if last[-1].why == "progress" else last[-1].why
            incident = self.incidents.lately(job)
            why += f", incident {incident.id}" if incident else ""
            self.annotations.want(job, annotate.over(last[-1].finding, self.fleet.wall(self.now()), why))
