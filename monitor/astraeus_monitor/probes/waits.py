"""What processes wait for in the kernel: a burst of samples of their main threads, taken by a look's child.

A single sample finds odd things in healthy jobs. So only those are asked that have gone quiet, only what every
sample of the burst agrees on is told, and ``WaitWatch`` counts for how long one burst after another did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
from astraeus_protocol import report

from ..host import calls
from ..host.procfs import GONE, Proc
from ..host.stores import Mount, family_of, parse_mounts, store_of
from ..host.tree import Identity, ProcLook

SAMPLES, APART_S = 5, 0.05
"""A burst. With a look each 5 s, 30 s hold 30 samples or more."""
MAX_ASKED = 256
"""Processes of a job that are asked in one look."""
MAX_HELPERS = 16
"""Of them, helpers of one process: data loaders."""
LOOSE_S = 50.0
"""Bursts further apart say nothing of the time between them: three looks were missed."""
LONG_S = 30.0
"""A wait for storage that has lasted so long is told at once."""
LIMIT = 4 << 20
"""Bytes of a mount table that are read."""


class WaitSeen(msgspec.Struct, tag="wait", omit_defaults=True):
    """A process that every sample of a burst found in the same place."""

    pid: int
    start: int
    channel: str
    call: str = ""
    mount: str = ""
    at: str = ""
    kind: str = ""
    helper: int = 0
    """PID of the process below it that waits; 0: its own main thread does."""
    over_s: float = 0
    """From the first sample to the last."""


class Place(msgspec.Struct, frozen=True):
    """Where a main thread waits."""

    channel: str
    call: str
    fd: int | None
    switches: int
    """Voluntary switches so far: one who waits again has made another."""

    def same(self, other: Place | None) -> bool:
        """Whether that is the same place, perhaps left and come back to meanwhile."""
        return other is not None and (self.channel, self.call, self.fd) == (other.channel, other.call, other.fd)


def helpers_of(pid: int, procs: Iterable[ProcLook]) -> list[Identity]:
    """Processes below ``pid`` that are no workers themselves, parents first."""
    below, found = {pid}, []
    for p in procs:  # parents come first
        if p.ppid in below and not p.worker and p.state not in "TtZX":
            below.add(p.pid)
            found.append(p.id)
    return found[:MAX_HELPERS]


def look_at_waits(proc: Proc, asked: list[Identity], procs: list[ProcLook], before: dict[Identity, Place],
                  sleep: Callable[[float], None] = time.sleep) -> Iterator[WaitSeen]:
    """What each of these processes waits for. ``before``: their places at the look before, brought up to date.

    A helper's wait is told where it waits for storage and its process does not.
    """
    families = {one: helpers_of(one[0], procs) for one in asked}
    everyone = [*asked, *(helper for helpers in families.values() for helper in helpers)][:MAX_ASKED]
    places = {one: place for one in everyone if (place := _place(proc, one))}
    # Who has not run since the look before has not moved: it needs no further samples.
    open_ones = [one for one, place in places.items() if before.get(one) != place]
    began = last = time.monotonic()
    for _ in range(SAMPLES - 1):
        if not open_ones:
            break
        sleep(APART_S)
        last = time.monotonic()
        for one in list(open_ones):
            if not places[one].same(_place(proc, one)):
                open_ones.remove(one)
                del places[one]
    before.clear()
    before.update(places)
    tables: dict[str, list[Mount]] = {}
    seen = {one: _resolved(proc, one, place, last - began, tables) for one, place in places.items()}
    for one, helpers in families.items():
        own = seen.get(one)
        stored = next((seen[helper] for helper in helpers if helper in seen and seen[helper].kind), None)
        if stored is not None and not (own and own.kind):
            yield msgspec.structs.replace(stored, pid=one[0], start=one[1], helper=stored.pid)
        elif own is not None:
            yield own


def _place(proc: Proc, one: Identity) -> Place | None:
    """Where its main thread waits now; None: nowhere, or it is gone."""
    pid, start = one
    try:
        channel = proc.text(pid, "wchan", limit=256).decode(errors="replace").strip()
        if channel in ("", "0"):
            return None
        call, fd = calls.parse(proc.text(pid, "syscall", limit=512).decode(errors="replace"))
        status, stat = proc.status(pid), proc.stat(pid)
    except (*GONE, PermissionError):
        return None
    if not call or status is None or stat is None or stat.start != start:
        return None
    return Place(channel, call, fd, status.switches)


def _resolved(proc: Proc, one: Identity, place: Place, over_s: float, tables: dict[str, list[Mount]]) -> WaitSeen:
    """With the mount that it waits for, where it waits for one."""
    pid, start = one
    seen = WaitSeen(pid, start, place.channel, place.call, over_s=round(over_s, 2))
    if family_of(place.channel) is None:
        return seen
    try:
        # Processes of one container, or of none, see the same mounts.
        space = proc.link(pid, "ns", "mnt") or str(pid)
        if space not in tables:
            tables[space] = parse_mounts(proc.text(pid, "mountinfo", limit=LIMIT))
        mount_id = None if place.fd is None else proc.mount_of(pid, place.fd)
        seen.kind, mount = store_of(place.channel, mount_id, tables[space])
        if mount is not None:
            seen.mount, seen.at = mount.source, mount.at
    except (*GONE, PermissionError):
        pass
    return seen


class WaitWatch:
    """What one process waits for, from burst to burst. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.seen: WaitSeen | None = None
        self.since = self.last = 0.0
        self.asked_since: float | None = None
        """Since when it has been quiet enough to be asked, without a break."""

    def see(self, seen: WaitSeen | None, at: float) -> None:
        """Take a burst in; None: its samples did not agree."""
        before = self.seen
        if seen is None:
            self.seen = None
            return
        same = before is not None and (seen.channel, seen.call, seen.mount, seen.kind, seen.helper) == (
            before.channel, before.call, before.mount, before.kind, before.helper)
        if not same or at - self.last > LOOSE_S:
            self.since = at - seen.over_s
        self.seen, self.last = seen, at

    def ask(self, now: float) -> None:
        """It has gone quiet and is asked."""
        self.asked_since = now if self.asked_since is None else self.asked_since

    def clear(self) -> None:
        """It works again."""
        self.seen = self.asked_since = None

    def unsettled(self, now: float) -> bool:
        """It has gone quiet a short while ago: the next look is to come soon."""
        return self.asked_since is not None and now - self.asked_since < 2 * LONG_S

    def long(self, now: float) -> bool:
        """It has waited for storage for half a minute."""
        wait = self.record(now)
        return wait is not None and bool(wait.kind) and wait.s >= LONG_S

    def record(self, now: float) -> report.Wait | None:
        """For the report."""
        seen = self.seen
        if seen is None or now - self.last > LOOSE_S:
            return None
        return report.Wait(channel=seen.channel, s=round(now - self.since, 2), call=seen.call, mount=seen.mount,
                           at=seen.at, kind=seen.kind, helper=seen.helper)
