"""Metric named (docs/rules.md): it alone tells the run's progress; no other rule leads to a verdict.

Nothing else is looked at: busy GPUs, output and NCCL's words neither shorten the patience nor stand in for it. In a
gang the ranks that never served the metric do not count (often rank 0 alone does); one that did and can't be read now
makes it unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import say
from .conclusion import Conclusion
from .gang import Gang, Sign
from .guilty import culprits
from .picture import MetricView, Picture, StepView, WorkerView
from .readings import Last, running
from .shape import STALLED, for_step, unknown_of

RULE = "metric_unchanged"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for a gang, one for each worker elsewhere."""
    name = step.policy.progress_metric or ""
    read = [(worker, metric_of(worker, name)) for worker in running(step)]
    if gang is not None:
        served = [(worker, metric) for worker, metric in read if metric is not None and metric.value is not None]
        return _judge(picture, step, gang, served or read)
    return [one for worker, metric in read for one in _judge(picture, step, None, [(worker, metric)])]


def metric_of(worker: WorkerView, name: str) -> MetricView | None:
    """The worker's metric of that name; None where it has not been asked for."""
    return next((metric for metric in worker.metrics if metric.name == name), None)


def ended(step: StepView, metric: MetricView) -> bool:
    """It has reached the last value that the run named."""
    end = step.policy.progress_end
    return end is not None and metric.value is not None and metric.value >= end


def _judge(picture: Picture, step: StepView, gang: Gang | None,
           read: Sequence[tuple[WorkerView, MetricView | None]]) -> list[Conclusion]:
    workers = [worker for worker, _ in read]
    known: list[tuple[Last, MetricView]] = []
    for worker, metric in read:
        if metric is None or metric.unchanged_s is None or metric.at is None or worker.state == "stale":
            return [unknown_of(step, RULE, _why(worker, step.policy.progress_metric), workers, gang is not None)]
        known.append((Last(metric.unchanged_s, metric.at), metric))
    if not known:
        return []
    last, metric = min(known, key=lambda one: one[0].age)
    if last.age < step.policy.after:
        return []
    said = f"metric {metric.name} unchanged at {metric.value:.10g} since {say.clock(last.at, picture.now)}"
    evidence: dict[str, object] = {
        "metric": metric.name, "value": metric.value, "metric_s": round(last.age, 1),
        "ranks": [worker.rank for worker in (step.workers if gang else workers)], "after_s": step.policy.after}
    if ended(step, metric):
        said += f", which is its last value ({step.policy.progress_end:.10g})"
        evidence["ended"] = metric.value
    guilty = culprits(gang) if gang else ()
    if gang is not None:
        said += f"; {say.named(guilty)}" + _rest(gang, guilty)
        return [for_step(step, gang, guilty, last, verdict=STALLED, rule=RULE, said=said, workers=step.workers,
                         evidence=evidence)]
    return [_single(step, workers[0], last, said, evidence)]


def _rest(gang: Gang, guilty: Sequence[Sign]) -> str:
    rest = guilty[0].rest if guilty else ""
    return f"; {rest or say.waiting(gang)}" if rest or (gang.signs and gang.waits) else ""


def _single(step: StepView, worker: WorkerView, last: Last, said: str, evidence: dict[str, object]) -> Conclusion:
    only = worker.processes[0].pid if len(worker.processes) == 1 else worker.pid
    return Conclusion(
        verdict=STALLED, rule=RULE, step=step.step, worker=worker.name, rank=worker.rank, node=worker.node, pid=only,
        since_s=last.age, since=last.at, said=said, workers=(worker.name,), evidence=evidence)


def _why(worker: WorkerView, name: str | None) -> str:
    if worker.state == "stale":
        return f"{worker.node} has not reported"
    why = next((reason for source, reason in worker.unknown if source == "metric"), "not read yet")
    return f"the progress metric {name} of {worker.name} is not known: {why}"
