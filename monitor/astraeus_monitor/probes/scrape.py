"""Reading ranks' metrics, all of a job at once, in a child with a deadline that ends afterwards.

Only loopback in the task's own network namespace, and only where every listener on the port belongs to the task: a
neighbour's exporter, or a gateway that serves a value long after its job ended, is nobody's progress. The answer is a
user's: bounded in time and size, no redirect is followed. A text file is opened as its user would, from where the task
itself stands, after the endpoints: it takes the user's rights and gives them never back.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from ..host.netns import network_of
from ..host.procfs import Proc, Socket
from ..host.textfile import MAX_BYTES, Unreadable, text_file, why_of
from ..host.ties import LISTEN
from ..sources.exposition import Series, series

FETCH_S = 1.0
"""For all endpoints of a job together."""
BORN = "process_start_time_seconds"
REQUEST = (b"GET /metrics HTTP/1.0\r\nHost: %s\r\n"
           b"Accept: text/plain;version=0.0.4,application/openmetrics-text;q=0.5\r\n"
           b"Accept-Encoding: identity\r\nUser-Agent: astraeus-monitor\r\n\r\n")
LOOPBACK4, ANY4 = "0100007F", "00000000"
LOOPBACK6, ANY6 = "00000000000000000000000001000000", "0" * 32


class MetricAsk(msgspec.Struct):
    """Whose endpoint or text file, and the processes that may listen there."""

    step: str
    rank: int
    port: int
    pids: list[int]
    """The task's tree, the task itself first."""
    names: list[str]
    file: str = ""
    """Path of a text file in place of the port; a relative one is from the task's working directory."""
    uid: int = -1
    """Whose rights it is read with."""


class MetricLook(msgspec.Struct, omit_defaults=True):
    """What an endpoint answered."""

    step: str
    rank: int
    holder: tuple[int, int] = (0, 0)
    """(PID, start) of the process that listens."""
    born: float | None = None
    """Its process_start_time_seconds."""
    found: dict[str, list[Series]] = {}
    why: str = ""
    """Why nothing could be read."""


DECODER = msgspec.json.Decoder(MetricLook)


def scrape(proc: Proc, asks: Iterable[MetricAsk]) -> Iterator[MetricLook]:
    """What each endpoint says."""
    looks: list[tuple[MetricAsk, MetricLook, Fetch]] = []
    files = [ask for ask in asks if ask.file]
    for ask in asks:
        if ask.file:
            continue
        look = MetricLook(ask.step, ask.rank)
        try:
            host, look.holder = listener(proc, ask)
            with network_of(proc, ask.pids[0]):
                looks.append((ask, look, Fetch(host, ask.port)))
        except (Unreadable, OSError) as fault:
            look.why = why_of(fault, f"port {ask.port}")
            yield look
    fetch_all([fetch for _, _, fetch in looks], FETCH_S)
    for ask, look, fetch in looks:
        try:
            text = fetch.body()
            if listener(proc, ask)[1] != look.holder:
                raise Unreadable(f"port {ask.port} changed hands while it was read")
            read(look, text, ask.names)
        except (Unreadable, OSError) as fault:
            look.why = why_of(fault, f"port {ask.port}")
        yield look
    for ask in files:
        look = MetricLook(ask.step, ask.rank)
        try:
            look.holder, text = text_file(proc, ask.pids[0], ask.file, ask.uid)
            read(look, text, ask.names)
        except (Unreadable, OSError) as fault:
            look.why = why_of(fault, ask.file)
        yield look


def read(look: MetricLook, text: bytes, names: Iterable[str]) -> None:
    """Take the wanted metrics out of an exposition."""
    born = series(text, BORN)
    look.born = born[0].value if len(born) == 1 else None
    look.found = {name: series(text, name) for name in names}


def listener(proc: Proc, ask: MetricAsk) -> tuple[str, tuple[int, int]]:
    """(address, (PID, start)) of the task's listener on loopback. Raises Unreadable."""
    sockets = [s for s in proc.sockets(ask.pids[0]) if s.state == LISTEN and _port(s) == ask.port]
    there = [s for s in sockets if s.local.partition(":")[0] in (LOOPBACK4, ANY4, LOOPBACK6, ANY6)]
    if not there:
        raise Unreadable(f"nothing listens on loopback port {ask.port}" if not sockets else
                         f"port {ask.port} is not open on loopback")
    holders = {pid: {f"socket:[{s.inode}]" for s in there} & {proc.link(pid, "fd", fd) for fd in proc.fds(pid)}
               for pid in ask.pids}
    if set().union(*holders.values()) != {f"socket:[{s.inode}]" for s in there}:
        raise Unreadable(f"the listener on port {ask.port} does not belong to the task")
    pid = next(pid for pid, held in holders.items() if held)
    stat = proc.stat(pid)
    if stat is None:
        raise Unreadable(f"the listener on port {ask.port} is gone")
    four = any(s.local.partition(":")[0] != LOOPBACK6 for s in there)
    return ("127.0.0.1" if four else "::1"), (pid, stat.start)


