"""Is the watcher itself well? Each fault is a sentence; without one it is. Nothing unknown counts as well."""

from __future__ import annotations

import msgspec

from ..fleet import Fleet
from .coverage import Coverage

START_S = 120.0
"""After a start Slurm and the nodes get this long to be heard."""
SWEEP_LATE_S = 60.0
"""Sweeps are 15 s apart."""
POLLS_LATE = 4
REPORTS_LATE_S = 120.0
"""Nodes with jobs report every 30 s at least."""


class Seen(msgspec.Struct):
    """When what last happened, CLOCK_BOOTTIME in seconds; None: not yet."""

    started: float
    swept: float | None = None
    polled: float | None = None
    reported: float | None = None
    stores: bool = True


def faults(seen: Seen, fleet: Fleet, coverage: Coverage, poll_s: float, now: float) -> list[str]:
    """What keeps the controller from seeing or judging; [] where it is well."""
    found = []
    if now - (seen.started if seen.swept is None else seen.swept) > SWEEP_LATE_S:
        found.append(f"no pass over the jobs has run for {_age(seen.swept, seen, now)}")
    if now - (seen.started if seen.polled is None else seen.polled) > max(START_S, POLLS_LATE * poll_s):
        found.append(f"Slurm has not said for {_age(seen.polled, seen, now)} what runs")
    live = any(not job.ended for job in fleet.jobs.values())
    if (live or coverage.running) and now - (seen.started if seen.reported is None else seen.reported) > REPORTS_LATE_S:
        found.append(f"no node has reported for {_age(seen.reported, seen, now)}")
    elif coverage.running and not coverage.watched and now - seen.started > START_S:
        found.append(f"none of {coverage.running} running GPU jobs is truly watched")
    if not seen.stores:
        found.append("history can't be written: nothing new is said or done")
    return found


def passes_run(seen: Seen, now: float) -> bool:
    """Whether passes really run: what systemd's watchdog is told."""
    return now - (seen.started if seen.swept is None else seen.swept) <= SWEEP_LATE_S


def _age(at: float | None, seen: Seen, now: float) -> str:
    seconds = now - (seen.started if at is None else at)
    return f"{seconds:.0f} s" + (" (since its start)" if at is None else "")

