"""The pulse of one process: voluntary context switches of its main thread, in windows of 5 s. Pure.

A rank that waits in a collective for a lost peer makes none; a training rank makes 60 to 250 a second, or,
where it spins, still its own usual number. So a process is compared with itself only.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..middle import median

QUIET_SHARE = 0.02
"""A window is quiet at this share of the base or less."""
KNOWN_RATE, KNOWN_WINDOWS = 1.0, 3
"""The pulse is known after so many windows of so many switches a second."""
BASE_MIN = 2.0
"""Under this base, quiet can't be told."""
BASE_WINDOWS = 60
"""5 min of windows."""
QUIET_WINDOWS = 2
LONG_WINDOW = 2.5
"""A window this many times longer than it should be (the monitor itself did not run) tells nothing, unless it
held no more switches than one quiet window may: then it was quiet all along."""


class Pulse:
    """Feed it with ``sample``; read ``rate``, ``base()`` and ``gone_s()``."""

    def __init__(self, window_s: float = 5.0) -> None:
        self.window_s = window_s
        self.windows: deque[float] = deque(maxlen=BASE_WINDOWS)
        self.lively = 0
        self.rate: float | None = None
        self.quiet = 0
        self.quiet_since: float | None = None
        self.blind = True
        """The last window can't be judged."""
        self._at: float | None = None
        self._count = 0
        self._base: float | None = None
        """The median of ``windows``, until another comes."""

    def sample(self, at: float, switches: int, *, touched: bool = False) -> None:
        """A count at a time (CLOCK_BOOTTIME). ``touched``: the process was stopped at it or since."""
        before, was = self._at, self._count
        self._at, self._count = at, switches
        if before is None or at <= before or switches < was:
            self._blind()
            return
        base, span = self.base(), at - before
        long = span > LONG_WINDOW * self.window_s
        allowed = QUIET_SHARE * (base or 0) * (self.window_s if long else span)
        if touched or (long and (base is None or switches - was > allowed)):
            self._blind()
            return
        self.rate = (switches - was) / span
        self.blind = False
        if base is not None and switches - was <= allowed:
            if not self.quiet:
                self.quiet_since = before
            self.quiet += 1
            return
        self.quiet, self.quiet_since = 0, None
        if self.known or self.rate >= KNOWN_RATE:
            self.windows.append(self.rate)
            self._base = None
            self.lively = min(KNOWN_WINDOWS, self.lively + (self.rate >= KNOWN_RATE))

    @property
    def known(self) -> bool:
        """It has shown a pulse."""
        return self.lively >= KNOWN_WINDOWS

    def base(self) -> float | None:
        """Its usual rate per second; None while unknown."""
        if not self.known:
            return None
        if self._base is None:
            self._base = median(self.windows)
        return self._base

    def gone_s(self, now: float) -> float | None:
        """0: it has its pulse; more: for so long it has not; None: unknown."""
        base = self.base()
        if self.blind or base is None or base < BASE_MIN:
            return None
        if self.quiet < QUIET_WINDOWS or self.quiet_since is None:
            return 0.0
        return now - self.quiet_since

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"base": self.base(), "n": len(self.windows), "lively": self.lively, "quiet": self.quiet,
                "since": self.quiet_since, "at": self._at, "count": self._count, "blind": self.blind}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file. The windows themselves are not kept: the base stands for them."""
        self.lively, base = int(saved["lively"]), saved["base"]
        if base is not None:
            self.windows.extend([float(base)] * min(BASE_WINDOWS, int(saved["n"])))
            self._base = None
        self.quiet, self.quiet_since, self.blind = int(saved["quiet"]), saved["since"], bool(saved["blind"])
        if saved["at"] is not None:
            self._at, self._count = float(saved["at"]), int(saved["count"])

    def _blind(self) -> None:
        self.rate, self.blind = None, True
        self.quiet, self.quiet_since = 0, None
