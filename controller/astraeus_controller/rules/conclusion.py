"""What a rule says of a picture; the pass makes findings of it."""

from __future__ import annotations

import msgspec


class Conclusion(msgspec.Struct, frozen=True):
    """One rule's word on one worker, or on a step where nobody stands out.

    ``verdict``: ``suspect``, ``stalled``, ``node_silent``, ``unknown`` (the rule can't be judged now: an open
    finding stays open, none opens). What no rule concludes on is well.
    """

    verdict: str
    rule: str
    """Name in docs/rules.md: metric_unchanged, gpus_idle, collective_stuck, silent, never_began, …"""
    step: str
    worker: str
    """Name of the guilty worker; the step's name where no rank stands out."""
    rank: int | None
    node: str
    pid: int | None
    """Of the guilty worker process."""
    since_s: float
    """Since the last progress, suspended time taken out: what "No progress for 12m" says."""
    said: str
    """``no output since 14:02 UTC; rank 5 (node c3, PID 4242) is stopped (state T) for 40s; …``"""
    workers: tuple[str, ...]
    """All workers that the conclusion covers: the guilty one and those that wait."""
    evidence: dict[str, object]
    since: float = 0.0
    """Unix time of the last progress."""
    gang: bool = False
    """The step is a tied gang: one conclusion stands for all of it."""
