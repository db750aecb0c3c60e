"""Figures out of rows, the goals that they have to meet, and the ratchet: none may fall below what was once reached."""
# ruff: noqa: E501 - sentences of a page

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scorecard.score import Row


@dataclass(frozen=True)
class Figure:
    """A figure. ``goal``: at least so much where ``up``, else at most; None: none of its own."""

    name: str
    up: bool
    goal: float | None
    unit: str
    words: str


FIGURES = (
    Figure("faults", True, 60, "", "cases in which something is wrong: expected `stalled`, `straggler` or `at_risk`"),
    Figure("lookalikes", True, 60, "", "cases that only look so: expected `nothing`"),
    Figure("wrong_actions", False, 0, "", "requeues that a run with `--restart-stalled` would have suffered wrongly: each "
           "`stalled` finding of a look-alike, before a fault, or of a straggler, whether the run asked for a restart or "
           "not; and of a training that is over, a finding that does not say so (its restart would not be declined)"),
    Figure("precision", True, 0.98, "", "right `stalled` findings of all `stalled` findings of all cases"),
    Figure("recall", True, 0.98, "", "right `stalled` findings of all that are expected"),
    Figure("right_rank", True, 0.97, "", "of found stalls whose guilty rank can be known (the verdict names a rank or a "
           "process): those that name it, as the finding was last known"),
    Figure("named_wrongly", False, 0, "", "found stalls of which nobody can be known (`rank` is `null`), and somebody is named"),
    Figure("suspect_p50_s", False, 20, "s", "from the fault to the first suspect, the median, of cases that can be told apart "
           "early: those whose verdict asks for a suspect within 60 s. A stall that comes before any suspect counts as one. "
           "What only time tells apart is left out: a GPU that idles, a main thread that works (it may compile), a "
           "metric, RAS, an allocation that runs nothing"),
    Figure("suspect_p90_s", False, 30, "s", "the same at nine of ten"),
    Figure("shown_p50_s", False, None, "s", "from the fault to the first finding of any kind, the median of all stalls"),
    Figure("shown_p90_s", False, None, "s", "the same at nine of ten"),
    Figure("straggler_recall", True, 0.98, "", "stragglers found of those expected"),
    Figure("straggler_p90_s", False, 120, "s", "from the later of fault and warm-up to the finding that names the straggler, "
           "at nine of ten"),
)
BY_NAME = {figure.name: figure for figure in FIGURES}


def figures(rows: Sequence[Row]) -> dict[str, float | None]:
    """By name; None where there is nothing to measure. Shares are rounded down to four digits."""
    faults = [row for row in rows if row.expected != "nothing"]
    counts = [row.counts for row in rows]
    stalls, found = sum(c.stalls for c in counts), sum(c.found for c in counts)
    named = [c.named for c in counts if c.named is not None]
    early = [math.inf if c.shown_after is None else c.shown_after for c in counts if c.early]
    shown = [math.inf if c.shown_after is None else c.shown_after for c in counts if c.stalls]
    warm = [math.inf if row.counts.warm_after is None else row.counts.warm_after for row in rows
            if row.expected == "straggler"]
    return {
        "faults": len(faults), "lookalikes": len(rows) - len(faults),
        "wrong_actions": sum(c.wrong_actions for c in counts),
        "precision": _share(found, sum(c.said for c in counts)), "recall": _share(found, stalls),
        "right_rank": _share(sum(named), len(named)), "named_wrongly": sum(c.named_wrongly for c in counts),
        "suspect_p50_s": _at(early, 0.5), "suspect_p90_s": _at(early, 0.9),
        "shown_p50_s": _at(shown, 0.5), "shown_p90_s": _at(shown, 0.9),
        "straggler_recall": _share(sum(value < math.inf for value in warm), len(warm)),
        "straggler_p90_s": _at(warm, 0.9)}


def document(rows: Sequence[Row]) -> dict[str, Any]:
    """What docs/scorecard.json holds: of all cases, and of recordings of real ranks apart."""
    return {**figures(rows), "recorded": figures([row for row in rows if row.recorded])}


def missed(found: dict[str, Any]) -> list[str]:
    """A sentence for each goal that is not met; what was recorded of real ranks has 30 cases at least, and no wrong
    action."""
    faults = [_short(figure, found.get(figure.name), figure.goal, "its goal is") for figure in FIGURES
              if figure.goal is not None]
    recorded = found["recorded"]
    cases = recorded["faults"] + recorded["lookalikes"]
    if cases < RECORDED_MIN:
        faults.append(f"recorded: {cases} cases of real ranks, at least {RECORDED_MIN} are wanted")
    for name in ("wrong_actions", "precision", "recall", "right_rank"):
        sentence = _short(BY_NAME[name], recorded.get(name), BY_NAME[name].goal, "its goal is")
        faults.append(f"recorded: {sentence}" if sentence else "")
    return [sentence for sentence in faults if sentence]


RECORDED_MIN = 30


def fallen(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """A sentence for each figure that is worse than the one that was kept."""
    faults = [_short(figure, found.get(figure.name), kept.get(figure.name), "it was") for figure in FIGURES]
    below = [_short(figure, found["recorded"].get(figure.name), kept.get("recorded", {}).get(figure.name), "it was")
             for figure in FIGURES]
    return [sentence for sentence in faults if sentence] + [f"recorded: {one}" for one in below if one]


def _short(figure: Figure, value: float | None, other: float | None, words: str) -> str:
    if other is None:
        return ""
    if value is None:
        return f"{figure.name} can't be told any more, {words} {other:g}{figure.unit and ' ' + figure.unit}"
    if value >= other if figure.up else value <= other:
        return ""
    unit = figure.unit and f" {figure.unit}"
    return f"{figure.name} is {value:g}{unit}, {words} {other:g}{unit}"


def _share(part: float, whole: float) -> float | None:
    return math.floor(part / whole * 10_000) / 10_000 if whole else None


def _at(values: Sequence[float], share: float) -> float | None:
    """The least value that so many of them do not exceed, to the second, for monitors look each 5 s; None where there are
    none, or it was never said."""
    if not values:
        return None
    value = sorted(values)[math.ceil(share * len(values)) - 1]
    return None if value == math.inf else float(round(value))
