"""Times: how old a reading is now, and which time a job was suspended. All in CLOCK_BOOTTIME seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]
"""(start, end); an end of ``inf`` is still going on."""

FOREVER = float("inf")
LATE_S = 3.0
"""A report may come this much later than asked for before its readings stop to age."""
SILENT_REPORTS = 3
SILENT_MIN_S = 15.0
"""A node is silent after three reports missed, taken as 15 s apart at least."""
STOP_SLACK_S = 6.0
"""Monitors see a job stop and go on by looks 5 s apart, each at its own beat."""
INTERVALS_KEPT = 1000


class Clock:
    """Ages of one node's readings at ``now``, with the job's suspended time taken out."""

    def __init__(self, received: float, reach: float, suspended: Sequence[Interval], wall: float) -> None:
        self.received = received
        self.reach = reach
        self.suspended = suspended
        self.wall = wall

    def age(self, at_receipt: float | None) -> float | None:
        """Seconds up to now of what was ``at_receipt`` seconds old when its report came."""
        if at_receipt is None:
            return None
        began = self.received - at_receipt
        age = self.reach - began
        return max(0.0, age - overlap(self.suspended, began, self.reach)) if self.suspended else age

    def known(self, at_receipt: float | None, looked: float) -> float | None:
        """Seconds up to the last look at what was ``at_receipt`` seconds old when its report came.

        For all that may have gone on unseen since: a job that prints every 5 s was once silent for 30 s between
        a look and the next report, and called stalled.
        """
        if at_receipt is None:
            return None
        began, until = self.received - at_receipt, self.received - looked
        return max(0.0, until - began - (overlap(self.suspended, began, until) if self.suspended else 0.0))

    def at(self, at_receipt: float | None) -> float | None:
        """Unix time of it."""
        return None if at_receipt is None else self.received - at_receipt + self.wall


def silent_after(next_s: float) -> float:
    """Seconds without a report after which a node that was told ``next_s`` is silent."""
    return SILENT_REPORTS * max(next_s, SILENT_MIN_S)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals in order, the newest thousand."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found[-INTERVALS_KEPT:]


def overlap(intervals: Sequence[Interval], start: float, end: float) -> float:
    """Seconds between ``start`` and ``end`` that disjoint ``intervals``, in order, cover."""
    covered = 0.0
    for a, b in reversed(intervals):  # the newest count, mostly
        if b <= start:
            break
        covered += max(0.0, min(end, b) - max(start, a))
    return covered


def both(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Times in both lists of disjoint intervals in order; one walk, for a job that Slurm suspends every half
    minute has a thousand on each node."""
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        (a, b), (c, d) = one[i], other[j]
        if max(a, c) < min(b, d):
            found.append((max(a, c), min(b, d)))
        if b <= d:
            i += 1
        else:
            j += 1
    return found


def shared(nodes: Sequence[Sequence[Interval]]) -> list[Interval]:
    """Times when every node's part of a job stood still: the job was suspended.

    Each node's times are widened by what its looks may have missed, for time too much taken out only makes a
    verdict later. A time counts only where all nodes' unwidened times meet: one node's stop beside another's
    a little later is no suspension.
    """
    if not nodes or not all(nodes):
        return []
    strict: list[Interval] = list(nodes[0])
    wide = _widened(nodes[0])
    for intervals in nodes[1:]:
        strict = both(strict, intervals)
        wide = both(wide, _widened(intervals))
    kept: list[Interval] = []
    at = 0
    for a, b in wide:
        while at < len(strict) and strict[at][1] <= a:
            at += 1
        if at < len(strict) and strict[at][0] < b:
            kept.append((a, b))
    return kept


def _widened(intervals: Sequence[Interval]) -> list[Interval]:
    return merged((a - STOP_SLACK_S, b + STOP_SLACK_S) for a, b in intervals)


def stops(known: Sequence[Interval], reported: Sequence[Interval], before: float,
          now: float) -> list[Interval]:
    """Times a node's part stood still: what was known, and the report's (age of start, age of end) pairs.

    ``before`` is when the report before came: a stop that was going on then lasted until then at least.
    """
    if not known and not reported:
        return []
    past = [(a, min(b, max(before, a))) for a, b in known]
    new = [(now - start, FOREVER if end <= 0 else now - end) for start, end in reported]
    return merged([*past, *new])
