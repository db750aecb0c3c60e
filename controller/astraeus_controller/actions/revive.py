"""Whether a job that ended before its requeue ended on our signal, and may be run again. Pure.

Plain ``requeue`` runs any ended job again, one that its user cancelled, too: so it is kept to those that FAILED or
COMPLETED, in the very attempt that was stopped, after a signal or a requeue of ours that Slurm took.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ..history.store import Intent
from ..slurm.types import JobFacts

REVIVED = ("FAILED", "COMPLETED")
OVER_S = 5.0


def ended_on_ours(intent: Intent, facts: JobFacts) -> bool:
    """``facts``: of the ended job. A command that may not have reached Slurm (the controller was killed, or no
    answer came) does not count: then the job may have ended by itself."""
    ended = unix_time(facts.end_time)
    return (facts.state in REVIVED and facts.restarts == intent.restarts
            and facts.start_time == intent.start_time
            # Slurm prints whole seconds; the look right before hit_at saw the job alive.
            and intent.hit_at is not None and ended is not None and ended >= math.floor(intent.hit_at))


def seems_over(facts: JobFacts, now: float) -> bool:
    """Slurm shows a job as STOPPED to its record's end when a node's answer to a STOP came after the job's end (seen
    on 22.05, where a resume had woken the batch script): its end is past, and accounting knows the true state."""
    ended = unix_time(facts.end_time)
    return facts.state == "STOPPED" and ended is not None and ended <= now - OVER_S


def unix_time(text: str) -> float | None:
    """Of a time as Slurm prints it under TZ=UTC, ``2026-11-29T14:30:00``; None where it is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
