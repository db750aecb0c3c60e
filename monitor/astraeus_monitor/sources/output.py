"""Source ``output``: whether files grow, told by their holders' positions. Bytes, not lines. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

from ..look import File, SrunLook

MAX_FILES, MAX_SRUNS = 64, 64
GAPS = 20
SAME_LOOK_S = 1
QUIET_S = 30
"""Growth after a quiet of this is told at once."""


class Growth:
    """When the files of one holder last grew. ``last`` is CLOCK_BOOTTIME seconds."""

    def __init__(self, base: float) -> None:
        self.last = base
        self.marks: dict[str, list[int]] | None = None
        """Path and inode to the positions seen last; None before the first look."""
        self.path = ""
        self.grown = False
        """Something was written by the time of the last look; not before a file's first byte."""
        self.held: float | None = None
        """When it grew by something of which it is not known yet whether it counts."""
        self.woke_at = 0.0
        """When it last grew after a quiet of 30 s or more."""

    def moved(self, files: list[File], now: float) -> int | None:
        """Bytes by which the furthest file moved since the look before, at least 1; None when none did.

        Any position that its file did not have before counts, a truncation too; 0 does not, for a file just
        opened says nothing. The first look is a base: what was written before it was written at a time that
        nobody saw, so the age begins at the look. (An srun that was found 17 s after its step began once had
        these 17 s counted as silence.)
        """
        seen: dict[str, list[int]] = {}
        for file in files:
            seen.setdefault(f"{file.ino}:{file.path}", []).append(file.pos)
        old, self.marks = self.marks, seen
        if old is None:
            if files:
                self.path = self.path or files[0].path
            if any(file.pos for file in files):
                self.last, self.grown = max(self.last, now), True
            return None
        most = None
        for key, positions in seen.items():
            before = old.get(key, [])
            for pos in positions:
                if pos and pos not in before:
                    step = abs(pos - max(before, default=0)) or 1
                    if most is None or step > most:
                        most, self.path = step, key.partition(":")[2]
        for key, positions in old.items():
            if len(self.marks) < MAX_FILES:  # let go for now: opened again at the same place is no growth
                self.marks.setdefault(key, positions)
        if not self.path and files:
            self.path = files[0].path
        return most

    def grew(self, now: float) -> None:
        """It grew by its holder's own doing."""
        if now - self.last >= QUIET_S:
            self.woke_at = now
        self.last, self.grown = now, True

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"last": self.last, "marks": self.marks, "path": self.path, "grown": self.grown}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.last, self.path = float(saved["last"]), str(saved["path"])
        self.grown = bool(saved.get("grown", True))
        marks = saved["marks"]
        self.marks = None if marks is None else {str(k): [int(p) for p in v] for k, v in marks.items()}


class Gaps:
    """Usual gap between two growths of a step's output, seconds."""

    def __init__(self) -> None:
        self.last: float | None = None
        self.gaps: deque[float] = deque(maxlen=GAPS)

    def grew(self, now: float) -> None:
        """Something of the step grew; what grew at the same look counts once."""
        if self.last is not None and now - self.last < SAME_LOOK_S:
            return
        if self.last is not None:
            self.gaps.append(round(now - self.last, 2))
        self.last = now

    def median(self) -> float | None:
        """None before the second growth."""
        return median(self.gaps) if self.gaps else None


class Sruns:
    """What the sruns of a job wrote since the look before: several may share one file."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], tuple[int | None, int | None]] = {}

    def wrote(self, looks: list[SrunLook]) -> dict[str, tuple[int, int] | None]:
        """Step to (bytes, calls) that its sruns wrote since; None where the counters can't be read.

        An srun seen for the first time wrote nothing that can be told.
        """
        found: dict[str, tuple[int, int] | None] = {}
        counts: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        for seen in looks:
            key = (seen.pid, seen.start)
            counts[key] = seen.wchar, seen.syscw
            old = self.counts.get(key)
            have = found.get(seen.step, (0, 0))
            if seen.wchar is None or have is None:
                found[seen.step] = None
                continue
            was, calls = old or (seen.wchar, seen.syscw)
            found[seen.step] = (have[0] + max(0, seen.wchar - (was or 0)),
                                have[1] + max(0, (seen.syscw or 0) - (calls or 0)))
        # One that this look did not come to is no new one at the next.
        self.counts = {**self.counts, **counts} if len(self.counts) < MAX_SRUNS else counts
        return found

    def save(self) -> list[list[int | None]]:
        """For the clock file."""
        return [[pid, start, *counts] for (pid, start), counts in self.counts.items()]

    def load(self, saved: list[list[int]]) -> None:
        """From the clock file."""
        self.counts = {(pid, start): (wchar, syscw) for pid, start, wchar, syscw in saved}


def by_own_doing(wrote: tuple[int, int] | None, others: list[tuple[int, int] | None]) -> bool:
    """Whether an srun's file grew by the srun itself.

    Its own byte counter must have moved; where others share the file and wrote too, by more than the single
    bytes with which its threads wake each other.
    """
    if wrote is None:
        return True
    if any(other is None or other[0] for other in others):
        return wrote[0] > wrote[1]
    return wrote[0] > 0


def reason(others: list[str], step: str) -> str:
    """Why a worker without a file of its own has no output reading; "" where its step's file counts."""
    if "pipe" in others or "socket" in others or (step != "batch" and "pty" in others):
        return ""
    if "null" in others:
        return "output goes to /dev/null"
    if "pty" in others:
        return "output goes to a terminal"
    if "fifo" in others:
        return "output goes to a FIFO"
    return "no output file is open" if not others else f"output goes to a {others[0]}"
