"""What systemd is told: that the controller is ready, and that passes run. Nothing where systemd does not ask."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from astraeus_protocol import systemd

log = logging.getLogger(__name__)


def tell(words: str) -> None:
    """Tell systemd; where that fails it is logged."""
    fault = systemd.tell(words)
    if fault:
        log.warning("%s", fault)


def interval_s() -> float | None:
    """How often systemd wants to hear of a watchdog; None where it does not."""
    text = os.environ.get("WATCHDOG_USEC", "")
    mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 1e6 / 3 if text.isdigit() and int(text) and mine else None


async def watchdog(well: Callable[[], bool]) -> None:
    """Tell systemd while ``well()``: it starts a controller anew whose loop turns and whose passes do not."""
    every = interval_s()
    while True:
        if every is not None and well():
            tell("WATCHDOG=1")
        await asyncio.sleep(every or 3600.0)
