"""Readings of a step that several rules look at: its output, its writing, what it takes for progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from .limits import WRITING_MAX_S
from .picture import StepView, WorkerView

T = TypeVar("T")

NOBODY = ("null", "nothing")
"""Where output goes that nobody ever sees."""


class Last(msgspec.Struct, frozen=True, gc=False):
    """When something last happened: seconds ago (suspended time out), and Unix time."""

    age: float
    at: float
    unseen: str = ""
    """Output that can't be seen, and where it goes: this is when anything at all was last written, and it is silent
    for at least so long."""


def output_of(worker: WorkerView) -> Last | None:
    """The worker's last output, or since when it can have printed nothing; None: not known."""
    if worker.output_s is not None and worker.output_at is not None:
        return Last(worker.output_s, worker.output_at)
    if worker.quiet_s is not None and worker.quiet_at is not None:
        return Last(worker.quiet_s, worker.quiet_at, worker.output_to or "unseen")
    return None


def once(tell: Callable[[StepView], T]) -> Callable[[StepView], T]:
    """Remembers its answer for the last step that it was asked of: a round asks the same of each of its thousand
    workers up to six times, and a step of a picture is frozen."""
    last: list[tuple[StepView, T]] = []

    def told(step: StepView) -> T:
        if not last or last[0][0] is not step:
            last[:] = [(step, tell(step))]
        return last[0][1]

    told.__doc__ = tell.__doc__
    return told


@once
def output_of_all(step: StepView) -> Last | None:
    """The youngest output of any worker; None as soon as one worker that may still print is not known. Who prints to
    nobody (``> /dev/null`` on all ranks but one) is not asked where another's output is seen."""
    found: list[Last] = []
    seen = any(worker.output_s is not None for worker in step.workers)
    for worker in step.workers:
        last = output_of(worker)
        if worker.output_to in NOBODY and worker.output_s is None and (seen or last is None):
            if not seen and worker.state in ("running", "stale"):
                return None
        elif last is not None:
            found.append(last)
        elif worker.state in ("running", "stale"):
            return None
    return min(found, key=lambda last: last.age, default=None)


def unseen(worker: WorkerView, output: Last | None) -> str:
    """Why nothing can be said of a worker whose silence is not known."""
    if output is None:
        return f"the output of {worker.name} is not known"
    return f"the output of {worker.name} can't be seen, and it writes something"


def writes(worker: WorkerView) -> bool | None:
    """Its process tree writes files at each look, as when it saves a checkpoint; None: not known."""
    if worker.writing_s is None:
        return None
    return 0 < worker.writing_s <= WRITING_MAX_S


@once
def anybody_writes(step: StepView) -> bool:
    """One of its workers writes files at each look."""
    return any(writes(worker) for worker in step.workers)


@once
def gone_quiet(step: StepView) -> bool:
    """More than half of the step's processes have lost their pulse."""
    gone = [process.pulse_gone_s for worker in step.workers for process in worker.processes]
    return 2 * sum(1 for age in gone if age) > len(gone)


@once
def running(step: StepView) -> tuple[WorkerView, ...]:
    return tuple(worker for worker in step.workers if worker.state in ("running", "stale"))
