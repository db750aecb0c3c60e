"""What systemd is told: that the monitor is ready, and that its loop turns. Nothing where systemd does not ask."""

from __future__ import annotations

import os
import socket
import time

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
    """Send it to $NOTIFY_SOCKET."""
    where = os.environ.get("NOTIFY_SOCKET")
    if not where:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.settimeout(1)
        try:
            channel.connect("\0" + where[1:] if where.startswith("@") else where)
            channel.send(words.encode())
        except OSError as fault:
            say(f"systemd can't be told {words.partition('=')[0]}: {fault.strerror}")
