"""Runs a recording through fleet, rules and pass on its own clock, and says what would have been done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from astraeus_protocol.report import Report

from . import recording
from .config import Config, parse
from .fleet import Fleet
from .fleet.time import FOREVER
from .judging.incidents import Incidents, Turn
from .judging.loop import INLINE_S, REST, SWEEP_S
from .judging.pass_ import Change, Pass
from .judging.words import incident_opened, incident_over
from .recording import Line, Meta
from .slurm.types import JobFacts, Snapshot

WORKER_S = 25e-6
"""What a worker adds to a round of its job at most (docs/performance.md): in a replay nothing is measured."""


class Replay:
    """State of one replay. ``config`` goes over the recording's own."""

    def __init__(self, config: Config | None) -> None:
        self.config = config
        self.cluster = ""
        self.fleet: Fleet | None = None
        self.passes: Pass | None = None
        self.incidents: Incidents | None = None
        self.watched: set[int] = set()
        self.dirty: dict[int, float] = {}
        """Jobs with many ranks of which something new is known, to when they are judged."""
        self.swept = 0.0
        self.own: Config | None = None

    def line(self, line: Line) -> Iterator[dict[str, Any]]:
        """What a line leads to, the sweeps between the line before and this one first."""
        if isinstance(line.data, Meta):
            self.cluster = line.data.cluster
            return
        if isinstance(line.data, str):
            self.own = parse(line.data, "the recording's configuration")
            return
        fleet, passes = self._started(line)
        yield from self._until(fleet, passes, line.now)
        touched: list[int] = []
        match line.data:
            case Report():
                touched = fleet.report(line.data, line.now)
            case Snapshot():
                touched = fleet.slurm(line.data, line.now)
            case JobFacts():
                fleet.job_facts(line.data, line.now)
                touched = [line.data.job]
        now = [job for job in touched if not self._rests(fleet, job, line.now)]
        yield from self._judge(fleet, passes, now, line.now)
        for change in passes.orphans(line.now):
            yield from self._said(change, line.now, self._mode(change.finding.job))
        if isinstance(line.data, Report):
            fleet.next_s(line.data.node, passes.suspect_jobs())

    def rest(self) -> Iterator[dict[str, Any]]:
        """What is still due when the recording ends."""
        if self.fleet is not None and self.passes is not None and self.dirty:
            yield from self._until(self.fleet, self.passes, max(self.dirty.values()))

    def _until(self, fleet: Fleet, passes: Pass, now: float) -> Iterator[dict[str, Any]]:
        """Sweeps, and large jobs that have rested, up to ``now``, in their order."""
        while True:
            sweep = self.swept + SWEEP_S
            job, due = min(self.dirty.items(), key=lambda one: one[1], default=(0, FOREVER))
            if due <= now and due < sweep:
                del self.dirty[job]
                yield from self._judge(fleet, passes, [job], due)
            elif sweep <= now:
                self.swept = sweep
                self.dirty.clear()
                yield from self._judge(fleet, passes, None, sweep)
                fleet.forget(sweep)
                yield from self._turns(lambda incidents: incidents.look(fleet.wall(self.swept)), sweep)
            else:
                return

    def _rests(self, fleet: Fleet, job: int, now: float) -> bool:
        """As the service does it: a job with many ranks is judged once for the reports of several of its nodes."""
        held = fleet.jobs.get(job)
        ranks = sum(len(step.workers) for part in held.live.values() for step in part.job.steps) if held else 0
        cost = ranks * WORKER_S
        if cost >= INLINE_S:
            self.dirty.setdefault(job, now + cost * REST)
        return cost >= INLINE_S

    def _started(self, line: Line) -> tuple[Fleet, Pass]:
        if self.fleet is None or self.passes is None:
            self.fleet = Fleet(self._config(), self.cluster, line.wall - line.now)
            self.passes = Pass(self.fleet, self.cluster)
            self.incidents = Incidents(self._config(), self.cluster)
            self.swept = line.now
        return self.fleet, self.passes

    def _config(self) -> Config:
        return self.config or self.own or Config()

    def _mode(self, job: int) -> str:
        held = self.fleet.jobs.get(job) if self.fleet else None
        partition = held.facts.partition if held and held.facts else ""
        return self._config().watch_for(partition).mode

    def _judge(self, fleet: Fleet, passes: Pass, jobs: list[int] | None,
               now: float) -> Iterator[dict[str, Any]]:
        for picture in fleet.pictures(now, jobs):
            self.watched.discard(picture.job.job)
            if any(step.watched and not step.ended for step in picture.job.steps):
                self.watched.add(picture.job.job)
            changes = passes.judge(picture, now)
            if any(change.needs_facts for change in changes):
                facts = fleet.jobs[picture.job.job].facts
                if facts is not None:
                    # Slurm can't be asked in a replay: its last recorded word stands.
                    last = msgspec.structs.replace(facts, state=fleet.jobs[facts.job].state)
                    fleet.job_facts(last, now)
                    changes = [change for change in changes if not change.needs_facts]
                    for again in fleet.pictures(now, [picture.job.job]):
                        changes += passes.judge(again, now)
            for change in changes:
                yield from self._said(change, now, self._mode(picture.job.job))

    def _said(self, change: Change, now: float, mode: str) -> Iterator[dict[str, Any]]:
        """The change, and what it does to incidents."""
        yield from said(change, now, mode)
        finding, fleet = change.finding, self.fleet
        if finding.kind != "stalled" or change.kind == "check" or fleet is None:
            return
        at = fleet.wall(now)
        if change.kind == "close":
            yield from self._turns(lambda incidents: incidents.closed(finding, at), now)
        else:
            yield from self._turns(lambda incidents: incidents.opened(finding, at, len(self.watched)), now)

    def _turns(self, what: Callable[[Incidents], list[Turn]], now: float) -> Iterator[dict[str, Any]]:
        if self.incidents is None or self.fleet is None:
            return
        for turn in what(self.incidents):
            event = None
            if turn.kind == "close":
                event = incident_over(turn.incident, self.fleet.wall(now), turn.left, turn.into)
            elif turn.kind == "open":
                event = incident_opened(turn.incident)
            yield {"kind": "incident", "now": round(now, 3), "change": turn.kind,
                   "incident": msgspec.to_builtins(turn.incident),
                   "event": None if event is None else msgspec.to_builtins(event)}