def _port(sock: Socket) -> int:
    return int(sock.local.rpartition(":")[2], 16)


class Fetch:
    """One GET under way. Raises OSError where no connection can be begun."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.data = bytearray()
        self.why = ""
        self.open = True
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self._ask = REQUEST % f"{'[::1]' if ':' in host else host}:{port}".encode()
        with contextlib.suppress(BlockingIOError):
            self.sock.connect((host, port))

    def ready(self, events: int) -> None:
        """Go on as far as it goes without waiting."""
        try:
            if events & selectors.EVENT_WRITE and self._ask:
                self._ask = self._ask[self.sock.send(self._ask):]
            if events & selectors.EVENT_READ:
                part = self.sock.recv(1 << 16)
                self.data += part
                if len(self.data) > MAX_BYTES + 65536:
                    self.end("answers with more than 1 MiB")
                elif not part or self._whole():
                    self.end("")
        except BlockingIOError:
            return
        except OSError as fault:
            self.end(f"{fault.strerror}")

    def wants(self) -> int:
        """What to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._ask else 0)

    def end(self, why: str) -> None:
        """No more is read; ``why`` it is of no use, else ""."""
        self.why, self.open = why, False
        self.sock.close()

    def _whole(self) -> bool:
        """A server that keeps the connection open said how much there is, and it is here."""
        head, mark, _ = bytes(self.data[:8192]).partition(b"\r\n\r\n")
        length = _headers(head).get(b"content-length", b"")
        return bool(mark) and length.isdigit() and len(self.data) - len(head) - 4 >= int(length)

    def body(self) -> bytes:
        """The exposition. Raises Unreadable."""
        if self.why:
            raise Unreadable(f"port {self.port} {self.why}")
        head, mark, body = bytes(self.data).partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].split()
        if not mark or len(status) < 2 or not status[0].startswith(b"HTTP/1"):
            raise Unreadable(f"port {self.port} does not answer as HTTP does")
        if status[1] != b"200":
            raise Unreadable(f"port {self.port} answers with HTTP {status[1][:3].decode(errors='replace')}")
        headers = _headers(head)
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            body = _dechunked(body)
        if body[:2] == b"\x1f\x8b":  # asked for or not; and one that says gzip and sends text is read as text
            body = _inflated(body, self.port)
        if len(body) > MAX_BYTES:
            raise Unreadable(f"port {self.port} answers with more than 1 MiB")
        return body


def fetch_all(fetches: Iterable[Fetch], seconds: float) -> None:
    """Carry them all on until each has ended or the time is up."""
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as waiting:
        for fetch in fetches:
            waiting.register(fetch.sock, fetch.wants(), fetch)
        while waiting.get_map() and (left := until - time.monotonic()) > 0:
            for key, events in waiting.select(left):
                fetch = key.data
                fetch_fd = key.fd
                fetch.ready(events)
                if not fetch.open:
                    waiting.unregister(fetch_fd)
                elif fetch.wants() != key.events:
                    waiting.modify(fetch.sock, fetch.wants(), fetch)
        for key in list(waiting.get_map().values()):
            key.data.end(f"does not answer within {seconds:g} s")


def _headers(head: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _dechunked(body: bytes) -> bytes:
    whole, at = b"", 0
    while (end := body.find(b"\r\n", at)) >= 0:
        try:
            size = int(body[at:end].partition(b";")[0], 16)
        except ValueError:
            break
        if size <= 0:
            break
        whole += body[end + 2:end + 2 + size]
        at = end + 2 + size + 2
    return whole


def _inflated(body: bytes, port: int) -> bytes:
    opener = zlib.decompressobj(31)
    try:
        text = opener.decompress(body, MAX_BYTES + 1)
    except zlib.error:
        raise Unreadable(f"port {port} answers with broken gzip") from None
    return text
