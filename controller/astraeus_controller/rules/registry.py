"""All rules, in the order in which they speak."""

from __future__ import annotations

from . import (
    collective_ras,
    collective_stuck,
    finished,
    gpus_idle,
    metric,
    node_silent,
    silent,
    spin_power,
    suspect,
    words,
)
from .conclusion import Conclusion
from .gang import gang_of
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
            found += finished.tell(picture, step, words.tell(picture, step, collective_ras.tell(
                picture, step, _step(picture, step))))
    return found


def _step(picture: Picture, step: StepView) -> list[Conclusion]:
    if step.policy.progress_metric:
        return metric.judge(picture, step, gang_of(step))
    gang = gang_of(step)
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
    return found + early
