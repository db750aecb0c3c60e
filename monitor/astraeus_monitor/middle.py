"""The median, without ``statistics``: that one brings decimal and random along, 0.2 MiB in each of our processes."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """Of at least one number; the mean of the middle two of an even count. Raises ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no median of nothing")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
