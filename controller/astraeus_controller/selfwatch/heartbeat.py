"""A dead man's switch: a GET each minute while the watcher is well; who awaits it raises the alarm when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import requests

log = logging.getLogger(__name__)
EVERY_S, DEADLINE_S = 60.0, 5.0


async def beat(url: str, faults: Callable[[], list[str]]) -> None:
    """Ends when cancelled. A blind watcher sends none."""
    well = True
    while url:
        why = "; ".join(faults())
        if not why:
            try:
                reply = await asyncio.to_thread(requests.get, url, timeout=DEADLINE_S)
                why = "" if reply.ok else f"answered {reply.status_code}"
            except requests.RequestException as fault:
                why = f"not reached: {type(fault).__name__}"
        if why and well:
            log.warning("no heartbeat sent or taken: %s", why)
        well = not why
        await asyncio.sleep(EVERY_S)
    await asyncio.Event().wait()
