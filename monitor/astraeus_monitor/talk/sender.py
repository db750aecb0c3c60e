"""One POST per report, without ever blocking the loop: a socket, a deadline, a signed reply; once an hour a proof of
who we are goes beside it (``session``).

A try that fails is made again after 1, 2, 4, 8, 15 s, with ages computed anew and a new nonce; nothing is
kept for later. Names are looked up in a child, for a resolver may hang.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Callable

import msgspec
from astraeus_protocol import report, signing

from ..clock import Clock
from ..log import say_once
from ..plain import plain
from ..probes.children import Probes
from .address import Address, literal, resolve, split
from .http import parse, whole
from .session import Session

CONNECT_S, TOTAL_S, RESOLVE_S = 12.0, 25.0, 2.0
"""A network that takes 5 s each way needs 10 s for a connection and 10 s for an answer; one that loses half of all
packets, four tries of the first, at 0, 1, 3 and 7 s. Nothing waits for it: sampling goes on."""
BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0)
MAX_REPLY = 1 << 20

Made = tuple[str, str, bytes]
"""(node, nonce, body)"""


class Sender:
    """``send`` begins a try; ``replied`` gets the verified reply, ``failed`` is called when there is none."""

    def __init__(self, controller: str, selector: selectors.BaseSelector, probes: Probes, clock: Clock, *,
                 session: Session, node: Callable[[], str], make: Callable[[], Made],
                 replied: Callable[[report.Reply], None], failed: Callable[[], None]) -> None:
        self.selector, self.probes, self.clock = selector, probes, clock
        self.session, self.node = session, node
        self.make, self.replied, self.failed = make, replied, failed
        self.host, self.port = split(controller)
        self.controller = controller
        self.failures = 0
        self.not_before = 0.0
        self.busy = False
        self._address: tuple[int, str] | None = literal(self.host)
        self._next_address = 0
        self._socket: socket.socket | None = None
        self._until = 0.0
        self._out = memoryview(b"")
        self._in = bytearray()
        self._made: Made | None = None
        self._secret = b""

    def ready(self) -> bool:
        """Whether a try may begin now."""
        return bool(self.host) and not self.busy and self.clock.boot() >= self.not_before

    def send(self) -> None:
        """Begin a try: prove who we are where that is due, look the name up, connect, and only then make the report."""
        self.busy = True
        if self.session.due:
            self.session.prove(self.node(), self._proven)
        else:
            self._look_up()

    def _proven(self, why: str) -> None:
        if why:
            self._fail("")  # it has been said
        else:
            self._look_up()

    def _look_up(self) -> None:
        self._until = self.clock.boot() + TOTAL_S
        if self._address:
            self._connect()
            return
        why = self.probes.start("resolver", lambda: resolve(self.host), self._resolved, RESOLVE_S)
        if why:
            self._fail(f"can't look up {self.host}: {why}")

    def sweep(self) -> None:
        """Give a late try up."""
        if self._socket is not None and self.clock.boot() >= self._until:
            self._fail("no answer in time")

    def next_deadline(self) -> float | None:
        """When ``sweep`` has something to do."""
        return self._until if self._socket is not None else None

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self.selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _resolved(self, lines: list[bytes], why: str) -> None:
        found = [msgspec.json.decode(line, type=Address) for line in lines]
        if not found:
            self._fail(f"can't look up {self.host}: {why or 'no such name'}")
            return
        address = found[self._next_address % len(found)]
        self._address = address.family, address.host
        self._connect()

    def _connect(self) -> None:
        assert self._address
        family, host = self._address
        self._until = self.clock.boot() + CONNECT_S
        try:
            kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            self._socket = socket.socket(family, kind)
        except OSError as fault:
            self._fail(f"no socket: {fault.strerror}")
            return
        self.selector.register(self._socket, selectors.EVENT_WRITE, self._connected)
        code = self._socket.connect_ex((host, self.port))
        if code not in (0, errno.EINPROGRESS):
            self._fail(os.strerror(code))

    def _connected(self) -> None:
        assert self._socket
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(os.strerror(code))
            return
        key, self._made = self.session.key, self.make()
        assert key is not None
        self._secret = key
        self._until = self.clock.boot() + TOTAL_S - CONNECT_S
        node, nonce, body = self._made
        at = f"{self.clock.boot() * 1000:.0f}"
        beside = self.session.credential
        head = "\r\n".join((
            "POST /v1/report HTTP/1.1", f"Host: {self.host}:{self.port}", "Content-Type: application/json",
            f"Content-Length: {len(body)}", "Connection: close", f"{signing.NODE_HEADER}: {node}",
            f"{signing.NONCE_HEADER}: {nonce}", f"{signing.TIME_HEADER}: {at}",
            *([f"{signing.CREDENTIAL_HEADER}: {beside}"] if beside else []),
            f"{signing.HEADER}: {signing.sign(key, 'report', node, nonce, body, at)}", "", ""))
        self._out, self._in = memoryview(head.encode() + body), bytearray()
        self.selector.modify(self._socket, selectors.EVENT_WRITE, self._writable)
        self._writable()

    def _writable(self) -> None:
        assert self._socket
        try:
            self._out = self._out[self._socket.send(self._out):]
        except BlockingIOError:
            return
        except OSError as fault:
            self._fail(fault.strerror or str(fault))
            return
        if not self._out:
            self.selector.modify(self._socket, selectors.EVENT_READ, self._readable)

    def _readable(self) -> None:
        assert self._socket
        try:
            part = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as fault:
            self._fail(fault.strerror or str(fault))
            return
        self._in += part
        if len(self._in) > MAX_REPLY:
            self._fail("the reply is too long")
        elif not part or whole(bytes(self._in)):
            self._take(bytes(self._in))

    def _take(self, data: bytes) -> None:
        status, headers, body = parse(data)
        assert self._made
        node, nonce, _ = self._made
        if status != 200:
            said = plain(body.decode(errors="replace")).strip()[:200] if status else "no HTTP reply"
            if status == 401 and self.session.refused():
                self._fail("", at_once=True)
                return
            self._fail(f"answered {status}: {said}" if status else said)
            return
        signature = headers.get(signing.HEADER.lower(), "")
        if not signing.verify(self._secret, "reply", node, nonce, body, signature):
            self._fail("its reply is not signed with our key; nothing of it is done")
            return
        try:
            reply = report.REPLY_DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            self._fail(f"its reply can't be read: {fault}")
            return
        if reply.nonce != nonce:
            self._fail("its reply answers another report; nothing of it is done")
            return
        self.close()
        self.session.taken()
        self.busy, self.failures = False, 0
        say_once("controller", f"controller {self.controller}: report received")
        self.replied(reply)

    def _fail(self, why: str, *, at_once: bool = False) -> None:
        self.close()
        self.busy = False
        self.session.unheard()
        wait = BACKOFF_S[min(self.failures, len(BACKOFF_S) - 1)]
        self.not_before = self.clock.boot() + (0.0 if at_once else wait)
        self.failures += 1
        if literal(self.host) is None:
            self._address, self._next_address = None, self._next_address + 1
        if why:
            say_once("controller", f"controller {self.controller}: {why}; trying again")
        self.failed()
