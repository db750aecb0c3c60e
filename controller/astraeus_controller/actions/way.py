"""How a job is stopped: by Slurm's own TERM with the requeue, or by a signal of ours with its batch script frozen.

Pure. A signal that lets the batch script end makes the job FAILED or COMPLETED before it can be requeued, so a
signal of our own needs a batch script that can't run on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from astraeus_protocol.durations import say_seconds

from ..rules.picture import Picture, Policy, StepView, WorkerView

BATCH = ("batch", "interactive")
EXTERN = "extern"
OVER = ("exited", "gone")
GONE = "ZX"
"""A child of a frozen process stays a zombie."""


HOLD = "hold"


class Stop(msgspec.Struct, frozen=True):
    """``way``: "" (Slurm's TERM and KillWait), ``hold`` (the same with the batch script frozen before), ``steps``,
    ``full`` (a signal of ours); ``note``: why it is not as asked, or ""."""

    signal: str
    grace_s: float
    way: str = ""
    note: str = ""

    @property
    def signals(self) -> bool:
        """A signal of ours goes to the ranks, and its grace comes before KillWait."""
        return self.way in SIGNALS


SIGNALS = ("steps", "full")


def choose(picture: Picture, step: str, policy: Policy, kill_wait_s: float, *, term_reaches_all: bool = True) -> Stop:
    """The stop of a job whose step ``step`` is stalled; ``kill_wait_s``: Slurm's KillWait.

    Ranks may leave as soon as they see the stop file; the batch script is frozen before it is written wherever that
    can be, or it would end the job before its requeue (a job that exited 0 on the stop file was COMPLETED, and what
    depended on it had begun).

    ``term_reaches_all``: Slurm's TERM goes to every process of the batch step. With proctrack/cgroup only the batch
    process gets it; a shell then ends at once, and with it the cgroup: what runs below it is killed without a word.
    """
    plain = Stop("TERM", kill_wait_s)
    grace = kill_wait_s if policy.stop_grace is None else float(policy.stop_grace)
    if policy.stop_signal == "TERM" and grace <= kill_wait_s:
        if term_reaches_all or step not in BATCH:
            return msgspec.structs.replace(plain, way=HOLD) if _can_freeze(picture, step) else plain
        grace = kill_wait_s
    if step not in BATCH and _can_freeze(picture, step):
        return Stop(policy.stop_signal, grace, "steps")
    if _can_freeze(picture, "batch"):
        return Stop(policy.stop_signal, grace, "full")
    if (policy.stop_signal, grace) == ("TERM", kill_wait_s):
        return plain
    return msgspec.structs.replace(plain, note=(
        f"its batch process is the training itself, which can't be frozen: it gets TERM and KillWait's "
        f"{say_seconds(kill_wait_s)}, not {policy.stop_signal}@{say_seconds(grace)}"))


def _can_freeze(picture: Picture, step: str) -> bool:
    """The batch script only waits for what is stalled."""
    if step not in BATCH:
        return any(_works(one) for one in picture.job.steps)
    batch = next((one for one in picture.job.steps if one.step in BATCH and not one.ended), None)
    return batch is not None and bool(batch.workers) and all(_only_waits(worker) for worker in batch.workers)


def all_gone(pictures: Iterable[Picture | None], restarts: int, *, full: bool) -> bool:
    """ranks_gone of a job, or of every component of a heterogeneous one, the stalled one first. Of the others one
    in which no task ever ran is gone as well."""
    first, *others = pictures
    return ranks_gone(first, restarts, full=full) and all(
        ranks_gone(one, restarts, full=False) or _idle(one, restarts) for one in others)


def _idle(picture: Picture | None, restarts: int) -> bool:
    return (picture is not None and picture.job.restarts == restarts and picture.job.settled
            and not picture.job.silent_nodes and all(step.step in (*BATCH, EXTERN) for step in picture.job.steps))


def ranks_gone(picture: Picture | None, restarts: int, *, full: bool) -> bool:
    """Whether every worker of this attempt has ended, as far as all its nodes have told; unknown is no."""
    if picture is None or picture.job.restarts != restarts or not picture.job.settled or picture.job.silent_nodes:
        return False
    steps = [step for step in picture.job.steps if step.step != EXTERN]
    batch = [step for step in steps if step.step in BATCH]
    others = [step for step in steps if step.step not in BATCH]
    if not (batch if full else others):
        return False
    if full and not all(_children_gone(worker) for step in batch for worker in step.workers):
        return False
    return all(step.ended or (step.complete and all(worker.state in OVER for worker in step.workers))
               for step in others)


def _works(step: StepView) -> bool:
    return step.step not in BATCH and step.step != EXTERN and not step.ended


def _only_waits(worker: WorkerView) -> bool:
    """The task's own process is no worker: a shell or a launcher."""
    return bool(worker.processes) and all(process.pid != worker.pid for process in worker.processes)


def _children_gone(worker: WorkerView) -> bool:
    """The task's own process is frozen and stays."""
    return worker.state in OVER or all(process.state in GONE for process in worker.processes
                                       if process.pid != worker.pid)
