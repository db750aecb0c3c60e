"""Source ``process``: states, pulses and ends of a worker's processes. Pure: records in."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from astraeus_protocol import report

from ..host.procfs import Stat, Status
from ..host.tree import SHELLS, Identity, ProcLook
from ..probes.closer import CloserWatch
from ..probes.waits import WaitWatch
from .pulse import Pulse

HERTZ = os.sysconf("SC_CLK_TCK")
HELD = "TtZDX"
"""States that have an age."""
LONG_D_S = 10
"""D is told at once after so long: shorter is a disk at work."""
ALIVE = "RSDTtIZ"
CPU_WINDOW_S = 14.5
"""Its use of the CPU is that of so long at least, once samples of it reach so far."""
QUIET_CPU = 2.0
"""Percent of a core under which a process whose pulse is not known counts as quiet."""


class ProcessWatch:
    """One worker process. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, seen: ProcLook, local: int, window_s: float) -> None:
        self.pid, self.start, self.ppid = seen.pid, seen.start, seen.ppid
        self.local, self.comm, self.rank = local, seen.comm, seen.rank.partition("=")[2]
        self.inner = seen.inner
        self.state = "?"
        self.since: float | None = None
        self.exit_status: int | None = None
        self.pulse = Pulse(window_s)
        self.traced = False
        self.ties: list[int] = []
        self.visible = seen.visible
        self.cpu: deque[tuple[float, int]] = deque(maxlen=16)
        self.wait = WaitWatch()
        self.closer = CloserWatch()

    @property
    def id(self) -> Identity:
        """(PID, start)"""
        return self.pid, self.start

    @property
    def gone(self) -> bool:
        """Nothing of it is left."""
        return self.state == "X"

    def sample(self, at: float, stat: Stat | None, status: Status | None, *, job_stopped: bool) -> None:
        """Take a sample in; ``stat`` None or another start: it is gone."""
        if self.gone:
            return
        if stat is None or stat.start != self.start:
            self._enter("X", at)
            self.pulse.blind = True
            return
        was = self.state
        self._enter(stat.state, at)
        if stat.state == "Z":
            self.exit_status = stat.exit_code
        self.comm, self.ppid = stat.comm, stat.ppid
        if stat.fresh:
            self.cpu.append((at, stat.ticks))
            while len(self.cpu) > 2 and at - self.cpu[1][0] >= CPU_WINDOW_S:
                self.cpu.popleft()
        if status is not None:
            self.traced = status.tracer > 0
            touched = job_stopped or stat.state in "TtZ" or was in "Tt"
            self.pulse.sample(at, status.switches, touched=touched)

    def held_s(self, now: float) -> float | None:
        """For how long it has been in T, t, Z, D or X."""
        return None if self.since is None else now - self.since

    def sign(self, now: float) -> str:
        """What of its state is told at once when it changes."""
        if self.state == "D":
            sign = "D" if (self.held_s(now) or 0) >= LONG_D_S else "S"
        else:
            sign = self.state if self.state in HELD else "S"
        return f"{sign} storage" if self.wait.long(now) and self.quiet(now) else sign

    def quiet(self, now: float) -> bool:
        """It is in D, has lost its pulse, or, where that is not known, uses next to no CPU."""
        if self.state in "TtZX?":
            return False
        gone_s, cpu = self.pulse.gone_s(now), self.percent(HERTZ)
        return self.state == "D" or (gone_s > 0 if gone_s is not None else cpu is not None and cpu < QUIET_CPU)

    def uneasy(self, now: float) -> bool:
        """It is not plainly at work, or was not when it was last asked what it waits for."""
        return self.state not in "RS" or self.pulse.quiet > 0 or self.wait.asked_since is not None or self.quiet(now)

    def wants_wait(self, now: float) -> bool:
        """Whether a look is to read what it waits for: one that works is never asked."""
        if not self.quiet(now):
            self.wait.clear()
            return False
        self.wait.ask(now)
        return True

    def percent(self, hertz: float) -> float | None:
        """Percent of one core over the last samples; None before the second."""
        if len(self.cpu) < 2:
            return None
        (t0, n0), (t1, n1) = self.cpu[0], self.cpu[-1]
        return round(100 * (n1 - n0) / hertz / (t1 - t0), 1) if t1 > t0 else None

    def record(self, now: float, hertz: float, *, ties: bool) -> report.Process:
        """For the report."""
        gone = self.gone or self.state == "Z"
        base = self.pulse.base()
        return report.Process(
            pid=self.pid, start=self.start, local=self.local, inner=self.inner, rank=self.rank, comm=self.comm,
            state=self.state, state_s=_r(self.held_s(now)), exit_status=self.exit_status,
            pulse=None if gone else _r(self.pulse.rate), pulse_base=_r(base),
            pulse_gone_s=None if gone else _r(self.pulse.gone_s(now)),
            cpu=None if gone else self.percent(hertz), traced=self.traced, ties=self.ties if ties else [],
            wait=self.wait.record(now) if self.quiet(now) else None,
            place=None if gone else self.closer.told(now), edges=[] if gone else self.closer.edges_told(now))

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"pid": self.pid, "start": self.start, "ppid": self.ppid, "local": self.local,
                "comm": self.comm, "rank": self.rank, "state": self.state, "since": self.since,
                "exit": self.exit_status, "visible": self.visible, "pulse": self.pulse.save(),
                "ties": self.ties, "inner": self.inner}

    @classmethod
    def load(cls, saved: dict[str, Any], window_s: float) -> ProcessWatch:
        """From the clock file."""
        seen = ProcLook(int(saved["pid"]), int(saved["start"]), int(saved["ppid"]), str(saved["comm"]),
                        rank="=" + str(saved["rank"]), visible=saved["visible"], inner=int(saved.get("inner", 0)))
        watch = cls(seen, int(saved["local"]), window_s)
        watch.state, watch.since, watch.exit_status = str(saved["state"]), saved["since"], saved["exit"]
        watch.pulse.load(saved["pulse"])
        watch.ties = [int(tie) for tie in saved.get("ties", ())]
        return watch

    def _enter(self, state: str, at: float) -> None:
        if state != self.state:
            self.since = at if state in HELD else None
        self.state = state


