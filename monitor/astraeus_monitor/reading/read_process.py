"""``astraeus-monitor read process PID``: everything that the monitor can tell of one process, on demand.

It is read as the monitor's children read it, but here and now: should a file of /proc not answer, this command hangs,
and not the monitor.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from astraeus_protocol import report

from ..clock import Clock
from ..host import oom
from ..host.cgroups import CgroupFiles, cgroups_of
from ..host.frozen import is_frozen
from ..host.procfs import Proc, Stat
from ..host.tree import ProcLook
from ..probes import closer
from ..probes.closer import CloserWatch, EdgesSeen
from ..probes.look import RANK_VARIABLES
from ..probes.waits import WaitWatch, look_at_waits
from ..sources.process import HERTZ


class ProcessReading(msgspec.Struct, tag="process", omit_defaults=True):
    """A process as a report would show it, and what its cgroup says."""

    process: report.Process
    read_bytes: int | None = None
    write_bytes: int | None = None
    """What it had the storage read and write so far."""
    frozen: bool = False
    tracer: int = 0
    """PID of the debugger."""
    oom_kills: int | None = None
    """In its cgroup, since that was made; None: nobody counts them."""
    unknown: list[report.Unknown] = []


def process(pid: int, watch_s: float, proc: Proc, clock: Clock,
            sleep: Callable[[float], None] = time.sleep) -> ProcessReading | str:
    """Looks once, or twice ``watch_s`` seconds apart: only then pulse and CPU are known. Why there is no reading."""
    stat, status, began = proc.stat(pid), proc.status(pid), clock.boot()
    if stat is None or status is None:
        return f"there is no process {pid}"
    wait, watch = WaitWatch(), CloserWatch()
    faults = _look(proc, stat, wait, watch, clock, sleep)
    pulse = cpu = None
    if watch_s:
        sleep(watch_s)
        again, now_status, now = proc.stat(pid), proc.status(pid), clock.boot()
        if again is None or now_status is None or again.start != stat.start:
            return f"process {pid} ended meanwhile"
        pulse = round((now_status.switches - status.switches) / (now - began), 2)
        cpu = round(100 * (again.ticks - stat.ticks) / HERTZ / (now - began), 1)
        stat, status = again, now_status
        faults = _look(proc, stat, wait, watch, clock, sleep)
    now = clock.boot()
    try:
        io, environ = proc.io(pid), proc.environ(pid)
    except PermissionError:
        return f"may not read /proc/{pid}: run it as root"
    cgroups, files = cgroups_of(proc, pid), CgroupFiles()
    kills = oom.kills(cgroups, files)
    if kills is None:
        faults.append(report.Unknown("oom", oom.NO_COUNT))
    return ProcessReading(
        report.Process(
            pid=pid, start=stat.start, rank=next((environ[name] for name in RANK_VARIABLES if name in environ), ""),
            comm=stat.comm, state=stat.state, state_s=None, exit_status=stat.exit_code if stat.state == "Z" else None,
            pulse=pulse, cpu=cpu, traced=status.tracer > 0, wait=wait.record(now), place=watch.told(now),
            edges=watch.edges_told(now)),
        read_bytes=io.get("read_bytes"), write_bytes=io.get("write_bytes"), frozen=is_frozen(cgroups, files),
        tracer=status.tracer, oom_kills=kills, unknown=faults)


def text(reading: ProcessReading) -> str:
    """For people, line by line."""
    p, place = reading.process, reading.process.place
    lines = [f"process: {p.pid} {p.comm}" + (f" (rank {p.rank})" if p.rank else "") + f", state {p.state}"
             + (", its cgroup is frozen" if reading.frozen else "")
             + (f", held by a debugger (PID {reading.tracer})" if reading.tracer else "")]
    if place is not None:
        where = " ".join(filter(None, (place.channel, place.call and f"({place.call})"))) or "running"
        lines += [f"main thread: {where} in {place.share:.0%} of {place.samples} samples; "
                  f"user {place.user:.0f} %, system {place.system:.0f} %, {place.switches:g} voluntary switches/s",
                  f"threads: {place.threads}"]
    if p.wait is not None and p.wait.kind:
        store = f"{p.wait.mount} (mounted at {p.wait.at}, {p.wait.kind})" if p.wait.mount else p.wait.kind
        lines.append(f"waits for storage: {store}" + (f", in process {p.wait.helper}" if p.wait.helper else ""))
    if p.pulse is not None:
        lines.append(f"pulse: {p.pulse:g} voluntary switches/s; CPU {p.cpu:g} % of a core")
    if reading.write_bytes is not None:
        lines.append(f"storage: {reading.read_bytes} bytes read, {reading.write_bytes} written")
    for edge in p.edges:
        words = (f"{edge.queued} bytes unread" if edge.queued else "", f"{edge.unacked} segments unacknowledged"
                 if edge.unacked else "", f"{edge.notsent} bytes not sent" if edge.notsent else "",
                 f"backs off ({edge.backoff})" if edge.backoff else "")
        said = ", ".join(filter(None, words)) or "nothing pending"
        lines.append(f"connection {edge.n}: {said}; last sent {edge.sent_s:.0f} s ago, "
                     f"received {edge.rcvd_s:.0f} s ago")
    if reading.oom_kills is not None:
        lines.append(f"killed for lack of memory in its cgroup: {reading.oom_kills}")
    return "\n  ".join([*lines, *(f"{one.source}: unknown: {one.reason}" for one in reading.unknown)])


def _look(proc: Proc, stat: Stat, wait: WaitWatch, watch: CloserWatch, clock: Clock,
          sleep: Callable[[float], None]) -> list[report.Unknown]:
    one = stat.pid, stat.start
    if stat.state in "ZX":
        return []
    below = [ProcLook(found.pid, found.start, found.ppid, found.comm, found.state) for found in proc.tree(stat.pid)]
    for found in below[:1]:
        found.worker = True
    seen = list(look_at_waits(proc, [one], below, {}, sleep))
    wait.see(seen[0] if seen else None, clock.boot())
    faults = []
    for line in closer.look_closer(proc, [one], sleep):
        if isinstance(line, EdgesSeen) and line.fault:
            faults.append(report.Unknown("edges", line.fault))
        else:
            watch.see(line, clock.boot())
    if watch.place is None:
        faults.append(report.Unknown("place", f"may not read /proc/{stat.pid}: run it as root"))
    return faults
