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
from .readings import output_of_all, writes
from .shape import STALLED, for_step, unknown_of

RULE = "collective_stuck"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the gang, or none."""
    if gang is None or gang.traced or not gang.signs or not gang.waits:
        return []
    if any(writes(worker) for worker in step.workers):
        return []
    ages = [sign.age for sign in gang.signs if sign.age is not None]
    output = output_of_all(step)
    everyone = step.workers
    if not ages:
        return [unknown_of(step, RULE, "since when a rank is in its state is not known", everyone, True)]
    if output is None:
        return [unknown_of(step, RULE, "the output of a rank is not known", everyone, True)]
    if min(max(ages), output.age) < min(step.policy.after, COLLECTIVE_MAX_S) or not _held(gang):
        return []
    guilty = culprits(gang)
    said = f"{say.no_output(output.at, picture.now)}; {say.of_gang(step, gang, guilty)}"
    evidence: dict[str, object] = {
        "output_s": round(output.age, 1), "ranks": [worker.rank for worker in everyone],
        "after_s": step.policy.after, "sign_s": round(max(ages), 1)}
    return [for_step(step, gang, guilty, output, verdict=STALLED, rule=RULE, said=said, workers=everyone,
                     evidence=evidence)]


def _held(gang: Gang) -> bool:
    return gang.most([m for m in gang.quiet if (m.process.pulse_gone_s or 0.0) >= PULSE_HOLD_S])
