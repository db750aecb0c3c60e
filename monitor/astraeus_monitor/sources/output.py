"""Source ``output``: whether files grow, told by their holders' positions. Bytes, not lines. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any

from astraeus_protocol.report import THROUGH_SRUN

from ..host.outputs import PATH_KINDS, File
from ..host.tree import Identity, ProcLook
from ..middle import median
from ..probes.look import SrunLook
from .written import GROWTH as BULK

MAX_FILES, MAX_SRUNS = 64, 64
GAPS = 20
SAME_LOOK_S = 1
ALONE = ("batch", "interactive")
"""Steps without an srun."""
QUIET_S = 30
"""Growth after a quiet of this is told at once."""


class Growth:
    """When the files of one holder last grew. ``last`` is CLOCK_BOOTTIME seconds."""

    def __init__(self, base: float) -> None:
        self.last = base
        self.marks: dict[str, list[int]] | None = None
        """A file's key to the positions seen last; None before the first look."""
        self.path = self.key = ""
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
        these 17 s counted as silence.) A log that a process opened by itself and that grows by 1 MiB or more at a
        look is data: that is writing.
        """
        seen: dict[str, list[int]] = {}
        for file in files:
            seen.setdefault(file.key, []).append(file.pos)
        logs = {file.key for file in files if file.log}
        paths = {file.key: file.path for file in reversed(files)}
        self.path = paths.get(self.key, self.path)  # it may have been renamed
        old, self.marks = self.marks, seen
        if old is None:
            if files and not self.path:
                self.path, self.key = files[0].path, files[0].key
            if any(file.pos for file in files):
                self.last, self.grown = max(self.last, now), True
            return None
        most = None
        for key, positions in seen.items():
            before = old.get(key, [])
            for pos in positions:
                if pos and pos not in before:
                    step = abs(pos - max(before, default=0)) or 1
                    if (most is None or step > most) and not (key in logs and step >= BULK):
                        most, self.path, self.key = step, paths[key], key
        for key, positions in old.items():
            if len(self.marks) < MAX_FILES:  # let go for now: opened again at the same place is no growth
                self.marks.setdefault(key, positions)
        if not self.path and files:
            self.path, self.key = files[0].path, files[0].key
        return most

    def grew(self, now: float) -> None:
        """It grew by its holder's own doing."""
        if now - self.last >= QUIET_S:
            self.woke_at = now
        self.last, self.grown = now, True

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"last": self.last, "marks": self.marks, "path": self.path, "key": self.key,
                "grown": self.grown, "held": self.held}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.last, self.path = float(saved["last"]), str(saved["path"])
        self.grown, self.key = bool(saved.get("grown", True)), str(saved.get("key", ""))
        held = saved.get("held")
        self.held = None if held is None else float(held)
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


class Quiet:
    """When a task's processes last wrote a byte to anything. Where output can't be seen this is what is known of it:
    counters that grow are no output, but who writes nothing at all prints nothing."""

    def __init__(self, base: float) -> None:
        self.last = base
        self.counts: dict[Identity, int] | None = None
        self.known = False

    def see(self, procs: list[ProcLook], now: float) -> None:
        """Take a look in. What a process wrote that came and ended between two looks, its parent's counter tells."""
        mine = [p for p in procs if not p.aside and p.state not in "ZX"]
        counts = {p.id: p.wchar for p in mine if p.wchar is not None}
        old, self.counts = self.counts, counts
        self.known = len(counts) == len(mine) and bool(mine)
        if old is None or any(old.get(key, 0) != count for key, count in counts.items()):
            self.last = now

    def seconds(self, now: float) -> float | None:
        """For how long nothing was written; None where that can't be told."""
        return now - self.last if self.known else None

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"last": self.last, "counts": [[*key, n] for key, n in (self.counts or {}).items()]}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.last = float(saved["last"])
        self.counts = {(int(pid), int(start)): int(n) for pid, start, n in saved["counts"]} or None


WORDS = {"null": "output goes to /dev/null", "pty": "output goes to a terminal", "fifo": "output goes to a FIFO",
         "nothing": "no output file is open", "pipe": "output goes into a pipe that nobody of the job reads",
         "socket": "output goes into a socket", "device": "output goes to a device",
         "other": "output goes to something that is no file"}


def through_srun(to: str, step: str) -> bool:
    """Whether what a worker's files don't hold goes through its step's srun."""
    return step not in ALONE and to in THROUGH_SRUN


def reason(to: str, step: str) -> str:
    """Why a worker without a file of its own has no output reading; "" where its step's file counts."""
    return "" if through_srun(to, step) else WORDS.get(to, "")


def place(target: str) -> str:
    """What an srun's output is, from what /proc calls it: as in ``Routes.to``."""
    kind = next((kind for start, kind in PATH_KINDS if target.startswith(start)), "other")
    return "fifo" if kind == "other" and target.startswith("/") else kind
