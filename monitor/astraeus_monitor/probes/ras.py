"""Asks NCCL's RAS of a step, as its own clients do, with what real servers taught (docs/rules.md).

One connection reaches any process that listens on the port: several jobs of a user share it, and one that is stopped
accepts and never answers. So: a second for the first word, another connection then, and an answer counts only where it
speaks of this step. The connection is never half closed (the server then spins on it), ``TIMEOUT 0`` (replies are kept
for ever) and ``CONTROL`` (changes the job) are never sent, and STATUS only once it is known which form comes back.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from astraeus_protocol.devices import Ras

from ..host.listeners import Place, own_addresses, places
from ..host.nccl import Stamp, Version, parse, version_of
from ..host.netns import inner_pid, network_of
from ..host.procfs import Proc
from ..host.tree import Identity
from ..sources.nccl_ras import Reply, Unread, compact, names_ours, read_json
from ..sources.ras_text import read_text

PORT = 28028
HANDSHAKE_S, TRIES = 1.0, 10
REPLY_S, REPLY_MAX_S = 12.0, 30.0
"""For a reply: a server waits 5 s for those that are silent, twice; times the run's NCCL_RAS_TIMEOUT_FACTOR."""
ALL_S, DEADLINE_S = 36.0, 40.0
ANSWER_MAX = 32 << 20
ASKED_MAX = 16
"""Processes of a step whose descriptors are looked at."""
VERSION_OF = 4
"""Processes that are looked at for their NCCL until one has some."""
CRASHES = (2, 26)
"""Releases that crash all ranks when they are asked while a communicator is being made: never asked."""
JSON_SINCE, TEXT_SINCE = (2, 28, 7), (2, 24, 0)


class Policy(msgspec.Struct, frozen=True):
    """What the site allows."""

    least: Version = (2, 29, 2)
    text: bool = False
    """Also where no JSON is to be had."""


class RasLook(msgspec.Struct, omit_defaults=True):
    """What a child found."""

    said: Ras
    stamp: Stamp = ""
    """The library whose version was read, to be remembered."""


DECODER = msgspec.json.Decoder(RasLook)


class Silent(Exception):
    """No answer; the message says why."""


def refusal(version: Version, policy: Policy) -> str:
    """Why NCCL of this version is not asked; "" where it may be."""
    name = ".".join(map(str, version))
    if version[:2] == CRASHES:
        return f"NCCL {name} is never asked: a question may crash the run"
    if version < TEXT_SINCE:
        return f"NCCL {name} has no RAS"
    if version < policy.least:
        return f"NCCL {name} is not asked: the site asks from {'.'.join(map(str, policy.least))} on (ras_min_version)"
    if version < JSON_SINCE and not policy.text:
        return f"NCCL {name} answers in text only, which the site does not ask for (ras_text)"
    return ""


def look_at_ras(proc: Proc, asked: Sequence[Identity], policy: Policy, known: dict[Stamp, str],
                now: Callable[[], float] = time.monotonic) -> Iterator[RasLook]:
    """One answer of the step whose worker processes here these are, or why there is none."""
    until, stamp, version = now() + ALL_S, "", ""
    try:
        alive = [pid for pid, start in asked
                 if (seen := proc.stat(pid)) and seen.start == start and seen.state not in "ZX"]
        if not alive:
            raise Silent("no worker process of it runs here")
        why = ""
        for pid in alive[:VERSION_OF]:
            version, stamp, why = version_of(proc, pid, known)
            if version:
                break
        numbers = parse(version)
        if numbers is None:
            raise Silent(f"which NCCL it has is not known: {why}")
        why = refusal(numbers, policy)
        if why:
            raise Silent(why)
        reply = _ask_all(proc, alive[:ASKED_MAX], numbers, policy, until, now)
        yield RasLook(compact(reply), stamp)
    except Silent as fault:
        yield RasLook(Ras(version=version, unknown=str(fault)), stamp)
    except PermissionError:
        yield RasLook(Ras(version=version, unknown="the monitor must run as root"), stamp)
    except OSError as fault:
        yield RasLook(Ras(version=version, unknown=f"it can't be asked: {fault.strerror or fault}"), stamp)


def _ask_all(proc: Proc, pids: list[int], version: Version, policy: Policy, until: float,
             now: Callable[[], float]) -> Reply:
    """The answer of the first listener that gives one of this step."""
    why = ""
    spaces: dict[str, list[int]] = {}
    for pid in pids:
        spaces.setdefault(proc.link(pid, "ns", "net"), []).append(pid)
    for here in spaces.values():
        environ = proc.environ(here[0])
        if environ.get("NCCL_RAS_ENABLE", "1").strip() == "0":
            raise Silent("the run has switched NCCL RAS off (NCCL_RAS_ENABLE=0)")
        port = port_of(environ.get("NCCL_RAS_ADDR", ""))
        if port is None:
            raise Silent("the run's NCCL_RAS_ADDR names no port")
        found = places(proc, here, port)
        if not found:
            why = (f"none of its processes listens on port {port}: no communicator was made yet, or another user's "
                   "run has the port")
            continue
        own = own_addresses(proc, here[0])
        ours = {inner_pid(proc, pid) or pid for pid in here}
        client = Client(version >= JSON_SINCE, factor(environ), until, now)
        with network_of(proc, here[0]):
            reply, why = client.ask(found, lambda told, place, ours=ours, own=own: belongs(told, place, ours, own))
        if reply is not None:
            return reply
    raise Silent(why)


