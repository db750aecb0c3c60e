"""A number per TCP connection, the same at both ends: what two processes of a step have in common. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from .procfs import Socket

MAX_TIES = 32
ESTABLISHED, LISTEN = 1, 10


def established(sockets: Iterable[Socket]) -> dict[int, tuple[str, str]]:
    """Inode to (local, remote) of established connections whose two ends are known."""
    return {s.inode: (s.local, s.remote) for s in sockets
            if s.state == ESTABLISHED and s.inode and _known(s.local) and _known(s.remote)}


def numbers(connections: dict[int, tuple[str, str]], inodes: Iterable[int]) -> list[int]:
    """Numbers of the connections that a process with these socket inodes holds, sorted, 32 at most.

    A connection with both ends in the process ties it to nobody and is left out.
    """
    count: dict[int, int] = {}
    for inode in set(inodes):
        ends = connections.get(inode)
        if ends:
            tie = number(*ends)
            count[tie] = count.get(tie, 0) + 1
    return sorted(tie for tie, times in count.items() if times == 1)[:MAX_TIES]


def number(local: str, remote: str) -> int:
    """The connection's number, the same from either end."""
    return zlib.crc32("|".join(sorted((local, remote))).encode())


def _known(end: str) -> bool:
    ip, _, port = end.partition(":")
    return port != "0000" and ip.strip("0") != ""
