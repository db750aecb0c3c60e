"""Names of users and their uids, kept for a while and asked beside the loop: a directory service may hang."""

from __future__ import annotations

import asyncio
import pwd
import time
from collections.abc import Callable
from typing import TypeVar

FRESH_S = 600.0
DEADLINE_S = 2.0
KEPT_MAX = 10_000
K = TypeVar("K")
V = TypeVar("V")


class Users:
    """What the host's directory says."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[float, str]] = {}
        self._uids: dict[str, tuple[float, int | None]] = {}

    async def name(self, uid: int) -> str:
        """``uid 1001`` where there is no name, or none could be had in time."""
        return await _kept(self._names, uid, _name, f"uid {uid}")

    async def uid(self, name: str) -> int | None:
        """None where this host knows no such user."""
        return await _kept(self._uids, name, _uid, None)


async def _kept(held: dict[K, tuple[float, V]], key: K, ask: Callable[[K], V], otherwise: V) -> V:
    now = time.monotonic()
    at, value = held.get(key, (0.0, otherwise))
    if key in held and now - at < FRESH_S:
        return value
    try:
        async with asyncio.timeout(DEADLINE_S):
            value = await asyncio.to_thread(ask, key)
    except TimeoutError:
        return value  # what was said before, for it does not change from one day to the next
    if len(held) >= KEPT_MAX:
        held.clear()
    held[key] = now, value
    return value


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None
