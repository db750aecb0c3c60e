"""All rules, in the order in which they speak."""

from __future__ import annotations

from . import (
    cause,
    collective_ras,
    collective_stuck,
    finished,
    gpus_idle,
    metric,
    node_silent,
    nothing_runs,
    silent,
    spin_power,
    suspect,
    words,
)
from .conclusion import Conclusion
from .gang import Gang, gang_of
from .picture import Picture, StepView

STALL_RULES = (collective_stuck.judge, words.judge, collective_ras.judge, gpus_idle.judge, silent.judge)
WITHOUT_TIES = (words.judge, collective_ras.judge)


def judge(picture: Picture) -> list[Conclusion]:
    """Everything that is to be said of a job now. Pure: the same picture gives the same conclusions.

    Nothing is said of a job that is suspended or over, or that Slurm holds in any state but RUNNING; "" is a
    state that has not been asked for yet.
    """
    job = picture.job
    if job.ended or job.suspended or job.state not in ("", "RUNNING"):
        return []
    found = node_silent.judge(picture)
    for step in job.steps:
        if step.watched and not step.ended:
            gang = gang_of(step)
            concluded = words.tell(picture, step, collective_ras.tell(picture, step, _step(picture, step, gang)))
            found += finished.tell(picture, step, cause.tell(picture, step, gang, concluded))
    return found


def _step(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    if step.policy.progress_metric:
        return metric.judge(picture, step, gang)
    nothing = nothing_runs.judge(picture, step)
    if gang is None and any(one.verdict == "stalled" for one in nothing):
        return nothing
    found: list[Conclusion] = []
    for rule in STALL_RULES:
        said = rule(picture, step, gang)
        found += said
        if (gang is not None or rule in WITHOUT_TIES) and any(one.verdict == "stalled" for one in said):
            return said
    early = suspect.judge(picture, step, gang)
    for shown in (words.suspect, collective_ras.suspect, spin_power.judge):
        if not any(one.verdict == suspect.VERDICT for one in early):
            early = early + shown(picture, step, gang)
    # Of a gang, what names a rank comes first: one that does not use its GPUs can hang as any other.
    told = any(one.verdict == suspect.VERDICT for one in early) or any(one.verdict == "stalled" for one in found)
    return found + early + ([] if told else nothing)
