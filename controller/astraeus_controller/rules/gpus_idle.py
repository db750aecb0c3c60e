"""GPUs (docs/rules.md, "gpus_idle"): no output and all GPUs of the worker idle for the run's patience."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from . import say
from .conclusion import Conclusion
from .gang import Gang
from .limits import REPORTS_APART_S
from .picture import GpuView, Picture, StepView, WorkerView
from .readings import Last, anybody_writes, output_of, output_of_all, running, unseen, writes
from .shape import STALLED, UNKNOWN, WELL, Judged, conclude

RULE = "gpus_idle"
NEVER = "never_began"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """Stalled workers with GPUs. One unknown GPU means no verdict for its worker."""
    workers = [w for w in running(step) if w.gpus or _gpus_unknown(w)]
    if not workers:
        return []
    whole = output_of_all(step) if gang else None
    saving = gang is not None and anybody_writes(step)
    judged = [_worker(w, step.policy.after, whole if gang else output_of(w), saving) for w in workers]

    if gang is not None and any(one.verdict == STALLED for one in judged):
        # Ages count up to each node's last look: the others of the gang are a report behind the first.
        behind = max(step.policy.after - REPORTS_APART_S, step.policy.after / 2)
        judged = [_worker(one.worker, behind, whole, saving) if one.verdict == WELL else one for one in judged]

    def one(worker: WorkerView) -> str:
        return say.its_gpus(worker.gpus, picture.now)

    def many(stalled: Sequence[WorkerView], of: int) -> str:
        words = say.idle([gpu for w in stalled for gpu in w.gpus], picture.now)
        return f"the GPUs of {len(stalled)} of {of} ranks {words}"

    found = conclude(step, gang, judged, picture.now, rule=RULE, one=one, many=many)
    by_name = {w.name: w for w in workers}
    return [structs.replace(c, rule=NEVER)
            if c.verdict == STALLED and all(_never(by_name[name].gpus) for name in c.workers) else c
            for c in found]


def _worker(worker: WorkerView, after: float, output: Last | None, saving: bool) -> Judged:
    """What is known to be well comes first: an unknown reading beside it changes nothing."""
    idle = [gpu.idle_s for gpu in worker.gpus]
    writing = writes(worker)
    if (output is not None and output.age < after and not output.unseen) or saving or writing or any(
            age is not None and age < after for age in idle):
        return Judged(worker, WELL)
    if worker.state == "stale":
        return Judged(worker, UNKNOWN, reason=f"{worker.node} has not reported")
    if output is None or output.age < after:
        return Judged(worker, UNKNOWN, reason=unseen(worker, output))
    if not idle or any(age is None for age in idle):
        return Judged(worker, UNKNOWN, reason=f"a GPU of {worker.name} can't be read")
    if writing is None:
        return Judged(worker, UNKNOWN, reason=f"whether {worker.name} writes files is not known")
    youngest = min(worker.gpus, key=lambda gpu: gpu.idle_s or 0.0)
    progress = output
    if (youngest.ever_busy and youngest.busy_at is not None and youngest.idle_s is not None
            and youngest.idle_s < output.age):
        progress = Last(youngest.idle_s, youngest.busy_at)
    return Judged(worker, STALLED, progress, output)


def _never(gpus: Sequence[GpuView]) -> bool:
    return not any(gpu.ever_busy for gpu in gpus)


def _gpus_unknown(worker: WorkerView) -> bool:
    return not worker.gpus and any(source == "gpu" for source, _ in worker.unknown)
