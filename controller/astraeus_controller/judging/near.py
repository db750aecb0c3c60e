"""Which jobs may soon be called stalled. Pure."""

from __future__ import annotations

from ..rules.limits import COLLECTIVE_MAX_S
from ..rules.metric import metric_of
from ..rules.picture import Picture, StepView, WorkerView
from ..rules.ras import of_step
from ..rules.readings import running
from ..rules.words import PROOF

BEFORE_S, AFTER_S = 45.0, 60.0
"""So long before its patience is over a job is near, which covers a healthy node's next report and a look; and so long
after it, for then something else (a busy GPU) speaks against a verdict."""
SHORT_S = 60.0
"""A patience so short is always near: most of it could pass between two reports."""


def near(picture: Picture) -> bool:
    """Whether a verdict on a step of the job may fall before its nodes would report again."""
    if picture.job.ended or picture.job.suspended:
        return False
    return any(_near(step) for step in picture.job.steps if step.watched and not step.ended)


def _near(step: StepView) -> bool:
    after = min(step.policy.after, COLLECTIVE_MAX_S) if len(step.workers) > 1 or step.said else step.policy.after
    if step.policy.after <= SHORT_S:
        return True
    ages = [age for worker in running(step) if (age := _progress(step, worker)) is not None]
    ages += [one.said.s for one in step.said if one.said.kind in PROOF]
    stuck = of_step(step, None) if step.ras else None
    ages += [stuck.s] if stuck else []
    # One worker is enough outside of a gang; in a gang it asks too often at worst.
    return any(limit - BEFORE_S <= age < limit + AFTER_S for age in ages for limit in {after, step.policy.after})


def _progress(step: StepView, worker: WorkerView) -> float | None:
    """Seconds since its youngest progress; None: nothing is known."""
    known = [worker.output_s, worker.quiet_s, *(gpu.idle_s for gpu in worker.gpus)]
    if step.policy.progress_metric:  # it alone tells
        metric = metric_of(worker, step.policy.progress_metric)
        known = [metric.unchanged_s] if metric else []
    return min((age for age in known if age is not None), default=None)
