"""What rules conclude, as history, API and recordings hold it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One conclusion about a worker, or about a whole step where no rank stands out.

    ``key`` is cluster/job/restarts/step/kind/culprit: alerts are raised and resolved by it.
    """

    key: str
    kind: str
    """suspect, stalled, straggler, node_silent."""
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
