"""Whether anything of a job is watched, of all its steps."""

from __future__ import annotations

import msgspec

from ..rules.picture import Picture


class Watch(msgspec.Struct, frozen=True):
    """Whether anything of a job is watched, and the sentence that says why (or why not)."""

    watched: bool
    reason: str


def watch(picture: Picture) -> Watch:
    """What holds for the job: its watched step's word, else that of its first."""
    steps = [step for step in picture.job.steps if not step.ended] or list(picture.job.steps)
    best = next((step for step in steps if step.watched), steps[0] if steps else None)
    if best is None:
        return Watch(False, "not watched yet: no step of it has been reported")
    return Watch(best.watched, best.watch_reason)
