"""The node's key with its controller: proven with MUNGE or the site's shared key, renewed each hour.

The credential goes beside a report that is signed with the new key already, so that a controller which has forgotten
the old one (it was started anew) loses no report. Until a reply is signed with the new key, the old one is kept.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from astraeus_protocol import hello, signing

from ..clock import Clock
from ..log import say_once
from ..plain import plain
from ..probes.children import Probes, reaped

if TYPE_CHECKING:
    from ..config import Config

MUNGE_S, PROBE_S = 1.8, 2.0
"""An encoding takes 2 ms; munge itself waits for a dead munged for longer than a report may."""
AGAIN_S = 60.0
"""Between two tries while there is a key to go on with."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WHY_MAX = 200


class Encoded(msgspec.Struct, omit_defaults=True):
    """What munge said, from the child that ran it."""

    credential: str = ""
    why: str = ""


class Session:
    """``key`` signs; ``credential`` is to go beside the report, "" where the controller knows the key."""

    def __init__(self, config: Config, probes: Probes, clock: Clock) -> None:
        self.config, self.probes, self.clock = config, probes, clock
        self.key: bytes | None = None
        self.credential = ""
        self._old: bytes | None = None
        self._since = self._not_before = 0.0
        self._refused = True
        self._older = 0
        """How many of the newest shared keys the controller did not take: it may still have the file before."""

    @property
    def due(self) -> bool:
        """Whether the node has to prove itself before the next report."""
        now = self.clock.boot()
        return self._refused or (now - self._since >= hello.KEPT_S and now >= self._not_before)

    def prove(self, node: str, done: Callable[[str], None]) -> None:
        """Make a credential; then ``done("")``, or why there is none and no key to go on with either."""
        nonce = os.urandom(16).hex()
        if self.by_key():
            try:
                keys = signing.read_keys(self.config.key)
            except signing.KeyFault as fault:
                self._without(str(fault), done)
                return
            self._take(*hello.with_key(keys[-1 - self._older % len(keys)], node, nonce, self.clock.wall()))
            done("")
            return
        key = os.urandom(32)
        text = hello.payload(node, nonce, key)
        argv = [self.config.munge, f"--restrict-uid={self.config.controller_user}", f"--ttl={hello.TTL_S}"]

        def encoded(lines: list[bytes], why: str) -> None:
            found = msgspec.json.decode(lines[0], type=Encoded) if lines else Encoded(why=why or "it said nothing")
            if found.credential:
                self._take(found.credential, key)
                done("")
            else:
                self._without(f"munge makes no credential: {found.why}; see whether munged runs here", done)

        if why := self.probes.start("munge", lambda: encode(argv, text), encoded, PROBE_S):
            self._without(f"munge makes no credential: {why}", done)

    def taken(self) -> None:
        """The controller answered with this key."""
        if self.credential:
            self.credential, self._old, self._refused = "", None, False
            self._since, self._older = self.clock.boot(), 0

    def refused(self) -> bool:
        """The controller does not take what was sent. Whether another try at once may do better: it had only
        forgotten the key, or may know an older one."""
        at_once, self._refused = not self.credential, True
        if self.credential and self.by_key():
            self._older += 1
        self.unheard()
        return at_once

    def unheard(self) -> None:
        """Nothing came back: a credential is good for one report."""
        if self.credential:
            self.key, self.credential, self._old, self._refused = self._old, "", None, True

    def by_key(self) -> bool:
        """Whether this node uses a shared key: as it is told, else where there is one."""
        return self.config.auth == "key" or (self.config.auth == "auto" and Path(self.config.key).exists())

    def _take(self, credential: str, key: bytes) -> None:
        self.credential, self._old, self.key = credential, self.key, key
        say_once("key", "")

    def _without(self, why: str, done: Callable[[str], None]) -> None:
        """Go on with the key that there is: a controller takes it for another hour."""
        say_once("key", why)
        self._not_before = self.clock.boot() + AGAIN_S
        done("" if self.key is not None else why)


def encode(argv: list[str], text: str) -> Iterator[Encoded]:
    """Run munge; only in a child that ends afterwards. The key goes in by a pipe: others read arguments."""
    until = time.monotonic() + MUNGE_S
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    child = os.fork()
    if not child:
        try:
            for fd, place in ((read_in, 0), (write_out, 1), (write_out, 2)):
                os.dup2(fd, place)
            os.closerange(3, 4096)
            os.execvpe(argv[0], argv, {"PATH": PATH, "LC_ALL": "C"})
        except OSError as fault:
            os.write(2, f"{argv[0]} can't be run: {fault.strerror}".encode())
        finally:
            os._exit(127)
    os.close(read_in)
    os.close(write_out)
    with contextlib.suppress(BrokenPipeError):  # it ended without reading; what it said tells why
        os.write(write_in, text.encode())
    os.close(write_in)
    said = b""
    while select.select([read_out], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(read_out, 4096)
        said += part
        if not part or len(said) > hello.CREDENTIAL_MAX:
            break
    else:
        os.kill(child, 9)
    reaped(child, patience=200)
    words = plain(said.decode(errors="replace")).strip()
    if words.startswith(hello.MUNGE_PREFIX) and len(words) < hello.CREDENTIAL_MAX:
        yield Encoded(credential=words)
    else:
        yield Encoded(why=words[:WHY_MAX] or "no answer before the deadline")
