"""What history says when a finding opens, is known better, or closes."""

from __future__ import annotations

from collections.abc import Sequence

from astraeus_protocol.durations import say_seconds
from astraeus_protocol.findings import Event, Finding, Incident
from msgspec import structs

from ..rules.incident import said


def opened(finding: Finding, at: float) -> Event:
    """``Stalled: No progress for 12m: <said>``, ``Suspect: <said>``."""
    match finding.kind:
        case "stalled":
            message = f"Stalled: No progress for {say_seconds(_no_progress_s(finding, at))}: {finding.said}"
        case "suspect":
            message = f"Suspect: {finding.said}"
        case "straggler":
            message = f"Straggler: {summary(finding)}"
        case "at_risk":
            message = f"At risk: {summary(finding)}"
        case _:
            message = f"Node silent: {finding.said}"
    return Event(at=at, run=finding.run, job=finding.job, worker=finding.worker, state="Running",
                 kind=finding.kind, message=message,
                 details={finding_field(finding.kind): {
                     **({"alert": "run_straggler"} if finding.kind == "straggler" else {}),
                     "key": finding.key, "rule": finding.rule, "since": finding.since,
                     "detected_at": finding.detected_at, "action": finding.action,
                     "evidence": finding.said, **finding.details}})


def summary(finding: Finding) -> str:
    """``Worker 123-2 (rank 2, on c3) holds the gang back: GPU 3 slowed down by heat: …``; of one at risk without the
    verb."""
    does = " holds the gang back" if finding.kind == "straggler" else ""
    return f"Worker {finding.worker} (rank {finding.rank}, on {finding.node}){does}: {finding.said}"


def _no_progress_s(finding: Finding, at: float) -> float:
    """Suspended time is not counted."""
    seconds = finding.details.get("no_progress_s")
    return float(seconds) if isinstance(seconds, int | float) else at - finding.since


def finding_field(kind: str) -> str:
    """The field of an event's details that holds the evidence: ``stall``, ``suspect``, ``node``."""
    return {"stalled": "stall", "node_silent": "node"}.get(kind, kind)


def numbered(event: Event, finding: Finding, number: int) -> Event:
    """The event with its finding's number, by which ``astraeus evidence`` shows what it rests on."""
    field = finding_field(finding.kind)
    stall = event.details.get(field)
    more = {field: {**stall, "id": number}} if isinstance(stall, dict) else {}
    return structs.replace(event, details={**event.details, **more})


def closed(finding: Finding, at: float, why: str) -> Event:
    """``Progress again: no longer stalled`` where ``why`` is ``progress``; else what ended it."""
    match finding.kind, why:
        case "stalled", "progress":
            kind, message = "progress", "Progress again: no longer stalled"
        case "stalled", _:
            kind, message = "stalled_over", f"No longer stalled: {why}"
        case "suspect", "":
            kind, message = "suspect_over", "No longer suspect"
        case "suspect", _:
            kind, message = "suspect_over", f"No longer suspect: {why}"
        case "straggler", _:
            kind, message = "straggler_over", f"Straggler over: {why or 'the gang runs evenly again'}"
        case "at_risk", _:
            kind, message = "at_risk_over", f"No longer at risk: {why}" if why else "No longer at risk"
        case _, "":
            kind, message = "node_back", f"Node {finding.node} reports again"
        case _:
            kind, message = "node_back", f"Node {finding.node} no longer matters: {why}"
    details: dict[str, object] = {
        finding_field(finding.kind): {"key": finding.key, "since": finding.since}}
    return Event(at=at, run=finding.run, job=finding.job, worker=finding.worker, state="Running",
                 kind=kind, message=message, details=details)


def incident_opened(incident: Incident) -> Event:
    """``Incident 3: 4 jobs wait on store1:/export; none of them is stopped``. It is told again when jobs join."""
    return _incident(incident, "incident", incident.opened_at,
                     f"Incident {incident.id}: {said(incident)}; none of them is stopped")


def incident_over(incident: Incident, at: float, left: Sequence[int], into: int = 0) -> Event:
    """``Incident 3 over after 14m; it held 4 jobs``. ``left``: jobs that still hang; ``into``: the incident that it
    became part of."""
    if into:
        return _incident(incident, "incident_over", at, f"Incident {incident.id} is part of incident {into} now: "
                         f"{said(incident)}")
    runs = [job.run for job in incident.jobs if job.job in left]
    still = f"; still stalled: {', '.join(runs)}" if runs else ""
    return _incident(incident, "incident_over", at, f"Incident {incident.id} over after "
                     f"{say_seconds(at - incident.opened_at)}; it held {len(incident.jobs)} jobs{still}")


def _incident(incident: Incident, kind: str, at: float, message: str) -> Event:
    """It is no job's own: its ``run`` is the incident."""
    details: dict[str, object] = {"incident": {
        "id": incident.id, "key": incident.key, "cause": incident.cause, "subject": incident.subject,
        "opened_at": incident.opened_at, "jobs": [job.run for job in incident.jobs]}}
    return Event(at=at, run=f"incident {incident.id}", job=0, worker="", state="", kind=kind, message=message,
                 details=details)
