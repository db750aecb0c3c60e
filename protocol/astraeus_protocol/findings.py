"""What rules conclude, as history, API and recordings hold it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One conclusion about a worker, or about a whole step where no rank stands out.

    ``key`` is cluster/job/restarts/step/kind/culprit: alerts are raised and resolved by it.
    """

    key: str
    kind: str
    """suspect, stalled, straggler, at_risk, node_silent."""
    rule: str
    """Name of the rule, a heading of docs/rules.md: ``collective_stuck``, ``gpus_idle``, …"""
    run: str
    """The job as Slurm shows it: 123, 123_4, 123+1."""
    run_name: str
    job: int
    restarts: int
    step: str
    worker: str
    """``123-5``; the run's (or step's) own name where nobody stands out."""
    rank: int | None
    node: str
    """The guilty rank's node; the folded node list where nobody stands out."""
    pid: int | None
    since: float
    """Unix seconds of the last progress."""
    detected_at: float
    said: str
    """The sentence: ``no output since 14:02 UTC; rank 5 (node c3, PID 4242) is stopped (state T): …``"""
    action: str = "alert"
    details: dict[str, object] = {}
    """Evidence: readings with their ages, the ranks concerned."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of history."""

    at: float
    run: str
    job: int
    worker: str
    state: str
    """State the worker is in: Running."""
    kind: str
    message: str
    details: dict[str, object] = {}


class IncidentJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job of an incident."""

    job: int
    run: str
    at: float
    """Unix seconds at which it joined."""
    by: str
    """What it shares with the others: storage, nodes, breaker."""


class Incident(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs that stalled together, by a cause that lies outside of them: one alert, and nothing is stopped.

    ``key`` is cluster/incident/id: its alert is raised and resolved by it.
    """

    id: int
    key: str
    cause: str
    """storage, nodes, breaker."""
    subject: str
    """``store1:/export``, ``c[3-4]``, ``many jobs``."""
    opened_at: float
    """Unix seconds."""
    jobs: tuple[IncidentJob, ...] = ()
    """All that were ever part of it, each once, in the order in which they joined."""
    closed_at: float | None = None
