"""What systemd is told: that the monitor is ready, and that its loop turns. Nothing where systemd does not ask."""

from __future__ import annotations

import time

from astraeus_protocol import systemd

from .log import say

EVERY_S, WATCHDOG_S = 60.0, 300.0
"""An idle monitor wakes once a minute; one whose loop has not turned for five is started anew, and loses no clock."""


class Watchdog:
    """Armed when the monitor begins its work, not by the unit: one that waits for another's end has no loop yet."""

    def __init__(self) -> None:
        self._next = 0.0

    def ready(self) -> None:
        """The work begins."""
        self._next = time.monotonic() + EVERY_S
        tell(f"READY=1\nWATCHDOG_USEC={WATCHDOG_S * 1e6:.0f}")

    def alive(self) -> None:
        """The loop has turned; told once a minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            tell("WATCHDOG=1")


def tell(words: str) -> None:
    """Tell systemd; where that fails it is said."""
    fault = systemd.tell(words)
    if fault:
        say(fault)