class Roster:
    """Worker processes of one worker, each in its place."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.processes: list[ProcessWatch] = []
        self.settled = False
        """One took another's place: order of start no longer tells the places."""

    def see(self, procs: list[ProcLook]) -> bool:
        """Take a look's tree in; whether a process came or left the list.

        One that vanished keeps its place as X until another comes: it takes the lowest such place. One that
        lives on but no longer counts (a wrapper that has children now) leaves.
        """
        living = {p.id: p for p in procs}
        parents = {p.ppid for p in self.processes}
        # A shell that is left alone by the workers it started is their wrapper still: it takes no place, and theirs
        # are kept. A gang that collapsed once showed only its bash, and the rank that was killed first was gone.
        found = {p.id: p for p in procs if p.worker and not (p.comm in SHELLS and p.pid in parents)}
        before = [p.id for p in self.processes]
        kept = []
        heads = {p.pid for p in found.values()} - {p.pid for p in self.processes}
        for process in self.processes:
            seen = living.get(process.id)
            reclassified = seen is not None and not seen.worker and seen.state not in "ZX"
            # Children of a process that does the work itself now have done their part.
            outlived = process.state in "XZ" and seen is None and process.ppid in heads
            if not reclassified and not outlived:
                kept.append(process)
        self.processes = kept
        known = {p.id for p in kept}
        for seen in sorted(found.values(), key=lambda p: p.id[::-1]):
            if seen.id not in known:
                self._place(ProcessWatch(seen, 0, self.window_s))
        for process in self.processes:
            seen = found.get(process.id)
            if seen:
                process.rank, process.visible = seen.rank.partition("=")[2], seen.visible
                process.inner = seen.inner
                process.ties = seen.ties or process.ties
        if not self.settled and not any(p.gone for p in self.processes):
            self.processes.sort(key=lambda p: p.id[::-1])
        for local, process in enumerate(self.processes):
            process.local = local
        return before != [p.id for p in self.processes]

    def _place(self, process: ProcessWatch) -> None:
        for place, other in enumerate(self.processes):
            if other.gone:
                self.processes[place], self.settled = process, True
                return
        self.processes.append(process)


def pulse_gone_in_most(processes: list[ProcessWatch], now: float) -> bool:
    """More than half of the processes have lost their pulse."""
    return 2 * sum((p.pulse.gone_s(now) or 0) > 0 for p in processes) > len(processes)


def _r(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
