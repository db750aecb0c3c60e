"""Finished but not exited (docs/rules.md): what a stall, or a suspect, of a step says whose training is over."""

from __future__ import annotations

from msgspec import structs

from . import say
from .conclusion import Conclusion
from .picture import Picture, StepView

KINDS = ("stalled", "suspect")
FIELD = "finished"
"""Of a finding's details: the last words."""


def tell(picture: Picture, step: StepView, concluded: list[Conclusion]) -> list[Conclusion]:
    """The conclusions, with the step's last words where they say that its training is over."""
    if step.finished is None:
        return concluded
    said = say.last_words(step.finished.line, picture.now - step.finished.s, picture.now)
    return [structs.replace(c, said=f"{c.said}; {said}", evidence=c.evidence | {FIELD: step.finished.line})
            if c.verdict in KINDS else c for c in concluded]
