"""A number per TCP connection, the same at both ends, or per piece of an MPI's shared memory: what two processes of a
step have in common. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from .procfs import Socket

MAX_TIES = 32
ESTABLISHED, LISTEN = 1, 10
_SEGMENT = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ rw.s [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+ [0-9]+) +/[^\n]*/"
    rb"(?:sm_segment|vader_segment|mpich_shar|ucx_shm|psm[0-9]?_shm|psm3?_|Intel_MPI|nccl-)[^\n/]*$", re.MULTILINE)
"""A line of /proc/PID/maps: writable memory that an MPI or NCCL shares between ranks of a node (device and inode). Only
theirs: others lie in /dev/shm that all programs of a node map."""


def socket_inode(target: str) -> int | None:
    """Of what a descriptor's link says: ``socket:[42]``; None: it is no socket."""
    return int(target[8:-1]) if target.startswith("socket:[") else None


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


def shared_memory(maps: bytes, node: str) -> list[int]:
    """Numbers of the segments that a process maps: ranks of one node that an MPI runs share no connection at all."""
    return sorted({zlib.crc32(node.encode() + b"|" + found) for found in _SEGMENT.findall(maps)})[:MAX_TIES]


def number(local: str, remote: str) -> int:
    """The connection's number, the same from either end."""
    return zlib.crc32("|".join(sorted((local, remote))).encode())


def _known(end: str) -> bool:
    ip, _, port = end.partition(":")
    return port != "0000" and ip.strip("0") != ""
