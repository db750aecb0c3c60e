"""Readings of a step that several rules look at: its output, its writing, what it takes for progress."""

from __future__ import annotations

import msgspec

from .limits import WRITING_MAX_S
from .picture import StepView, WorkerView


class Last(msgspec.Struct, frozen=True):
    """When something last happened: seconds ago (suspended time out), and Unix time."""

    age: float
    at: float


def output_of(worker: WorkerView) -> Last | None:
    """The worker's last output; None: not known."""
    if worker.output_s is None or worker.output_at is None:
        return None
    return Last(worker.output_s, worker.output_at)


def output_of_all(step: StepView) -> Last | None:
    """The youngest output of any worker; None as soon as one worker that may still print is not known."""
    found: list[Last] = []
    for worker in step.workers:
        last = output_of(worker)
        if last is not None:
            found.append(last)
        elif worker.state in ("running", "stale"):
            return None
    return min(found, key=lambda last: last.age, default=None)


def writes(worker: WorkerView) -> bool | None:
    """Its process tree writes files at each look, as when it saves a checkpoint; None: not known."""
    if worker.writing_s is None:
        return None
    return 0 < worker.writing_s <= WRITING_MAX_S


def gone_quiet(step: StepView) -> bool:
    """More than half of the step's processes have lost their pulse."""
    gone = [(process.pulse_gone_s or 0.0) > 0 for worker in step.workers for process in worker.processes]
    return 2 * sum(gone) > len(gone)


def running(step: StepView) -> tuple[WorkerView, ...]:
    return tuple(worker for worker in step.workers if worker.state in ("running", "stale"))
