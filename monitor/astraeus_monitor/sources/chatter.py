"""Source ``chatter``: lines of an output that repeat on a clock, and when anything else was last written. Pure.

A heartbeat thread, TCPStore's complaint each second, vLLM's line each minute: the same line once its digits are taken
out, in regular gaps. A training's own step lines may be so regular, too: what is found here is evidence beside the
output's age and never shortens or stops a clock.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from ..plain import plain

SEEN, SPAN_S = 4, 45.0
"""A line is chatter once it was met at so many looks, over so long."""
MAX_BYTES, MAX_KINDS = 256 << 10, 64
"""Of a look: beyond it nobody could tell, and nothing is chatter. Different lines that are remembered."""
POINTS = 16
"""Sightings of a line that are kept: with looks 5 s apart they must span that time."""
SHOWN = 160
LINE_MAX = 1000
"""Bytes by which a line without its digits is known: lines of 256 KiB, 64 of them a file, would be too much to keep."""
_NO_DIGITS = bytes.maketrans(b"\r", b"\n")
_DIGITS = b"0123456789"


class Chatter(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line that repeats most, every so many seconds, and the age of the last output that repeats not so."""

    line: str
    every_s: float
    other_s: float


class _Kind:
    """One line without its digits: when it was seen and how often by then."""

    def __init__(self, line: bytes) -> None:
        self.line, self.count = line, 0
        self.points: deque[tuple[float, int, float]] = deque(maxlen=POINTS)
        """(time of a look, count by then, seconds since the look before)"""

    def every(self) -> float | None:
        """Its period in seconds; None where it has none."""
        if len(self.points) < SEEN:
            return None
        (first, base, _), (last, count, _) = self.points[0], self.points[-1]
        if last - first < SPAN_S or count == base:
            return None
        period = (last - first) / (count - base)
        # Seen by looks: between its writing and its look lies up to a look's distance.
        straight = all(abs(at - first - period * (many - base)) <= gap + period / 4 for at, many, gap in self.points)
        return period if straight else None


class Repeats:
    """What repeats in one file. Times in seconds of one clock."""

    def __init__(self) -> None:
        self.kinds: dict[bytes, _Kind] = {}
        self.looked: float | None = None
        self.other = float("-inf")
        """When something was last seen that was forgotten, or was too much to be told."""
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, lines: bytes) -> None:
        """Whole lines of this look."""
        self._bytes += len(lines)
        if self._bytes <= MAX_BYTES:
            self._lines.append(lines)

    def look(self, now: float) -> None:
        """The look is over: count what it saw."""
        lines, much = b"".join(self._lines), self._bytes > MAX_BYTES
        self._lines, self._bytes = [], 0
        gap = now - self.looked if self.looked is not None else 0.0
        self.looked = now
        counts: Counter[bytes] = Counter()
        if not much:
            counts.update(text[:LINE_MAX] for text in lines.translate(_NO_DIGITS, _DIGITS).split(b"\n"))
        if much or len(counts) > MAX_KINDS:
            self.kinds.clear()
            self.other = now
            return
        for text, count in counts.items():
            if not text.strip():
                continue
            kind = self.kinds.pop(text, None) or _Kind(_first(lines, text))
            kind.count += count
            kind.points.append((now, kind.count, gap))
            self.kinds[text] = kind  # the last one seen stands last
        while len(self.kinds) > MAX_KINDS:
            oldest = self.kinds.pop(next(iter(self.kinds)))
            self.other = max(self.other, oldest.points[-1][0])

    def record(self, now: float) -> Chatter | None:
        """None: nothing repeats."""
        found = {text: every for text, kind in self.kinds.items() if (every := kind.every()) is not None
                 and now - kind.points[-1][0] <= 2 * every + kind.points[-1][2]}
        if not found:
            return None
        most = self.kinds[min(found, key=lambda text: found[text])]
        others = [kind.points[-1][0] for text, kind in self.kinds.items() if text not in found]
        other = max(self.other, *others, min(self.kinds[text].points[0][0] for text in found))
        shown = plain(most.line[:SHOWN].decode(errors="replace")).strip()
        return Chatter(shown, round(most.every() or 0.0, 1), round(now - other, 2))


def _first(lines: bytes, text: bytes) -> bytes:
    """The line as it was written, as much of it as is shown."""
    for line in lines.replace(b"\r", b"\n").split(b"\n"):
        if line.translate(None, _DIGITS)[:LINE_MAX] == text:
            return line[:SHOWN]
    return text[:SHOWN]
