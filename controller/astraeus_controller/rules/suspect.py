"""Suspect (docs/rules.md): shown early, never acted on, never an alert.

A member is stopped, dead or in D and the others wait, at the first look; or the pulse of more than half of
the gang is gone while its output is quiet.
"""

from __future__ import annotations

from . import say
from .conclusion import Conclusion
from .gang import Gang
from .guilty import culprits
from .limits import SUSPECT_GAPS, SUSPECT_QUIET_S
from .picture import Picture, StepView
from .places import works
from .readings import Last, anybody_writes, output_of_all
from .shape import for_step, unknown_of

RULE = "suspect"
VERDICT = "suspect"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the gang, or none. ``unknown`` while a silent node keeps it from being judged."""
    if gang is None or gang.traced or anybody_writes(step):
        return []
    output = output_of_all(step)
    if not gang.waits:
        stale = any(worker.state == "stale" for worker in step.workers)
        return [unknown_of(step, RULE, "a node has not reported", step.workers, True)] if stale else []
    guilty = culprits(gang)
    if works(guilty):  # the others wait for one that compiles or tokenises: only time tells that from a loop
        return []
    # All ranks that read the next data set from a slow store are no sign; one that does while the others wait is. Nor
    # is a place where one was found: it says who, and not that the others wait for long.
    if (not guilty or guilty[0].words) and all(sign.kind == "D" for sign in gang.signs):
        if output is None or (output.unseen and output.age < quiet_s(step)):
            return [unknown_of(step, RULE, "the output of a rank is not known", step.workers, True)]
        if output.age < quiet_s(step):
            return []
    if output is not None and output.unseen and output.age < quiet_s(step):
        output = None  # it writes something, which tells nothing of its output
    if output is None:
        youngest = max((s.age for s in gang.signs if s.age is not None), default=0.0)
        output, said = Last(youngest, picture.now - youngest), ""
    else:
        said = f"{say.no_output(output, picture.now)}; "
    said += say.of_gang(step, gang, guilty) if gang.signs or guilty else "; ".join(
        filter(None, (f"{len(gang.waiting)} of {len(gang.members)} ranks wait; {say.NOBODY}", say.killed(step))))
    evidence: dict[str, object] = {"output_s": round(output.age, 1), "after_s": step.policy.after}
    return [for_step(step, gang, guilty, output, verdict=VERDICT, rule=RULE, said=said, workers=step.workers,
                     evidence=evidence)]


def quiet_s(step: StepView) -> float:
    """From when on the step's output is quiet: three of its usual gaps, 30 s at least."""
    return max(SUSPECT_QUIET_S, SUSPECT_GAPS * (step.output_gap_s or 0.0))