def belongs(reply: Reply, place: Place, ours: set[int], own: set[str]) -> bool:
    """Whether an answer is this step's: it names processes of it, or nobody else listens there."""
    def here(host: str) -> bool:
        try:
            return not own or host in own or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    return place.alone or names_ours(reply, ours, here)


def port_of(address: str) -> int | None:
    """The port of a NCCL_RAS_ADDR (``localhost:28028``, ``[::1]:28028``); NCCL's own where it is empty."""
    text = address.strip().rpartition(":")[2] if address.strip() else str(PORT)
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None


def factor(environ: dict[str, str]) -> float:
    """By how much the run has its RAS wait longer."""
    try:
        return max(1.0, float(environ.get("NCCL_RAS_TIMEOUT_FACTOR", "1")))
    except ValueError:
        return 1.0


class Client:
    """``factor``: of the server's own waits."""

    def __init__(self, json: bool, factor: float = 1.0, until: float | None = None,
                 now: Callable[[], float] = time.monotonic) -> None:
        self.json, self.reply_s, self.now = json, min(REPLY_S * factor, REPLY_MAX_S), now
        self.until = until if until is not None else now() + ALL_S

    def ask(self, found: Sequence[Place], ours: Callable[[Reply, Place], bool]) -> tuple[Reply | None, str]:
        """The first answer that is ours, and why there is none."""
        why, silent, others = "", 0, 0
        for one in range(TRIES):
            place = found[one % len(found)]
            if self.now() >= self.until:
                break
            try:
                reply = self._once(place)
            except TimeoutError:
                silent += 1
            except (Unread, Silent) as fault:
                why = str(fault)
            except OSError as fault:
                # Refused or reset: it is switched off, ends, or was never there. No sign of a stall.
                why = f"port {place.port}: {fault.strerror or fault}"
            else:
                if ours(reply, place):
                    return reply, ""
                others += 1
        if others:
            return None, f"another job's processes answer on port {found[0].port}: none of {others} answers was its own"
        if silent:
            return None, f"port {found[0].port} is silent: {silent} connections were accepted and not answered"
        return None, why or "there was no time left to ask"

    def _once(self, place: Place) -> Reply:
        with socket.create_connection((place.host, place.port), HANDSHAKE_S) as link:
            lines = _Lines(link, self.now)
            _say(link, b"CLIENT PROTOCOL 2\n")
            greeting = lines.line(HANDSHAKE_S)
            if not greeting.startswith(b"SERVER PROTOCOL "):
                raise Silent(f"port {place.port} is no NCCL RAS")
            if self.json:
                _say(link, b"SET FORMAT json\n")
                if lines.line(HANDSHAKE_S) != b"OK":
                    raise Silent("it can't answer in JSON")
            _say(link, b"STATUS\n" if self.json else b"VERBOSE STATUS\n")
            data = lines.rest(min(self.now() + self.reply_s, self.until))
        return read_json(data) if self.json else read_text(data)


def _say(link: socket.socket, line: bytes) -> None:
    link.settimeout(HANDSHAKE_S)
    link.sendall(line)


class _Lines:
    """What comes in, bounded in size and time. A slow drip counts as silence, too."""

    def __init__(self, link: socket.socket, now: Callable[[], float]) -> None:
        self.link, self.now, self.data = link, now, bytearray()

    def line(self, within_s: float) -> bytes:
        """The next line. Raises TimeoutError, Silent."""
        until = self.now() + within_s
        while b"\n" not in self.data:
            if not self._more(until):
                raise Silent("the connection was closed before an answer")
        line, _, rest = bytes(self.data).partition(b"\n")
        self.data = bytearray(rest)
        return line.rstrip(b"\r")

    def rest(self, until: float) -> bytes:
        """All up to the end. Raises TimeoutError, Silent."""
        with contextlib.suppress(ConnectionResetError):
            while self._more(until):
                if len(self.data) > ANSWER_MAX:
                    raise Silent(f"its answer is longer than {ANSWER_MAX >> 20} MiB")
        return bytes(self.data)

    def _more(self, until: float) -> bool:
        left = until - self.now()
        if left <= 0:
            raise TimeoutError
        self.link.settimeout(left)
        part = self.link.recv(1 << 16)
        self.data += part
        return bool(part)
