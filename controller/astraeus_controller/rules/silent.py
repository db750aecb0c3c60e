"""No GPUs, asked (docs/rules.md, "silent"): no output for the run's patience, and no other progress.

What takes the GPU's place: the CPU for a worker on its own; in a gang never the CPU, for the survivors of a
lost peer spin at 100 %, but the pulse of the majority where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from .conclusion import Conclusion
from .gang import Gang
from .picture import Picture, StepView, WorkerView
from .readings import Last, anybody_writes, output_of, output_of_all, running, unseen, writes
from .shape import STALLED, UNKNOWN, WELL, Judged, conclude

RULE = "silent"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """Stalled workers without GPUs, where the run asked for the watch."""
    if not step.policy.asked:
        return []
    workers = [w for w in running(step) if not w.gpus and not any(s == "gpu" for s, _ in w.unknown)]
    if not workers or (gang is not None and (gang.beats or any(w.gpus for w in running(step)))):
        # A gang that has GPUs anywhere is judged by them: a member without is only part of the same work.
        return []
    whole = output_of_all(step) if gang else None
    saving = gang is not None and anybody_writes(step)
    judged = [_worker(w, step.policy.after, whole if gang else output_of(w), saving, gang) for w in workers]

    def one(worker: WorkerView) -> str:
        return "its processes use no CPU"

    def many(stalled: Sequence[WorkerView], of: int) -> str:
        if gang is None:
            return f"{len(stalled)} of {of} ranks use no CPU"
        if gang.waiting:
            return f"{len(gang.waiting)} of {len(gang.members)} ranks wait"
        return f"{len(stalled)} of {of} ranks are silent"

    return conclude(step, gang, judged, picture.now, rule=RULE, one=one, many=many)


def _worker(worker: WorkerView, after: float, output: Last | None, saving: bool, gang: Gang | None) -> Judged:
    writing = writes(worker)
    cpu = worker.cpu_idle_s if gang is None else None
    printed = output is not None and output.age < after and not output.unseen
    if printed or saving or writing or (cpu is not None and cpu < after):
        return Judged(worker, WELL)
    if worker.state == "stale":
        return Judged(worker, UNKNOWN, reason=f"{worker.node} has not reported")
    if output is None or output.age < after:
        return Judged(worker, UNKNOWN, reason=unseen(worker, output))
    if writing is None:
        return Judged(worker, UNKNOWN, reason=f"whether {worker.name} writes files is not known")
    if gang is None and cpu is None:
        return Judged(worker, UNKNOWN, reason=f"the CPU time of {worker.name} is not known")
    progress = output
    if cpu is not None and cpu < output.age and worker.cpu_at is not None:
        progress = Last(cpu, worker.cpu_at)
    return Judged(worker, STALLED, progress, output)
