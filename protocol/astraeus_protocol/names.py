"""How runs and workers are called, from Slurm's own ids."""

from __future__ import annotations


def run_name(job: int, *, array_job: int = 0, array_task: int | None = None,
             leader: int = 0, component: int | None = None) -> str:
    """``123``, ``123_4`` for an array's element, ``123+1`` for a component of a heterogeneous job."""
    if array_job and array_task is not None:
        return f"{array_job}_{array_task}"
    if leader and component is not None:
        return f"{leader}+{component}"
    return str(job)


def worker_name(run: str, step: str, rank: int, *, several_steps: bool) -> str:
    """``123-5``; ``123.1-5`` where the job has several steps."""
    return worker_of(f"{run}.{step}" if several_steps else run, rank)


def worker_of(step_name: str, rank: int) -> str:
    """``123-5`` of the step ``123``; ``123.1-5`` of ``123.1``, as a step is called where the job has several."""
    return f"{step_name}-{rank}"
