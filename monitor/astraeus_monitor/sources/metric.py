"""Source ``metric``: when a metric that a run names last changed. Pure: what endpoints answered in.

Unchanged means equal to the last finite value of the same process. NaN and infinity are unknown. A value that fell, and
another process behind the port, are a new base: the age begins anew, for a counter that starts again at 0 is a restart
and no standstill.
"""

from __future__ import annotations

import math
from typing import Any

from astraeus_protocol import report

from .exposition import Series

RANK_LABELS = ("rank", "global_rank", "worker_rank", "process_rank")
Key = tuple[tuple[str, str], ...]


def of_rank(found: list[Series], rank: int) -> list[Series]:
    """The samples that speak of this rank: those with its rank label, else those that have none."""
    def label(one: Series) -> str | None:
        return next((one.labels[name] for name in RANK_LABELS if name in one.labels), None)

    if any(label(one) is not None for one in found):
        return [one for one in found if label(one) in (None, str(rank)) and not (
            label(one) is None and any(label(other) == str(rank) for other in found))]
    return found


class MetricClock:
    """One metric of one worker. ``changed`` is CLOCK_BOOTTIME seconds."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.changed = now
        self.seen_at = now
        self.values: dict[Key, float] = {}
        """The last finite value of each of its series."""
        self.holder: list[float] = []
        """PID, start, and start time of the process as its own metric says it."""
        self.why = "not read yet"
        """Why the last look told nothing; "" when it did."""

    def see(self, found: list[Series], rank: int, holder: tuple[int, int], born: float | None, now: float) -> None:
        """Take an answer in."""
        mine = of_rank(found, rank)
        finite = {_key(one): one.value for one in mine if math.isfinite(one.value)}
        if not finite:
            self.why = self.name + (" is NaN or infinite" if mine else f" has no value for rank {rank}" if found
                                    else " is not among the metrics")
            return
        whose = [*holder, born or 0.0]
        if whose != self.holder:
            self.holder, self.values, self.changed = whose, finite, now
        elif any(self.values.get(key) != value for key, value in finite.items()):
            self.changed = now
            self.values.update(finite)
        self.why, self.seen_at = "", now

    def miss(self, why: str) -> None:
        """The look told nothing."""
        self.why = why

    def value(self) -> float | None:
        """The last value: of its only series, else the sum of all."""
        return sum(self.values.values()) if self.values else None

    def record(self, now: float) -> report.Metric:
        """For the report."""
        return report.Metric(name=self.name, value=self.value(),
                             unchanged_s=None if self.why else round(now - self.changed, 2),
                             looked_s=0 if self.why else round(now - self.seen_at, 2))

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"name": self.name, "changed": self.changed, "holder": self.holder, "why": self.why,
                "values": [[list(map(list, key)), value] for key, value in self.values.items()]}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> MetricClock:
        """From the clock file."""
        clock = cls(str(saved["name"]), float(saved["changed"]))
        clock.holder, clock.why = [float(part) for part in saved["holder"]], str(saved["why"])
        clock.values = {tuple((str(name), str(text)) for name, text in key): float(value)
                        for key, value in saved["values"]}
        return clock


def _key(one: Series) -> Key:
    return tuple(sorted(one.labels.items()))
