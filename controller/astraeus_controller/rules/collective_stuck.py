"""A collective is stuck (docs/rules.md): a member is stopped, dead, in D or waits for storage, and the others
wait for it.

GPUs and CPU are not looked at: a hung collective spins them. The sign began when the member's state began,
so the rule needs no memory.
"""

from __future__ import annotations

from . import say
from .conclusion import Conclusion
from .gang import Gang
from .guilty import culprits
from .limits import COLLECTIVE_MAX_S, PULSE_HOLD_S
from .picture import Picture, StepView
from .readings import Last, anybody_writes, output_of_all, running
from .shape import STALLED, for_step, unknown_of

RULE = "collective_stuck"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the gang, or none."""
    if gang is None or gang.traced or not gang.signs or not gang.waits:
        return []
    if anybody_writes(step):
        return []
    ages = [sign.age for sign in gang.signs if sign.age is not None]
    output = output_of_all(step)
    everyone = step.workers
    if not ages:
        return [unknown_of(step, RULE, "since when a rank is in its state is not known", everyone, True)]
    need = min(step.policy.after, COLLECTIVE_MAX_S)
    if output is None and not _blind(step):
        return [unknown_of(step, RULE, "the output of a rank is not known", everyone, True)]
    hidden = output is None or output.unseen
    # Of output that can't be seen the pulse tells: who has had none for so long printed nothing either.
    silent = max(output.age if output else 0.0, gang.waits_s if hidden else 0.0)
    if min(max(ages), silent) < need or not _held(gang):
        return []
    guilty = culprits(gang)
    progress = output
    if output is None or hidden:
        age = min(silent, max(*ages, gang.waits_s))
        progress = Last(age, picture.now - age, output.unseen if output else "unseen")
    assert progress is not None
    first = say.no_output(output, picture.now) if output and output.age >= need else say.where(progress)
    said = f"{first}; {say.of_gang(step, gang, guilty)}"
    evidence: dict[str, object] = {
        "output_s": round(progress.age, 1), "output_to": progress.unseen, "ranks": [worker.rank for worker in everyone],
        "after_s": step.policy.after, "sign_s": round(max(ages), 1)}
    return [for_step(step, gang, guilty, progress, verdict=STALLED, rule=RULE, said=said, workers=everyone,
                     evidence=evidence)]


def _blind(step: StepView) -> bool:
    """What is not known of the output can't be known. Not so while a node that may hold it is silent."""
    unknown = [worker for worker in running(step) if worker.output_s is None]
    return all(w.state == "running" and w.output_to not in ("", "pipe", "socket") for w in unknown)


def _held(gang: Gang) -> bool:
    return gang.waits_s >= PULSE_HOLD_S
