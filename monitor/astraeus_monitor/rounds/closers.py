"""When a step's processes are looked at more closely, and where what was seen goes."""

from __future__ import annotations

import contextlib

import msgspec

from ..host.tree import Identity
from ..probes.closer import DECODER, OFTEN_S, SELDOM_S, SOON_S, EdgesSeen
from ..sources.process import ProcessWatch
from ..watch.job import JobWatch


def ask(job: JobWatch, now: float) -> list[Identity]:
    """Processes of the job that a closer look is due at: all of each step that has gone quiet."""
    asked: list[Identity] = []
    for step in job.steps.values():
        processes = [] if job.dropped or not step.running else _alive(step.processes())
        if not step.gone_quiet(now):
            for process in processes:
                process.closer.clear()
        elif now - step.closer_at >= (OFTEN_S if now - (step.quiet_since or now) < SOON_S else SELDOM_S):
            step.closer_at = now
            asked += [process.id for process in processes]
    return asked


def seen(job: JobWatch, asked: list[Identity], lines: list[bytes], why: str, now: float) -> None:
    """Take a closer look in. Of whom it told nothing, what was seen before stands until it is too old."""
    processes = {process.id: process for step in job.steps.values() for process in step.processes()}
    faults = dict.fromkeys(asked, why)
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            found = DECODER.decode(line)
            process = processes.get((found.pid, found.start))
            if process is None:
                continue
            if isinstance(found, EdgesSeen) and found.fault:
                faults[process.id] = f"its TCP connections: {found.fault}"
            else:
                process.closer.see(found, now)
    for one, fault in faults.items():
        if one in processes:
            processes[one].closer.fault = fault


def _alive(processes: list[ProcessWatch]) -> list[ProcessWatch]:
    return [process for process in processes if process.state not in "ZX"]
