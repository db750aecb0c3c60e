"""What is held of the end of a step's output: the training's last words, and when the end is to be read. Pure.

Not at each look: once after the output moved and fell quiet, and again at once where it moves on after words that
said that all is over.
"""

from __future__ import annotations

from typing import Any

from astraeus_protocol import report

from .finished import GOES_ON, OVER, shown

QUIET_S, QUIET_MAX_S = 15.0, 300.0
"""Output is quiet after three of its usual gaps, within these bounds and half of the run's patience: who prints each
20 s is not read each 20 s, and what the end says is known before the run is called stalled."""
PATIENCE_S = 120.0
"""Taken where the run named none and the site's is not known here: rather read too often than too late."""
GAPS = 3
AGAIN_S = 15.0
"""Between two readings where words of the end were followed by more."""
RETRY_S, RETRY_MAX_S = 60.0, 600.0


class Words:
    """The last words of a step's output. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.line = ""
        self.since = 0.0
        """When the output that ended with them was last seen to grow."""
        self.covered: float | None = None
        """Up to which growth the end was read. None: nothing was seen to grow yet."""
        self.asked_for = 0.0
        self.read_at = self.not_before = 0.0
        self.retry_s = RETRY_S
        self.fault = ""

    def due(self, newest: float, gap: float | None, now: float, patience_s: float = PATIENCE_S) -> bool:
        """Whether the end is to be read now. ``newest``: when the output last grew; ``gap``: its usual gap."""
        if now < self.not_before or (self.covered is not None and newest <= self.covered):
            return False
        if self.line and now - self.read_at >= AGAIN_S:
            return True
        return now - newest >= max(QUIET_S, min(GAPS * (gap or 0), QUIET_MAX_S, patience_s / 2))

    def begin(self, newest: float, now: float) -> None:
        """It is being read."""
        self.asked_for, self.read_at = newest, now
        self.not_before = now + self.retry_s

    def see(self, what: str, line: str, fault: str) -> None:
        """Take an answer in: it is another's text, whatever it says."""
        if what == OVER and line:
            self.since = self.since if self.line else self.asked_for
            self.line = shown(line)
        elif what == GOES_ON:
            self.line = ""
        self.fault = shown(fault)
        if self.fault or not what:
            self.not_before, self.retry_s = self.read_at + self.retry_s, min(2 * self.retry_s, RETRY_MAX_S)
            return
        self.covered, self.not_before, self.retry_s = self.asked_for, 0.0, RETRY_S

    def record(self, now: float) -> report.Finished | None:
        """For the report."""
        return report.Finished(self.line, round(now - self.since, 2)) if self.line else None

    def save(self) -> list[Any]:
        """For the clock file."""
        return [self.line, self.since, self.covered]

    def load(self, saved: list[Any]) -> None:
        """From the clock file."""
        self.line, self.since, self.covered = str(saved[0]), float(saved[1]), saved[2]
