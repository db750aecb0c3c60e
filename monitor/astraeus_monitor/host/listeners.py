"""Where processes listen for TCP, told by the kernel and not by trying."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

import msgspec

from . import ties
from .procfs import Proc

LISTEN = 0x0A


class Place(msgspec.Struct, frozen=True):
    """An address that some of the processes asked about listen on."""

    host: str
    port: int
    alone: bool
    """Nobody else listens there: with SO_REUSEPORT other jobs of the user may."""


def places(proc: Proc, pids: Iterable[int], port: int) -> list[Place]:
    """Of processes of one network namespace, those in which one listens on ``port``. Raises PermissionError."""
    pids = list(pids)
    held = {inode for pid in pids for fd in proc.fds(pid)
            if (inode := ties.socket_inode(proc.link(pid, "fd", fd))) is not None}
    rows: dict[str, set[int]] = {}
    for row in proc.sockets(pids[0]) if pids else ():
        host, _, number = row.local.rpartition(":")
        if row.state == LISTEN and int(number, 16) == port:
            rows.setdefault(host, set()).add(row.inode)
    return [Place(reached(host), port, inodes <= held) for host, inodes in sorted(rows.items()) if inodes & held]


def reached(host: str) -> str:
    """/proc's form of an address as people write it; the wildcard as loopback."""
    words = [bytes.fromhex(host[at:at + 8])[::-1] for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    if address.is_unspecified:
        return "::1" if address.version == 6 else "127.0.0.1"
    return str(address)


def own_addresses(proc: Proc, pid: int) -> set[str]:
    """Addresses of the process's network namespace, without loopback; empty where they can't be told."""
    found = set()
    last = ""
    for line in proc.text(pid, "net", "fib_trie", limit=4 << 20).decode(errors="replace").splitlines():
        words = line.split()
        if "/32" in line and "LOCAL" in words:
            found.add(last)
        elif len(words) > 1 and words[0] in ("|--", "+--"):
            last = words[1]
    try:
        for line in proc.text(pid, "net", "if_inet6").splitlines():
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0].decode())))
    except (FileNotFoundError, ValueError):
        pass
    return {one for one in found if not ipaddress.ip_address(one).is_loopback}
