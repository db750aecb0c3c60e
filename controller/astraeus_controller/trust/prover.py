"""Takes credentials: a node's hello, a reader's request. What holds the site's shared keys and asks munged.

It runs where the rights are (``actor``): keys are root's to read, and a node's hello is for root alone to decode.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

import msgspec
from astraeus_protocol import hello, signing

from .munge import Munge, Unproven

READER = "astraeus-api 1 "
"""What a reader's payload begins with: a credential that was made for Slurm, or as a hello, opens nothing here."""
REMEMBERED_S = 2 * hello.SKEW_S


class Claim(msgspec.Struct, frozen=True):
    """A node that proved itself. ``host`` and ``address``: where MUNGE says that it was; "" with a shared key."""

    node: str
    key: bytes
    host: str = ""
    address: str = ""


class Asker(msgspec.Struct, frozen=True):
    """A reader who proved himself: his uid, and the request that he made the credential for (``GET /stalls``)."""

    uid: int
    request: str


class Proves(Protocol):
    """What takes credentials: a Prover, or the actor that runs one."""

    async def node(self, credential: str) -> Claim: ...

    async def reader(self, credential: str) -> Asker: ...


class Prover:
    """``auth``: auto, munge or key; ``key``: the file of shared keys."""

    def __init__(self, auth: str, key: str, munge: Munge) -> None:
        self.auth, self.key, self.munge = auth, key, munge
        self.started = time.time()
        self._nonces: OrderedDict[str, float] = OrderedDict()

    def by_key(self) -> bool:
        """Whether nodes prove themselves with a shared key: as it is told, else where there is one."""
        return self.auth == "key" or (self.auth == "auto" and Path(self.key).exists())

    async def node(self, credential: str) -> Claim:
        """Raises Unproven, Busy, or KeyFault."""
        if self.by_key():
            return self._by_key(credential)
        if not credential.startswith(hello.MUNGE_PREFIX):
            raise Unproven("nodes prove themselves with MUNGE here; remove the node's report.key, or write auth = "
                           '"munge" into its [monitor]')
        seen = await self.munge.decode(credential)
        if seen.uid != 0:
            raise Unproven(f"uid {seen.uid} is not root, who alone speaks for a node")
        found = hello.read_payload(seen.payload)
        if found is None:
            raise Unproven("the credential was made for something else")
        node, nonce, key = found
        self._once(f"{node} {nonce}")
        return Claim(node, key, seen.host, seen.address)

    async def reader(self, credential: str) -> Asker:
        """Raises Unproven or Busy."""
        seen = await self.munge.decode(credential)
        if not seen.payload.startswith(READER):
            raise Unproven("the credential was made for something else")
        return Asker(seen.uid, seen.payload.removeprefix(READER).strip())

    def _by_key(self, credential: str) -> Claim:
        if credential.startswith(hello.MUNGE_PREFIX):
            raise Unproven("nodes prove themselves with a shared key here; copy the controller's report.key to it")
        found = hello.read_key(credential, signing.read_keys(self.key))
        if found is None:
            raise Unproven("the node's shared key is none of those that the controller has")
        node, wall, nonce, key = found
        now = time.time()
        if abs(now - wall) > hello.SKEW_S:
            raise Unproven(f"the node's time of day is off by {abs(now - wall):.0f} s; {hello.SKEW_S:.0f} at most")
        # A hello that was overheard before this controller began: its nonce would be new here.
        if wall < self.started:
            raise Unproven("the hello is older than this controller; the node is to make a new one")
        self._once(f"{node} {nonce}")
        return Claim(node, key)

    def _once(self, nonce: str) -> None:
        now = time.monotonic()
        while self._nonces and now - next(iter(self._nonces.values())) > REMEMBERED_S:
            self._nonces.popitem(last=False)
        if nonce in self._nonces:
            raise Unproven("this hello was here before")
        self._nonces[nonce] = now
