"""HTTP on sockets that we open ourselves, and who speaks on a unix socket (SO_PEERCRED)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .config import Controller

SCOPE = "astraeus.peer"
"""Key of the Peer in a request's scope; absent where the socket is no unix socket."""
MODE = 0o666
"""Everybody may speak to the API; what each is told follows from who it is."""


CONNECTION_S = 30.0
"""A connection is cut after so long, whatever came over it: a report and its reply take milliseconds, and who
only connects must not keep the others out."""
PER_USER, PER_HOST = 32, 256
"""Connections at a time of one user (other than root) on the API, and from one address (a site's nodes may come
through one) for reports."""


class SocketFault(Exception):
    """The socket can't be used; the text is one sentence."""


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end, as the kernel names it."""

    pid: int
    uid: int
    gid: int


class PeerProtocol(H11Protocol):
    """Adds the peer to the scope of every request; bounds how many connections one may hold, and for how long."""

    held: ClassVar[Counter[str]] = Counter()
    _who = ""
    _cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._cut = self.loop.call_later(CONNECTION_S, transport.abort)
        connection = transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            self._count(f"host {(transport.get_extra_info('peername') or ('?',))[0]}", PER_HOST, transport)
            return
        size = struct.calcsize("3i")
        peer = Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)))
        if peer.uid:
            self._count(f"uid {peer.uid}", PER_USER, transport)
        app = self.app

        async def with_peer(scope: Any, receive: Any, send: Any) -> None:
            scope[SCOPE] = peer
            await app(scope, receive, send)

        self.app = with_peer

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut is not None:
            self._cut.cancel()
        if self._who:
            self.held[self._who] -= 1
            if not self.held[self._who]:
                del self.held[self._who]
            self._who = ""
        super().connection_lost(exc)

    def _count(self, who: str, most: int, transport: asyncio.Transport) -> None:
        self._who = who
        self.held[who] += 1
        if self.held[who] > most:
            transport.abort()


class Server(uvicorn.Server):
    """A server among others in one loop: the service handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: Any) -> Server:
    """A server for ``app``, quiet: what happens is logged by the service."""
    return Server(uvicorn.Config(app, http=PeerProtocol, ws="none", lifespan="off", log_config=None,
                                 access_log=False, server_header=False, date_header=False, proxy_headers=False,
                                 timeout_keep_alive=5, timeout_graceful_shutdown=2, limit_concurrency=4000))


class Bound(msgspec.Struct):
    """Sockets that are bound: who connects is refused until they listen."""

    reports: socket.socket
    api: list[socket.socket]

    def listen(self) -> list[socket.socket]:
        """All, listening; that of reports first."""
        self.reports.listen(1024)
        for one in self.api:
            one.listen(128)
        return [self.reports, *self.api]


def bind(config: Controller) -> Bound:
    """The controller's sockets. Raises SocketFault."""
    api = [bind_unix(config.api_socket)]
    if config.api_listen:
        api.append(bind_tcp(config.api_listen, "api_listen"))
    return Bound(bind_tcp(config.listen), api)


def bind_tcp(address: str, key: str = "listen") -> socket.socket:
    """A bound socket for ``host:port``, the setting ``key``; IPv6 hosts in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise SocketFault(f'{key} = "{address}" is no address; write HOST:PORT, such as 0.0.0.0:6831')
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM,
                                   flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(found[0], found[1])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[4])
    except OSError as fault:
        raise SocketFault(f"can't listen on {address}: {fault.strerror}") from None
    listener.setblocking(False)
    return listener


def bind_unix(path: str) -> socket.socket:
    """A bound unix socket that everybody may connect to; one that a dead process left is replaced."""
    where = Path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        where.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        if where.exists() and stat.S_ISSOCK(where.stat().st_mode):
            if _answers(path):
                raise SocketFault(f"another controller answers on {path}; stop it first")
            where.unlink()
        listener.bind(path)
        os.chmod(path, MODE)
    except OSError as fault:
        raise SocketFault(f"can't listen on {path}: {fault.strerror or fault}") from None
    listener.setblocking(False)
    return listener


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
