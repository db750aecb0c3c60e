"""A closer look at the processes of a step that has gone quiet: where each main thread is, by the mode of 25 samples,
and how its TCP connections stand. In a child with a deadline; nobody is looked at so while his step works.

One sample finds an odd one out in half of all healthy jobs; the mode of many finds one only in a gang that waits.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from astraeus_protocol import report

from ..host import calls, inet_diag, ties
from ..host.inet_diag import Connection
from ..host.netns import network_of
from ..host.procfs import GONE, Proc
from ..host.tree import Identity

SAMPLES, APART_S = 25, 0.04
DEADLINE_S = 5.0
MAX_ASKED = 256
"""Processes of a job that are looked at."""
SOON_S, OFTEN_S, SELDOM_S = 120.0, 10.0, 30.0
"""For so long after it went quiet a step is looked at each ``OFTEN_S``, then each ``SELDOM_S``."""
KEPT_S = 75.0
"""What was seen is told for so long: two looks may be missed."""
HERTZ = os.sysconf("SC_CLK_TCK")


class PlaceSeen(msgspec.Struct, tag="place", omit_defaults=True):
    """Where most samples found a main thread."""

    pid: int
    start: int
    channel: str
    call: str
    share: float
    samples: int
    user: float
    system: float
    switches: float
    threads: int


class EdgeSeen(msgspec.Struct, omit_defaults=True):
    """One end of a connection."""

    n: int
    queued: int = 0
    read: int | None = None
    unacked: int = 0
    notsent: int = 0
    backoff: int = 0
    sent_ms: int = 0
    rcvd_ms: int = 0


class EdgesSeen(msgspec.Struct, tag="edges", omit_defaults=True):
    """A process's connections, or why they could not be read."""

    pid: int
    start: int
    edges: list[EdgeSeen] = []
    fault: str = ""


class _Main(msgspec.Struct):
    """A main thread's counters."""

    user: int
    system: int
    threads: int
    switches: int


Line = PlaceSeen | EdgesSeen
DECODER = msgspec.json.Decoder(Line)


def look_closer(proc: Proc, asked: list[Identity], sleep: Callable[[float], None] = time.sleep,
                dump: Callable[[], Iterator[Connection]] = inet_diag.connections) -> Iterator[Line]:
    """Connections first, for they take a moment; then places, which take a second."""
    there = [one for one in asked[:MAX_ASKED] if (seen := proc.stat(one[0])) and seen.start == one[1]]
    yield from edges(proc, there, dump)
    yield from places(proc, there, sleep)


def places(proc: Proc, asked: list[Identity], sleep: Callable[[float], None]) -> Iterator[PlaceSeen]:
    """The mode of each process's samples. One that is gone before the last of them is left out."""
    found: dict[Identity, Counter[tuple[str, str]]] = {one: Counter() for one in asked}
    before, began = {one: _main(proc, one[0]) for one in asked}, time.monotonic()
    for sample in range(SAMPLES):
        if sample:
            # Not in step with a thread that wakes up on a clock of its own.
            sleep(APART_S * (0.75 + 0.125 * (sample * 3 % 5)))
        for one, counter in found.items():
            place = _place(proc, one[0])
            if place is not None:
                counter[place] += 1
    over_s = max(time.monotonic() - began, APART_S)
    for (pid, start), counter in found.items():
        was, now, stat = before[pid, start], _main(proc, pid), proc.stat(pid)
        if was is None or now is None or stat is None or stat.start != start or not counter:
            continue
        (channel, call), count = counter.most_common(1)[0]
        samples = counter.total()
        yield PlaceSeen(
            pid, start, channel, call, share=round(count / samples, 2), samples=samples,
            user=_percent(now.user - was.user, over_s), system=_percent(now.system - was.system, over_s),
            switches=round((now.switches - was.switches) / over_s, 1), threads=now.threads)


def edges(proc: Proc, asked: list[Identity], dump: Callable[[], Iterator[Connection]]) -> Iterator[EdgesSeen]:
    """Established connections of each process, dumped once per network namespace.

    Forked data loaders share their rank's sockets: a connection is that of the oldest process that holds it.
    """
    spaces: dict[str, dict[int, Connection] | str] = {}
    taken: set[tuple[str, int]] = set()
    for pid, start in sorted(asked, key=lambda one: one[::-1]):
        try:
            space = proc.link(pid, "ns", "net") or str(pid)
        except PermissionError:
            yield EdgesSeen(pid, start, fault="the monitor must run as root")
            continue
        if space not in spaces:
            try:
                with network_of(proc, pid):
                    spaces[space] = {one.inode: one for one in dump()}
            except OSError as fault:
                spaces[space] = fault.strerror or "it can't be read"
        known = spaces[space]
        if isinstance(known, str):
            yield EdgesSeen(pid, start, fault=known)
            continue
        try:
            held = {inode for inode in _sockets(proc, pid) if inode in known and (space, inode) not in taken}
        except PermissionError:
            yield EdgesSeen(pid, start, fault="the monitor must run as root")
            continue
        taken |= {(space, inode) for inode in held}
        yield EdgesSeen(pid, start, _edges(known[inode] for inode in sorted(held)))


