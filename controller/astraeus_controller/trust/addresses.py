"""Whether a node's proof came from that node: MUNGE's host against the addresses that Slurm knows."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time

import msgspec

from ..slurm.command import Away, Commands, Refused
from .munge import Busy, Unproven
from .prover import Claim

FRESH_S = 3600.0
AGAIN_S = 15.0
"""Between two questions to Slurm for a name that it did not know."""
RESOLVE_S = 3.0


class Known(msgspec.Struct, frozen=True):
    """What Slurm calls a node: its host's name, and the address by which it is reached (often a name again)."""

    host: str
    address: str


class Addresses:
    """``check``: the site may do without, where its hosts have addresses that Slurm does not know."""

    def __init__(self, commands: Commands, *, check: bool = True) -> None:
        self.commands, self.check = commands, check
        self._known: dict[str, Known] = {}
        self._resolved: dict[str, tuple[float, frozenset[str]]] = {}
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def confirm(self, claim: Claim, peer: str) -> None:
        """Raises Unproven where the claim is another host's, Busy where that can't be told now. ``peer``: the address
        that the connection comes from; it counts where a host's own name leads to loopback, for MUNGE then knows no
        better."""
        node = await self._node(claim.node)
        if not self.check or not claim.address:
            return
        address = claim.address
        if _loopback(address):
            address = peer
        elif _short(claim.host) in (claim.node, node.host):
            return
        names = {node.address, node.host, claim.node}
        if address in names or any([address in await self._addresses(name) for name in sorted(names)]):
            return
        raise Unproven(f"it was made on {claim.host} ({address}), which is no address of node {claim.node} "
                       f"({node.address}); where that is right, write check_address = false into [trust]")

    async def _node(self, name: str) -> Known:
        async with self._lock:
            age = time.monotonic() - self._read_at
            if age > FRESH_S or (name not in self._known and age > AGAIN_S):
                try:
                    text = await self.commands.run("sinfo", "-h", "-N", "-o", "%N|%n|%o")
                except (Away, Refused) as fault:
                    if name not in self._known:
                        raise Busy(f"whether there is a node {name} can't be told: {fault}") from None
                else:
                    self._known, self._read_at = nodes(text), time.monotonic()
        if name not in self._known:
            raise Unproven(f"Slurm knows no node {name}")
        return self._known[name]

    async def _addresses(self, name: str) -> frozenset[str]:
        at, found = self._resolved.get(name, (float("-inf"), frozenset[str]()))
        if time.monotonic() - at > FRESH_S:
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(RESOLVE_S):
                    infos = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except (OSError, TimeoutError, UnicodeError):
                return found
            found = frozenset(str(info[4][0]) for info in infos)
            self._resolved[name] = time.monotonic(), found
        return found


def nodes(text: str) -> dict[str, Known]:
    """``sinfo -N -o '%N|%n|%o'``, a line for each node and partition."""
    rows = (line.split("|") for line in text.splitlines())
    return {row[0]: Known(_short(row[1]), row[2]) for row in rows if len(row) == 3}


def _short(host: str) -> str:
    return host.partition(".")[0]


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
