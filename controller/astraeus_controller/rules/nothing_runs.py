"""An allocation that runs nothing (docs/rules.md, "nothing_runs"): GPUs are held and no process is on them.

A step that crashed or never launched, a script that sleeps after a failure, ``sleep infinity``. Two things tell it:
the driver names no process on any GPU, or the batch script's tree holds nothing but shells that wait and sleepers,
while no step runs. Who stages data before the first step has a program there that works.
"""

from __future__ import annotations

import msgspec
from astraeus_protocol.durations import say_seconds

from . import say
from .conclusion import Conclusion
from .limits import NOTHING_RUNS_S
from .picture import JobView, Picture, StepView, WorkerView
from .readings import output_of, running, writes
from .shape import STALLED, rests_on

RULE = "nothing_runs"
SUSPECT = "suspect"


class Nothing(msgspec.Struct, frozen=True):
    """For how long nothing has run, and in words what there is instead."""

    s: float
    words: str
    tree: bool
    """The batch script's tree tells it; else the GPUs do."""


def judge(picture: Picture, step: StepView) -> list[Conclusion]:
    """Suspect once nothing has run for five minutes, stalled once the run's patience is over without any output."""
    nothing = found(picture.job, step)
    if nothing is None:
        return []
    outputs = [last for worker in running(step) if (last := output_of(worker)) is not None]
    output = min(outputs, key=lambda last: last.age, default=None)
    # What only sleeps prints nothing that could be missed.
    age = nothing.s if output is None else min(nothing.s, output.age)
    verdict = STALLED if age >= step.policy.after else SUSPECT
    workers = running(step)
    printed = f"{say.no_output(output, picture.now)}; " if output else ""
    said = f"{printed}nothing runs: {nothing.words} for {say_seconds(nothing.s)}"
    return [Conclusion(
        verdict=verdict, rule=RULE, step=step.step, worker=step.name, rank=None,
        node=picture.job.nodelist or step.nodelist, pid=None, since_s=age, since=picture.now - age, said=said,
        workers=tuple(worker.name for worker in workers), evidence={
            "nothing_s": round(nothing.s, 1), "by_tree": nothing.tree,
            "output_s": round(output.age, 1) if output else None, "after_s": step.policy.after,
            "ranks": [worker.rank for worker in workers], "tasks": step.tasks, "heard_of": len(step.workers),
            "stale": [], "traced": [], "in_d": [], "waits_on": []} | rests_on(None, ()))]


def found(job: JobView, step: StepView) -> Nothing | None:
    """Nothing of the job runs on its GPUs, for five minutes or the run's patience at least; None: something does, or it
    is not known."""
    if job.gpus == 0 or job.batch is not True or job.silent_nodes or not job.all_heard or step.step == "interactive":
        return None
    need, bare = min(NOTHING_RUNS_S, step.policy.after), job.bare_s
    # A GPU that somebody is on is not held for nothing, whatever the tree looks like.
    tree = step.step == "batch" and bare != 0
    empty = bare is not None and bare >= need
    if not (tree or empty):
        return None
    workers = running(step)
    if not workers or any(_active(worker, need) for worker in workers):
        return None
    gpus = f"{job.gpus} GPU{'' if job.gpus == 1 else 's'} held"
    rests = [worker.rests_s for worker in workers if worker.rests_s is not None]
    if tree and len(rests) == len(workers) and min(rests) >= need:
        return Nothing(min(rests), f"{gpus}, no step, and the batch script only waits", tree=True)
    if empty and bare is not None and _quiet(workers, need):
        return Nothing(bare, f"{gpus}, and no process on them", tree=False)
    return None


def _active(worker: WorkerView, need: float) -> bool:
    """A sign that its GPUs are used after all, or that files grow; who is silent is not known."""
    busy = any(gpu.idle_s is not None and gpu.idle_s < need and gpu.ever_busy for gpu in worker.gpus)
    return worker.state != "running" or busy or bool(writes(worker)) or any(process.traced for process in
                                                                            worker.processes)


def _quiet(workers: tuple[WorkerView, ...], need: float) -> bool:
    """Nobody prints or uses the CPU: data are staged, a program is compiled, before any GPU is opened."""
    for worker in workers:
        output = output_of(worker)
        if output is None or output.age < need:
            return False
        if worker.cpu_idle_s is None or worker.cpu_idle_s < need:
            return False
    return True