def said(change: Change, now: float, mode: str) -> Iterator[dict[str, Any]]:
    """A change as JSON-able dict, and the actions that it would lead to; ``mode``: observe, act."""
    finding = change.finding
    yield {"kind": change.kind, "now": round(now, 3), "why": change.why,
           "finding": msgspec.to_builtins(finding),
           "event": None if change.event is None else msgspec.to_builtins(change.event)}
    if finding.kind != "stalled" or change.kind not in ("open", "update", "close"):
        return
    common = {"kind": "action", "now": round(now, 3), "job": finding.job, "key": finding.key, "would": mode == "act"}
    if finding.action != "list":
        yield common | {"action": "annotate"}
    if change.kind == "open" and finding.action == "restart":
        yield common | {"action": "restart"}


def replay(lines: Iterable[str], config: Config | None = None) -> Iterator[dict[str, Any]]:
    """Findings, events and would-be actions of a recording, in order.

    Each is a dict with ``kind`` (``open``, ``update``, ``close``, ``check``, ``incident``, ``action``) and ``now``. An
    action is what the verdict asks for, before the checks that look at Slurm once more; ``would`` tells
    whether the mode lets it be done. RecordingFault where a line can't be read.
    """
    state = Replay(config)
    for line in recording.read(lines):
        yield from state.line(line)
    yield from state.rest()
