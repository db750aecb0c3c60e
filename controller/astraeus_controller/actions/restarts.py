"""Which stalled jobs are to be restarted: decides, declines with a sentence, starts and resumes restarts."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable

import msgspec
from astraeus_protocol.findings import Event, Finding

from ..config import Config
from ..history.store import Intent, Store
from ..rules import incident as incidents
from ..slurm.command import Away, Refused
from ..slurm.jobs import BEGIN_MIN_S, Jobs, begin_min, kill_wait
from ..slurm.types import JobFacts
from . import annotate, evidence
from .annotate import Annotations
from .avoid import Avoidance
from .may_restart import Facts, may_restart, without_numbers
from .outside import Clocks, Stops, View
from .restart import HELD, Restart
from .way import Stop, all_gone, choose

log = logging.getLogger(__name__)
AGAIN_S = 60.0
"""When a decision that may change is made again."""
WAIT_S = 5.0
"""The same where only our own pace, or a silent slurmctld, holds it back."""


class _Candidate(msgspec.Struct):
    finding: Finding
    due: float
    said: str = ""
    incident: bool = False
    """It was declined for an incident: while that is open nobody needs to be asked."""


class Restarts:
    """``emit`` stores an event. ``kill_wait_s``: Slurm's KillWait; ``begin_min_s``: as slurm.jobs says."""

    def __init__(self, config: Config, *, jobs: Jobs, store: Store, annotations: Annotations, stops: Stops,
                 view: View, emit: Callable[[Event], None], clocks: Clocks | None = None) -> None:
        self.config, self.jobs, self.store = config, jobs, store
        self.annotations, self.stops, self.view, self.emit = annotations, stops, view, emit
        self.clocks = clocks or Clocks()
        self.kill_wait_s, self.begin_min_s, self.term_reaches_all = 30.0, BEGIN_MIN_S, True
        self.avoidance = Avoidance(
            jobs=jobs, store=store, pace=annotations.writer.pace, emit=emit, most=config.restart.avoid_nodes,
            clocks=self.clocks, owns=self.owns, runs=self._runs)
        self._candidates: dict[str, _Candidate] = {}
        self._running: dict[int, tuple[Restart, asyncio.Task[None]]] = {}
        self._past: dict[int, int] = {}
        self._notes: dict[int, str] = {}

    def take_settings(self, settings: dict[str, str]) -> None:
        """``scontrol show config``, also after slurmctld was upgraded or its slurm.conf changed."""
        self.kill_wait_s, self.begin_min_s = kill_wait(settings), begin_min(settings)
        self.term_reaches_all = settings.get("ProctrackType", "") != "proctrack/cgroup"

    def owns(self, job: int) -> bool:
        """A restart of this job is under way: its comments are the restart's."""
        return job in self._running

    def _runs(self, job: int) -> bool:
        picture = self.view.picture(job)
        return picture is not None and picture.job.state == "RUNNING" and not picture.job.ended

    def being_stopped(self, job: int, restarts: int) -> bool:
        """Whether a restart of this attempt has got to its stop and is not over."""
        running = self._running.get(job)
        return (running is not None and running[0].intent.restarts == restarts
                and running[0].intent.stage not in ("decided", "annotated", "done"))

    @property
    def signalled(self) -> set[int]:
        """Jobs that get signals of ours: whether their nodes are heard meanwhile is looked at closely."""
        return {job for job, (restart, _) in self._running.items()
                if restart.intent.stage in ("freezing", "signalling", "waiting", "requeuing", "requeued")}

    def cause(self, job: int, restarts: int) -> str:
        """Why this attempt runs, where the Comment could not carry it; "" for none."""
        running = self._running.get(job)
        if running and running[0].intent.cause_by_reply and not running[0].intent.outcome:
            return "stalled" if restarts == running[0].intent.restarts + 1 else ""
        return "stalled" if self._past.get(job) == restarts else ""

    def want(self, finding: Finding) -> None:
        """A stalled finding of a run that wants to be restarted."""
        if finding.key in self._candidates:
            return
        try:
            row = self.store.finding_id(finding.key)
            wanted = row is not None and not self.store.had_restart(row)
        except sqlite3.Error:
            wanted = True  # the decision asks again, and history holds one restart for a finding at most
        if wanted:
            self._candidates[finding.key] = _Candidate(finding, due=self.clocks.steady())

    def drop(self, key: str) -> None:
        """The finding closed."""
        self._candidates.pop(key, None)

    def note(self, job: int) -> str:
        """The incident that the job is part of, and why it is not restarted, for its comments; "" for neither."""
        incident = self.view.incident(job)
        notes = [incidents.note(incident, job)] if incident else []
        return "; ".join([*notes, *([self._notes[job]] if job in self._notes else [])])

    def drop_note(self, job: int) -> None:
        self._notes.pop(job, None)

    def resume(self) -> None:
        """Go on with every restart that a controller before this one began."""
        for intent in self.store.open_intents():
            log.info("job %d: going on with its restart at %s", intent.job, intent.stage)
            self._start(intent)

    async def run(self) -> None:
        """The loop; ends when cancelled, and leaves the restarts where their stages are stored."""
        try:
            while True:
                now = self.clocks.steady()
                for key in [key for key, one in self._candidates.items() if one.due <= now]:
                    if key in self._candidates:
                        await self._safely(self._candidates[key])
                await self.clocks.sleep(0.5)
        finally:
            tasks = {task for _, task in self._running.values()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _safely(self, candidate: _Candidate) -> None:
        """A fault in one job's decision never stops the others."""
        try:
            await self._consider(candidate)
        except sqlite3.Error as fault:
            log.error("job %d: no decision about its restart while history can't be used: %s", candidate.finding.job,
                      fault)
            candidate.due = self.clocks.steady() + WAIT_S
        except Exception:
            log.exception("job %d: its restart could not be decided; again in a minute", candidate.finding.job)
            candidate.due = self.clocks.steady() + AGAIN_S

    async def _consider(self, candidate: _Candidate) -> None:
        finding = candidate.finding
        if self.owns(finding.job):
            # The restart of another of its findings may yet come to nothing (healed), or be that of the attempt
            # before: this one waits for it.
            candidate.due = self.clocks.steady() + WAIT_S
            return
        if candidate.incident and self.view.incident(finding.job):
            candidate.due = self.clocks.steady() + AGAIN_S
            return
        candidate.incident = False
        try:
            shown = await self.jobs.show(finding.job)
            slurm = shown.facts if shown else None
            components = await self.jobs.components(slurm.leader) if slurm and slurm.leader else []
            facts = await self._facts(finding, slurm, components)
        except Away as fault:
            log.warning("job %d: no decision about its restart yet: %s", finding.job, fault)
            candidate.due = self.clocks.steady() + WAIT_S
            return
        if self._candidates.get(finding.key) is not candidate:
            return  # it closed meanwhile
        if facts is None:
            candidate.due = self.clocks.steady() + WAIT_S
            return
        self._decide(candidate, facts, slurm, components)

    def _decide(self, candidate: _Candidate, facts: Facts, slurm: JobFacts | None,
                components: list[JobFacts]) -> None:
        finding = candidate.finding
        decision = may_restart(facts)
        if decision.answer == "yes" and slurm is not None:
            self._begin(finding, facts, slurm, components)
            return
        if decision.answer == "wait":
            candidate.due = self.clocks.steady() + WAIT_S
            return
        candidate.incident = bool(facts.incident) and decision.sentence == facts.incident
        said = without_numbers(decision.sentence)
        if said != candidate.said:
            self._decline(finding, decision.sentence, write=facts.act, incident=candidate.incident)
            candidate.said = said
        if decision.answer == "no":
            self.drop(finding.key)
        else:
            candidate.due = self.clocks.steady() + AGAIN_S

    def _begin(self, finding: Finding, facts: Facts, slurm: JobFacts, components: list[JobFacts]) -> None:
        row = self.store.finding_id(finding.key)
        if row is None:
            self.drop(finding.key)
            return
        stop, avoid = self._stop(finding)
        intent = evidence.new_intent(
            finding, slurm, components, number=facts.spent + 1, budget=facts.budget, stop=stop,
            backoff_s=evidence.backoff_s(self.config.restart, facts.spent),
            progressed_s=facts.progressed_s, now=self.clocks.wall(), avoid=avoid)
        with self.store.together():
            begun = self.store.begin(intent, row)
            if begun:
                self.emit(_event(finding, self.clocks.wall(), "restart_intended",
                                 f"Restart {intent.number}/{intent.budget} intended: {finding.said}"
                                 + (f"; {stop.note}" if stop.note else "")))
        self.drop(finding.key)
        if begun:
            self._start(intent)

    def _stop(self, finding: Finding) -> tuple[Stop, bool]:
        """How it wants to be stopped, and whether it is to avoid the guilty rank's node."""
        picture = self.view.picture(finding.job)
        if picture is None:
            return Stop("TERM", self.kill_wait_s), False
        policy = next((step.policy for step in picture.job.steps if step.step == finding.step), picture.job.policy)
        stop = choose(picture, finding.step, policy, self.kill_wait_s, term_reaches_all=self.term_reaches_all)
        return stop, policy.avoid_guilty

    def _start(self, intent: Intent) -> None:
        job = intent.job
        restart = Restart(intent, jobs=self.jobs, store=self.store, annotations=self.annotations,
                          avoidance=self.avoidance, stops=self.stops, emit=self.emit, clocks=self.clocks,
                          stop_file_wait_s=self.config.restart.stop_file_wait_s, begin_min_s=self.begin_min_s,
                          acts=lambda partition: self.config.watch_for(partition).mode == "act",
                          gone=lambda: all_gone(map(self.view.picture, intent.jobs), intent.restarts,
                                                full=intent.way == "full"),
                          held=lambda: self._held(job))
        task = asyncio.get_running_loop().create_task(restart.run(), name=f"restart {job}")
        for number in intent.jobs:
            self._running[number] = restart, task
        task.add_done_callback(lambda done: self._over(restart.intent, done))

    def _held(self, job: int) -> tuple[str, str] | None:
        """(why, note) while the job is part of an incident."""
        incident = self.view.incident(job)
        return (incidents.reason(incident), self.note(job)) if incident else None

    def _over(self, intent: Intent, task: asyncio.Task[None]) -> None:
        for job in intent.jobs:
            self._running.pop(job, None)
            if intent.cause_by_reply and intent.outcome == "restarted":
                self._past[job] = intent.restarts + 1  # its first reply may have been lost
        if intent.outcome == HELD and self.store.finding_id(intent.finding_key) is not None:
            self.want(intent.finding)
        if not task.cancelled() and task.exception() is not None:
            log.error("job %d: its restart broke off", intent.job, exc_info=task.exception())

    async def _facts(self, finding: Finding, slurm: JobFacts | None, components: list[JobFacts]) -> Facts | None:
        picture = self.view.picture(finding.job)
        others = [one.job for one in components if one.job != finding.job]
        if picture is None:
            return None
        return evidence.gather(
            finding, picture, slurm, self.store, site=self.config.restart,
            watch=self.config.watch_for(picture.job.partition), now=self.clocks.wall(),
            kill_wait_s=self.kill_wait_s, term_reaches_all=self.term_reaches_all,
            stalled_steps={one.step for one in self.view.stalled_of(finding.job)},
            watched_jobs=self.view.watched_jobs(), stalled_jobs=self.view.stalled_lately(),
            completing_nodes=await self._completing(finding, slurm, others),
            incident=incidents.reason(incident) if (incident := self.view.incident(finding.job)) else "",
            others={number: self.view.picture(number) for number in others})

    async def _completing(self, finding: Finding, slurm: JobFacts | None, others: list[int]) -> tuple[str, ...]:
        """Nodes of the attempt before that still complete it; only asked where there was one."""
        history = self.store.restarts_of(finding.job, *others)
        if not history or not history[-1].nodelist or slurm is None:
            return ()
        try:
            return tuple(await self.jobs.completing_nodes(history[-1].nodelist))
        except Refused:
            return ()

    def _decline(self, finding: Finding, sentence: str, *, write: bool, incident: bool) -> None:
        log.info("job %d (%s): restart declined: %s", finding.job, finding.run, sentence)
        event = _event(finding, self.clocks.wall(), "restart_declined", f"restart declined: {sentence}")
        told = (event.kind, without_numbers(event.message), event.details)
        if not any((one.kind, without_numbers(one.message), one.details) == told
                   for one in self.store.events(job=finding.job)):
            self.emit(event)  # once, also when the controller was started anew
        if write and not incident:  # judging wrote the incident into the comments of all its jobs
            self._notes[finding.job] = f"not restarted: {sentence}"
            self.annotations.want(finding.job, annotate.stalled(
                _with(self.view.stalled_of(finding.job), finding), self.note(finding.job)))


def _event(finding: Finding, at: float, kind: str, message: str) -> Event:
    return Event(at=at, run=finding.run, job=finding.job, worker=finding.worker, state="Running", kind=kind,
                 message=message, details={"finding": finding.key})


def _with(findings: Iterable[Finding], finding: Finding) -> list[Finding]:
    found = list(findings)
    return found if any(one.key == finding.key for one in found) else [finding, *found]
