"""Metric named (docs/rules.md): it alone tells the run's progress; the other rules do not speak.

No source reads metrics yet, so the verdict is ``unknown`` for as long as one is named.
"""

from __future__ import annotations

from .conclusion import Conclusion
from .picture import StepView
from .shape import unknown_of

RULE = "metric_unchanged"


def judge(step: StepView) -> list[Conclusion]:
    name = step.policy.progress_metric
    return [unknown_of(step, RULE, f"the progress metric {name} is not read", step.workers, False)]
