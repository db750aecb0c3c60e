"""One watch per step: its workers, its shared output, its end. Fed with step-file lines, samples and looks;
asked for its part of the report. No I/O of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from astraeus_protocol import report
from astraeus_protocol.settings import BY_KEY

from ..host.procfs import Stat
from ..host.tree import Identity
from ..probes.look import File, SrunLook, TaskAsk
from ..sources import output as out
from ..sources.gpu_which import indices
from ..sources.nccl_ras import RasWatch
from ..sources.process import ProcessWatch, pulse_gone_in_most
from ..sources.words import Words
from .worker import EXIT_LINE_S, WorkerWatch

_WHOLE = re.compile(r"-?[0-9]{1,18}")
"""Python's own test takes digits of any script, and int() then refuses some."""
GpusOf = Callable[["StepWatch", WorkerWatch], tuple[list[report.Gpu], list[report.Unknown]]]


class StepWatch:
    """One step's part on this node."""

    def __init__(self, step: str, facts: dict[str, str], now: float, window_s: float, *,
                 plugin: bool = True) -> None:
        self.step, self.facts, self.plugin, self.window_s = step, facts, plugin, window_s
        self.came = now
        self.began = seconds(facts.get("at"), now)
        self.stepd = (integer(facts.get("stepd")), integer(facts.get("stepd_start")))
        host, _, port = facts.get("launch", "").rpartition(":")
        self.launch_host, self.launch_port = host, integer(port)
        self.gpus: dict[int, tuple[list[int], str | None]] = {}
        """Rank to its step's GPUs here and its CUDA_VISIBLE_DEVICES, as the task itself found them."""
        self.workers: dict[int, WorkerWatch] = {}
        self.growth = out.Growth(now)
        self.gaps = out.Gaps()
        self.words = Words()
        self.sruns: list[Identity] = []
        self.files: list[File] = []
        """What its sruns hold."""
        self.relays: list[tuple[int, int, int]] = []
        """(PID, start, descriptor): files into which others of the job hand on what its sruns write into pipes."""
        self.drops = False
        """Its srun throws the output away."""
        self.to = ""
        """Where else its sruns write, as in ``outputs.Routes``."""
        self.shared_seen = False
        self.shared_at = now
        """When its shared file was last looked at."""
        self.shared_missed = ""
        """Why the last look did not tell how its shared file stands."""
        self.tied = False
        self.closer_asked = False
        """The controller asks for a closer look at its processes."""
        self.ras, self.ras_asked = RasWatch(), False
        """What NCCL RAS said of it; whether the controller asks for that."""
        self.quiet_since: float | None = None
        self.closer_at = float("-inf")
        """When its processes were last looked at more closely."""
        self.ended_at: float | None = None
        self.stepd_gone: float | None = None
        self.end_told = False

    @property
    def running(self) -> bool:
        """Its end is not known."""
        return self.ended_at is None

    def feed(self, lines: list[tuple[str, dict[str, str]]], now: float) -> None:
        """Take new lines of its file in."""
        for word, pairs in lines:
            rank = integer(pairs.get("rank"), -1)
            worker = self.workers.get(rank)
            if word == "task" and rank >= 0:
                pid, start = integer(pairs.get("pid")), integer(pairs.get("start"))
                if pid <= 0 or start <= 0:
                    continue  # whose process it is can't be told: the rank stays unknown
                if worker is None or (worker.pid, worker.start) != (pid, start):
                    self.workers[rank] = WorkerWatch(rank, integer(pairs.get("local")), pid, start, now,
                                                     self.window_s, self.began)
            elif word == "gpus" and "gpus" in pairs:
                found = indices(pairs["gpus"])
                if found is not None:  # it may come before its task line
                    self.gpus[rank] = found, pairs.get("visible")
            elif word == "exit" and worker is not None and "status" in pairs:
                worker.ended("exited", seconds(pairs.get("at"), now), integer(pairs["status"]))
            elif word == "end":
                self.end(seconds(pairs.get("at"), now))

    def end(self, at: float) -> None:
        """The step is over: nobody saw the end of those who still ran."""
        if self.ended_at is None:
            self.ended_at = at
        for worker in self.workers.values():
            if worker.running:
                worker.ended("gone", at, None)

    def check(self, stepd: Stat | None, now: float) -> bool:
        """Whether its slurmstepd has just gone; gone still at the next sample, the step is over."""
        if stepd is not None and stepd.start == (self.stepd[1] or stepd.start):
            self.stepd_gone = None
        elif self.stepd_gone is None:
            self.stepd_gone = now
            return True
        elif now - self.stepd_gone >= EXIT_LINE_S:
            self.end(self.stepd_gone)
        return False

    def asks(self, now: float, *, deep: bool) -> list[TaskAsk]:
        """Its running tasks, for a look."""
        asks = []
        for worker in self.workers.values():
            if self.running and worker.running:
                ties = not (self.tied or self.alone) and worker.wants_ties(now)
                worker.wants_fds = ties
                if ties:
                    worker.ties_at = now
                known = [] if deep else [pid for pid, _ in worker.tree]
                asks.append(TaskAsk(self.step, worker.rank, worker.pid, worker.start, ties, known))
        return asks

    def grew(self, now: float) -> None:
        """Something of its output grew."""
        self.gaps.grew(now)

    @property
    def holders(self) -> list[Identity]:
        """Who holds its shared file."""
        return [*self.sruns, *((pid, start) for pid, start, _ in self.relays)]

    def see_shared(self, looks: list[SrunLook], wrote: tuple[int, int] | None,
                   others: list[tuple[int, int] | None], inlets: dict[str, list[tuple[int, int, int]]],
                   now: float, *, hold: bool = False) -> None:
        """Take what its sruns hold in. ``inlets``: pipes that others of the job read, and where that ends. ``hold``:
        whether growth counts is told later."""
        files = self.files = [] if self.drops else [file for seen in looks for file in seen.files]
        into = [target for seen in looks for target in seen.into]
        self.relays = [holder for target in into for holder in inlets.get(target, ())]
        self.to = "null" if self.drops else next((out.place(target) for target in into), "")
        self.shared_seen, self.shared_missed, self.shared_at = bool(files), "", now
        if files and self.growth.moved(files, now) is not None and out.by_own_doing(wrote, others):
            self.grow(self.growth, now, hold=hold)

    def grow(self, growth: out.Growth, now: float, *, hold: bool) -> None:
        """A file of its, or of one of its workers, grew."""
        if hold:
            growth.held = now
            return
        growth.grew(now)
        self.grew(now)

    def processes(self) -> list[ProcessWatch]:
        """Worker processes of its running tasks."""
        return [process for worker in self.workers.values() if worker.running for process in worker.roster.processes]

    @property
    def alone(self) -> bool:
        """One process is all of it: it has nobody to be tied to, and nobody waits for it."""
        return self.facts.get("tasks", "1") == "1" and len(self.processes()) == 1

    def gone_quiet(self, now: float) -> bool:
        """Most of its processes here have lost their pulse, or the controller says so of the whole step. A notebook
        that rests for hours has, too."""
        quiet = self.running and not self.alone and (
            self.closer_asked or pulse_gone_in_most(self.processes(), now))
        self.quiet_since = (self.quiet_since or now) if quiet else None
        return quiet

    def marks(self, now: float) -> list[object]:
        """What is told at once when it changes."""
        processes = self.processes()
        return [self.ended_at is not None, pulse_gone_in_most(processes, now), self.growth.woke_at, self.words.line,
                any(p.closer.place for p in processes), *(
            (w.rank, w.pid, w.state, w.growth.woke_at, *((p.pid, p.sign(now)) for p in w.roster.processes))
            for w in self.workers.values())]

    def holds_shared(self, node: str) -> bool:
        """Whether the step's srun runs on this node, as its first line says."""
        return bool(self.launch_host) and self.launch_host.partition(".")[0] == node.partition(".")[0]

    def record(self, now: float, node: str, gpus_of: GpusOf) -> report.Step:
        """For the report. ``gpus_of(worker)`` gives a worker's GPU records."""
        facts, unknown, output_s = self.facts, [], None
        if self.shared_seen and self.shared_missed:
            unknown.append(report.Unknown("output", self.shared_missed))
        elif self.shared_seen:
            output_s = round(now - self.growth.last, 2)
        elif self.running and self.step != "batch" and self.holds_shared(node) and not any(
                w.holds_all or w.missed for w in self.workers.values()):
            why = (f"srun's {out.WORDS[self.to]}" if self.to in out.WORDS else
                   "srun has no file open for the output" if self.sruns else
                   f"output goes through srun on {self.launch_host}, which the monitor does not find there")
            unknown.append(report.Unknown("output", why))
        if self.running and self.words.fault:
            unknown.append(report.Unknown("finished", self.words.fault))
        log = self.growth.path or next((w.growth.path for w in self.workers.values() if w.growth.path), "")
        gap = self.gaps.median()
        return report.Step(
            step=self.step, component=maybe_integer(facts.get("component")),
            nodes=max(1, integer(facts.get("nodes"), 1)), tasks=max(1, integer(facts.get("tasks"), 1)),
            node_id=integer(facts.get("node_id")), nodelist=facts.get("nodelist", ""),
            settings=settings(facts), plugin=self.plugin, ended=self.ended_at is not None, output_s=output_s,
            looked_s=0 if output_s is None else round(now - self.shared_at, 2),
            output_to="" if self.shared_seen else self.to,
            output_gap_s=gap, log=log, finished=self.words.record(now) if self.running else None,
            ras=self.ras.record(now) if self.running else None,
            workers=[w.record(now, gpus_of(self, w), self.step, ties=not self.tied)
                     for w in self.workers.values()],
            unknown=unknown)

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"growth": self.growth.save(), "gaps": list(self.gaps.gaps), "gap_last": self.gaps.last,
                "words": self.words.save(), "drops": self.drops,
                "tied": self.tied, "sruns": self.sruns, "shared": self.shared_seen, "end_told": self.end_told,
                "ended_at": self.ended_at, "workers": {str(r): w.save() for r, w in self.workers.items()}}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.growth.load(saved["growth"])
        self.gaps.gaps.extend(float(gap) for gap in saved["gaps"])
        self.gaps.last = saved["gap_last"]
        self.words.load(saved.get("words", self.words.save()))
        self.tied, self.shared_seen, self.end_told = saved["tied"], saved["shared"], saved["end_told"]
        self.sruns = [(int(pid), int(start)) for pid, start in saved["sruns"]]
        self.drops = bool(saved.get("drops"))
        for rank, worker in saved["workers"].items():
            if int(rank) in self.workers:
                self.workers[int(rank)].load(worker)
        if saved["ended_at"] is not None:
            self.end(float(saved["ended_at"]))


def settings(facts: dict[str, str]) -> dict[str, str]:
    """The options among the facts of a job or a step."""
    return {key: value for key, value in facts.items() if key in BY_KEY}


def integer(text: str | None, default: int = 0) -> int:
    """A number, or ``default`` where there is none."""
    return int(text) if text and _WHOLE.fullmatch(text) else default


def maybe_integer(text: str | None) -> int | None:
    """A number, or None."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def seconds(text: str | None, default: float) -> float:
    """A time of CLOCK_BOOTTIME, never later than ``default``."""
    try:
        at = float(text) if text else default
    except ValueError:
        return default
    return at if 0 <= at <= default else default