def _edges(held: Iterator[Connection]) -> list[EdgeSeen]:
    """The same numbers as ``ties.numbers`` gives, those with something to say first, 32 at most."""
    by_number: dict[int, list[Connection]] = {}
    for one in held:
        by_number.setdefault(ties.number(one.local, one.remote), []).append(one)
    found = [EdgeSeen(n, one.queued, one.read, one.unacked, one.notsent, one.backoff, one.sent_ms, one.rcvd_ms)
             for n, (one, *more) in by_number.items() if not more]  # both ends in one process tie it to nobody
    return sorted(found, key=lambda e: (-e.backoff, -e.queued, -e.unacked, e.n))[:ties.MAX_TIES]


def _sockets(proc: Proc, pid: int) -> Iterator[int]:
    for fd in proc.fds(pid):
        inode = ties.socket_inode(proc.link(pid, "fd", fd))
        if inode is not None:
            yield inode


def _place(proc: Proc, pid: int) -> tuple[str, str] | None:
    """(channel, call) of a main thread; ("", "") while it runs; None: it is gone, or may not be read."""
    try:
        channel = proc.text(pid, "wchan", limit=256).decode(errors="replace").strip()
        call, _ = calls.parse(proc.text(pid, "syscall", limit=512).decode(errors="replace"))
    except OSError:
        return None
    return "" if channel == "0" else channel, call


def _main(proc: Proc, pid: int) -> _Main | None:
    try:
        fields = proc.text(pid, "task", pid, "stat", limit=4096).rpartition(b")")[2].split()
        status = proc.status(pid)
        return None if status is None else _Main(int(fields[11]), int(fields[12]), int(fields[17]), status.switches)
    except (*GONE, PermissionError, LookupError, ValueError):
        return None


def _percent(ticks: int, over_s: float) -> float:
    return round(max(0.0, 100 * ticks / HERTZ / over_s), 1)


class CloserWatch:
    """What closer looks saw of one process. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.place: PlaceSeen | None = None
        self.edges: list[EdgeSeen] = []
        self.place_at = self.edges_at = 0.0
        self.fault = ""
        """Why the last look told less than it should."""
        self._unread: dict[int, tuple[int, float]] = {}
        """Connection to what was read of it so far, and since when nothing more."""

    def see(self, line: Line, at: float) -> None:
        """Take a line of a look in."""
        if isinstance(line, PlaceSeen):
            self.place, self.place_at = line, at
            return
        before = self._unread
        self._unread = {}
        for edge in line.edges:
            if edge.queued and edge.read is not None:
                read, since = before.get(edge.n, (-1, at))
                self._unread[edge.n] = edge.read, since if read == edge.read else at
        self.edges, self.edges_at = line.edges, at

    def clear(self) -> None:
        """Its step works again."""
        self.place, self.edges, self._unread, self.fault = None, [], {}, ""

    def told(self, now: float) -> report.Place | None:
        """For the report."""
        seen = self.place
        if seen is None or now - self.place_at > KEPT_S:
            return None
        return report.Place(
            channel=seen.channel, call=seen.call, share=seen.share, samples=seen.samples,
            s=round(now - self.place_at, 2), user=seen.user, system=seen.system, switches=seen.switches,
            threads=seen.threads)

    def edges_told(self, now: float) -> list[report.Edge]:
        """For the report."""
        if now - self.edges_at > KEPT_S:
            return []
        since = self.edges_at
        return [report.Edge(
            n=edge.n, queued=edge.queued, unread_s=round(now - self._unread[edge.n][1], 2) if edge.n in self._unread
            else 0, unacked=edge.unacked, notsent=edge.notsent, backoff=edge.backoff,
            sent_s=round(edge.sent_ms / 1000 + now - since, 2), rcvd_s=round(edge.rcvd_ms / 1000 + now - since, 2))
            for edge in self.edges]
