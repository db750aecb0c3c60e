"""Which stalls are one incident: opens, grows, closes. No I/O, no clock; ``at`` is Unix seconds throughout."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from astraeus_protocol.findings import Finding, Incident, IncidentJob

from ..config import Config
from ..rules import incident as rule
from ..rules.incident import BREAKER, related, shared, shares, together, whole_of
from ..rules.limits import BREAKER_WINDOW_S, INCIDENT_AGAIN_S, INCIDENT_REST_S


class Turn(msgspec.Struct, frozen=True):
    """What a finding does to an incident.

    ``kind``: open (or opened again), join, better (its cause is known better), close. ``joined``: jobs that are part
    of it since now. ``left``: jobs that still hang at its close.
    """

    kind: str
    incident: Incident
    joined: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    into: int = 0
    """The incident that it became part of, where that is why it closed."""


class Held(msgspec.Struct, frozen=True):
    """What is remembered at one time."""

    last: int
    incidents: dict[int, Incident]
    stalled: dict[str, Finding]
    wave: list[tuple[str, float]]
    few: dict[int, float]


class Incidents:
    """``config``: what makes an incident. ``past``: incidents that history holds and that are open or closed lately;
    ``last``: the highest id ever given; ``findings``: open findings; ``wave``: (whole job, at) of late stalls."""

    def __init__(self, config: Config, cluster: str, *, past: Iterable[Incident] = (), last: int = 0,
                 findings: Iterable[Finding] = (), wave: Iterable[tuple[str, float]] = ()) -> None:
        self.config, self.cluster = config, cluster
        self._last = last
        self._incidents = {incident.id: incident for incident in past}
        self._stalled = {f.key: f for f in findings if counts(f)}
        self._wave = list(wave)
        self._few: dict[int, float] = {}
        """Since when so few jobs of an incident hang that it will be closed."""

    def held(self) -> Held:
        """What is remembered, to be put back where what came of it can't be stored."""
        return Held(self._last, dict(self._incidents), dict(self._stalled), list(self._wave), dict(self._few))

    def put_back(self, held: Held) -> None:
        """As it was."""
        self._last, self._wave = held.last, held.wave
        self._incidents, self._stalled, self._few = held.incidents, held.stalled, held.few

    # What is asked

    def of(self, job: int) -> Incident | None:
        """The open incident that the job is part of."""
        return next((one for one in self.open if any(member.job == job for member in one.jobs)), None)

    def lately(self, job: int) -> Incident | None:
        """The newest one that the job is or was lately part of."""
        return next((one for one in reversed(self._incidents.values())
                     if any(member.job == job for member in one.jobs)), None)

    @property
    def open(self) -> list[Incident]:
        return [one for one in self._incidents.values() if one.closed_at is None]

    def hanging(self, incident: Incident) -> tuple[int, ...]:
        """Its jobs that are stalled now."""
        stalled = {finding.job for finding in self._stalled.values()}
        return tuple(member.job for member in incident.jobs if member.job in stalled)

    def wave(self, at: float) -> set[str]:
        """Whole jobs that became stalled lately, whatever became of them since: what the breaker counts."""
        self._wave = [(whole, then) for whole, then in self._wave if abs(at - then) <= BREAKER_WINDOW_S]
        return {whole for whole, _ in self._wave}

    # What happens

    def opened(self, finding: Finding, at: float, watched_jobs: int) -> list[Turn]:
        """A finding opened, or is known better."""
        if not counts(finding):
            return []
        new = finding.key not in self._stalled
        if new:
            self._wave.append((whole_of(finding.run), at))
        self._stalled[finding.key] = finding
        incident = self.of(finding.job) or self._joined(finding)
        if incident is None and new:  # the one that hung on when it was closed opens nothing again
            incident = next((one for one in self._closed_lately(at) if shares(finding, one.cause, one.subject)), None)
        if incident is not None:
            return self._grow(incident, [finding.job], at)
        return self._new(finding, at, watched_jobs)

    def closed(self, finding: Finding, at: float) -> list[Turn]:
        """A finding closed."""
        self._stalled.pop(finding.key, None)
        incident = self.of(finding.job)
        return self._ends(incident, at) if incident else []

    def look(self, at: float) -> list[Turn]:
        """Time went on."""
        for number, one in list(self._incidents.items()):
            if one.closed_at is not None and abs(at - one.closed_at) > INCIDENT_AGAIN_S:
                del self._incidents[number]
        return [turn for one in self.open for turn in self._ends(one, at)]

    # Where it belongs

    def _joined(self, finding: Finding) -> Incident | None:
        """An open incident that it has something in common with: on its storage at any time while that is open, with
        a job of it only within the window."""
        rules = self.config.incidents
        for one in self.open:
            if rules.by_storage and one.cause == rule.STORAGE and shares(finding, one.cause, one.subject):
                return one
            if any(together(f, finding, rules.window_s) and self._related(f, finding) for f in self._of(one)):
                return one
        return None

    def _closed_lately(self, at: float) -> list[Incident]:
        return [one for one in self._incidents.values()
                if one.closed_at is not None and abs(at - one.closed_at) <= INCIDENT_AGAIN_S]

    def _new(self, finding: Finding, at: float, watched_jobs: int) -> list[Turn]:
        rules = self.config.incidents
        held = {member.job for one in self.open for member in one.jobs}
        alone = [f for f in self._stalled.values() if f.job not in held]
        near = [f for f in alone if together(f, finding, rules.window_s)]
        found = self._shared([f for f in near if f is finding or self._related(f, finding)])
        if found is not None and shares(finding, *found):
            return self._open(*found, [f.job for f in near if shares(f, *found)], at)
        return self._wide(alone, at, watched_jobs)

    def _wide(self, alone: list[Finding], at: float, watched_jobs: int) -> list[Turn]:
        """Where the breaker trips: stalls that share nothing with others are part of the incident that most of the
        wave belongs to, else one of their own."""
        wave, site = self.wave(at), self.config.restart
        if not rule.tripped(len(wave), watched_jobs, jobs=site.breaker_jobs, share=site.breaker_share):
            return []
        late = [f for f in alone if whole_of(f.run) in wave]
        jobs = list(dict.fromkeys(f.job for f in late))
        held = {one.id: len({whole_of(member.run) for member in one.jobs} & wave) for one in self.open}
        most = max(self.open, key=lambda one: held[one.id], default=None)
        if most is not None and 2 * held[most.id] >= len(wave):
            return self._grow(most, jobs, at)
        if len({whole_of(f.run) for f in late}) < self.config.incidents.min_jobs:
            return []
        again = next((one for one in self._closed_lately(at) if one.cause == BREAKER), None)
        return self._grow(again, jobs, at) if again else self._open(BREAKER, rule.MANY, jobs, at)

    def _related(self, one: Finding, other: Finding) -> bool:
        rules = self.config.incidents
        return related(one, other, storage=rules.by_storage, nodes=rules.by_nodes)

    def _shared(self, findings: list[Finding]) -> tuple[str, str] | None:
        rules = self.config.incidents
        return shared(findings, rules.min_jobs, storage=rules.by_storage, nodes=rules.by_nodes)

    def _of(self, incident: Incident) -> list[Finding]:
        jobs = {member.job for member in incident.jobs}
        return [finding for finding in self._stalled.values() if finding.job in jobs]

    # How it changes

    def _open(self, cause: str, subject: str, jobs: Iterable[int], at: float) -> list[Turn]:
        self._last += 1
        incident = Incident(id=self._last, key=f"{self.cluster}/incident/{self._last}", cause=cause, subject=subject,
                            opened_at=at)
        return self._grow(incident, jobs, at, kind="open")

    def _grow(self, incident: Incident, jobs: Iterable[int], at: float, kind: str = "join") -> list[Turn]:
        """Adds jobs; opens it again where it was closed; knows its cause better where it can."""
        if incident.closed_at is not None:
            kind = "open"
        known = {member.job for member in incident.jobs}
        new = [job for job in dict.fromkeys(jobs) if job not in known]
        runs = {finding.job: finding.run for finding in self._stalled.values()}
        grown = msgspec.structs.replace(incident, closed_at=None, jobs=incident.jobs + tuple(
            IncidentJob(job=job, run=runs[job], at=at, by=BREAKER) for job in new))
        titled = self._titled(grown)
        self._incidents[titled.id] = titled
        turns: list[Turn] = []
        if new or kind == "open":
            turns.append(Turn(kind, titled, tuple(new)))
        if titled.cause != incident.cause and kind != "open":
            turns.append(Turn("better", titled, tuple(member.job for member in titled.jobs)))
        elif titled != incident and not turns:
            turns.append(Turn("join", titled))  # one node more, or it is known now what a job of it waits for
        twins = sorted((one for one in self.open if (one.cause, one.subject) == (titled.cause, titled.subject)),
                       key=lambda one: one.id)
        if len(twins) > 1:
            return turns + self._merge(twins[0], twins[1], at)
        return turns + self._ends(titled, at)

    def _merge(self, older: Incident, younger: Incident, at: float) -> list[Turn]:
        """Two that were told apart until it was known that their jobs wait for the same."""
        del self._incidents[younger.id]
        self._few.pop(younger.id, None)
        over = msgspec.structs.replace(younger, closed_at=at)
        return [Turn("close", over, into=older.id), *self._grow(older, self.hanging(younger), at)]

    def _titled(self, incident: Incident) -> Incident:
        """Its cause and subject by what its stalled jobs share now, and what each has in common with them."""
        findings = self._of(incident)
        best = self._shared(findings)
        cause, subject = incident.cause, incident.subject
        if best and rule.STRENGTH.index(best[0]) > rule.STRENGTH.index(cause):
            cause, subject = best
        elif best and best[0] == cause == rule.NODES:
            subject = rule.fold(rule.unfold(subject) | rule.unfold(best[1]))
        fits = {finding.job for finding in findings if shares(finding, cause, subject)}
        jobs = tuple(msgspec.structs.replace(member, by=cause) if member.job in fits else member
                     for member in incident.jobs)
        return msgspec.structs.replace(incident, cause=cause, subject=subject, jobs=jobs)

    def _ends(self, incident: Incident, at: float) -> list[Turn]:
        """Closed at once when none of its jobs hangs; after a rest when too few do."""
        left = self.hanging(incident)
        whole = {whole_of(member.run) for member in incident.jobs if member.job in left}
        if len(whole) >= self.config.incidents.min_jobs:
            self._few.pop(incident.id, None)
            return []
        since = min(self._few.setdefault(incident.id, at), at)  # a clock that is set back begins anew
        self._few[incident.id] = since
        if left and at - since < INCIDENT_REST_S:
            return []
        del self._few[incident.id]
        over = self._incidents[incident.id] = msgspec.structs.replace(incident, closed_at=at)
        return [Turn("close", over, left=left)]


def counts(finding: Finding) -> bool:
    """Those that are only listed raise no alert, so they make no incident either."""
    return finding.kind == "stalled" and finding.action != "list"
