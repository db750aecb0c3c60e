"""One worker, a task of a step: its processes and clocks. Fed with samples and looks; no I/O of its own."""

from __future__ import annotations

import os
from typing import Any

from astraeus_protocol import report

from ..host.oom import NO_COUNT, OomWatch
from ..host.outputs import Inlet
from ..host.procfs import Stat
from ..host.tree import Identity, is_copy
from ..probes.look import File, TaskLook
from ..sources import output as out
from ..sources.metric import MetricClock
from ..sources.process import ProcessWatch, Roster
from ..sources.rests import Rests
from ..sources.written import TreeCpu, Written

HERTZ = os.sysconf("SC_CLK_TCK")
EXIT_LINE_S = 3
"""How long a task's process may be gone before the plugin's line tells how it ended."""
TIES_OFTEN_S, TIES_SELDOM_S = 600, 300
"""Ties are read at each look in a worker's first 10 min, then every 5 min, and no more once it is tied."""


class WorkerWatch:
    """One task. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, rank: int, local: int, pid: int, start: int, now: float, window_s: float,
                 began: float) -> None:
        self.rank, self.local, self.pid, self.start = rank, local, pid, start
        self.began = began
        self.state, self.exit_at = "running", 0.0
        self.exit_status: int | None = None
        self.roster = Roster(window_s)
        self.growth = out.Growth(now)
        self.written, self.cpu = Written(), TreeCpu(now, HERTZ)
        self.metrics: dict[str, MetricClock] = {}
        """By name, those that the run names."""
        self.quiet = out.Quiet(now)
        self.to: str | None = None
        """Where its output goes, as in ``outputs.Routes``; None: not known yet."""
        self.inlets: list[Inlet] = []
        self.has_file = False
        """Files hold its output, or part of it."""
        self.outs: dict[Identity, list[int]] = {}
        self.files: list[File] = []
        self.faults: list[tuple[str, str]] = []
        self.looked_at = now
        self.missed = "not looked at yet"
        """Why the last look told nothing; "" when it did."""
        self.suspect = False
        """Its files did not answer once: it is looked at last."""
        self.tree: list[Identity] = []
        self.holds_gpu: dict[Identity, bool] = {}
        self.helpers: set[Identity] = set()
        """What worker processes forked: their open files are inherited and say nothing."""
        self.launchers: dict[Identity, bool] = {}
        self.frozen = False
        self.ties_at = 0.0
        self.wants_fds = False
        """The next look is to read all its sockets."""
        self.absent_since: float | None = None
        self.oom = OomWatch()
        self.rests = Rests()

    @property
    def holds_all(self) -> bool:
        """Files hold all of its output that anybody could see: no srun is needed."""
        return self.has_file and not self.to

    @property
    def running(self) -> bool:
        """Its end is not known."""
        return self.state == "running"

    def ended(self, state: str, at: float, status: int | None) -> None:
        """Its task has ended."""
        self.state, self.exit_at, self.exit_status = state, at, status
        for process in self.roster.processes:
            if process.pid == self.pid:
                process.exit_status = status if process.exit_status is None else process.exit_status
                # Also one that a sample met as a zombie, between its death and slurmstepd's wait: it is gone now,
                # and nobody samples it again.
                if not process.gone:
                    process.sample(at, None, None, job_stopped=False)

    def see(self, seen: TaskLook, now: float) -> bool:
        """Take a look in; whether its list of worker processes changed."""
        self.missed, self.faults, self.suspect, self.looked_at = "", list(seen.faults), False, now
        if not seen.procs:
            return False
        self.frozen = seen.frozen
        if seen.to is not None:
            self.to, self.inlets = seen.to, seen.inlets
        self.outs = {p.id: p.outs for p in seen.procs if not p.aside}
        self.quiet.see(seen.procs, now)
        if seen.step == "batch":
            self.rests.see(seen.procs, now)
        self.tree = [p.id for p in seen.procs]
        self.holds_gpu = {p.id: p.gpu for p in seen.procs}
        self.launchers.update(self.cpu.see(seen.procs, now))
        workers = {p.pid: p for p in seen.procs if p.worker}
        self.helpers = {p.id for p in seen.procs if p.ppid in workers and not p.worker
                        and is_copy(p, workers[p.ppid])}
        self.written.see(seen.procs, now)
        # A wrapper's file is not where a training prints that was sent to /dev/null.
        self.has_file = bool(seen.files) and self.to not in ("null", "nothing")
        self.oom.see(seen.oom, now)
        self.files = seen.files
        return self.roster.see(seen.procs)

    def check(self, stat: Stat | None, now: float, *, plugin: bool) -> bool:
        """Whether its task's process has just gone; the plugin's exit line has until the next sample."""
        if stat is not None and stat.start == self.start:
            self.absent_since = None
        elif self.absent_since is None:
            self.absent_since = now
            if not plugin:
                self.ended("gone", now, None)
            return True
        elif now - self.absent_since >= EXIT_LINE_S:
            self.ended("gone", self.absent_since, None)
        return False

    def record(self, now: float, gpus: tuple[list[report.Gpu], list[report.Unknown]], step: str, *,
               ties: bool) -> report.Worker:
        """For the report."""
        unknown = [report.Unknown(source, why) for source, why in self.faults]
        unknown += gpus[1] if self.running else []
        metrics = list(self.metrics.values()) if self.running else []
        unknown += [report.Unknown("metric", why) for why in dict.fromkeys(clock.why for clock in metrics) if why]
        unknown += self._closer_unknown() if self.running else []
        output_s = writing_s = cpu_idle_s = quiet_s = None
        if self.running and self.missed:
            unknown += [report.Unknown(source, self.missed) for source in ("output", "written", "cpu")]
        elif self.running:
            writing_s, cpu_idle_s = self.written.seconds(now), now - self.cpu.busy_at
            if writing_s is None:
                unknown.append(report.Unknown("written", "not looked at twice yet"))
            if self.has_file:
                output_s = now - self.growth.last
            if self.to:
                quiet_s = self.quiet.seconds(now)
            why = "" if self.has_file and not self.to else out.reason(self.to or "", step)
            if why:
                unknown.append(report.Unknown("output", why))
        return report.Worker(
            rank=self.rank, local=self.local, pid=self.pid, start=self.start, state=self.state,
            exit_status=self.exit_status, exit_s=None if self.running else rounded(now - self.exit_at),
            output_s=rounded(output_s), writing_s=rounded(writing_s), cpu_idle_s=rounded(cpu_idle_s),
            quiet_s=rounded(quiet_s),
            rests_s=rounded(self.rests.seconds(now)) if self.running and not self.missed else None,
            output_to=self.to or "" if self.running else "",
            looked_s=round(now - self.looked_at, 2), began_s=round(now - self.began, 2),
            processes=[p.record(now, HERTZ, ties=ties) for p in self.roster.processes],
            gpus=gpus[0] if self.running else [], metrics=[clock.record(now) for clock in metrics],
            oom=self.oom.record(now), unknown=unknown)

    def _closer_unknown(self) -> list[report.Unknown]:
        """What the closer look at a quiet step could not tell."""
        found = [report.Unknown("process", p.closer.fault) for p in self.roster.processes if p.closer.fault]
        looked = any(p.closer.place for p in self.roster.processes)
        return found[:1] + ([report.Unknown("oom", NO_COUNT)] if looked and self.oom.last is None else [])

    def wants_ties(self, now: float) -> bool:
        """Whether this look is to read its connections."""
        return now - self.ties_at >= (0 if now - self.began < TIES_OFTEN_S else TIES_SELDOM_S)

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {
            "pid": self.pid, "start": self.start, "state": self.state,
            "exit": [self.exit_status, self.exit_at], "growth": self.growth.save(),
            "written": self.written.save(), "cpu_busy_at": self.cpu.busy_at,
            "launchers": [[*key, verdict] for key, verdict in self.launchers.items()],
            "processes": [p.save() for p in self.roster.processes], "file": self.has_file, "tree": self.tree,
            "metrics": [clock.save() for clock in self.metrics.values()],
            "quiet": self.quiet.save(), "to": self.to, "outs": [[*key, fds] for key, fds in self.outs.items()],
            "oom": [self.oom.first, self.oom.last, self.oom.at], "rests": [self.rests.since, self.rests.known]}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file, if it is of the same process."""
        if (saved["pid"], saved["start"]) != (self.pid, self.start):
            return
        self.growth.load(saved["growth"])
        self.written.load(saved["written"])
        self.cpu.busy_at = float(saved["cpu_busy_at"])
        self.launchers = {(int(pid), int(start)): bool(verdict) for pid, start, verdict in saved["launchers"]}
        self.has_file, self.to = bool(saved["file"]), saved.get("to")
        if "quiet" in saved:
            self.quiet.load(saved["quiet"])
        self.outs = {(int(pid), int(start)): [int(fd) for fd in fds] for pid, start, fds in saved.get("outs", ())}
        self.tree = [(int(pid), int(start)) for pid, start in saved["tree"]]
        self.metrics = {clock.name: clock for clock in map(MetricClock.load, saved.get("metrics", ()))}
        self.rests.since, self.rests.known = saved.get("rests", (None, False))
        self.oom.first, self.oom.last, self.oom.at = saved.get("oom", (None, None, 0.0))
        self.roster.processes = [ProcessWatch.load(p, self.roster.window_s) for p in saved["processes"]]
        self.roster.settled = bool(self.roster.processes)
        if self.running and saved["state"] != "running":
            self.ended(saved["state"], float(saved["exit"][1]), saved["exit"][0])


def rounded(value: float | None) -> float | None:
    """Two places are enough for an age."""
    return None if value is None else round(value, 2)
