"""Python stacks on demand: what the controller asked of which job, and what was read. One job at a time on a node;
nothing is done, and nothing is held in memory, while nobody asks.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
from astraeus_protocol import report
from astraeus_protocol.readings import End, Stack, ThreadStack

from ..clock import Clock
from ..host.procfs import Proc
from ..log import say, say_once
from ..probes import pyspy, tail
from ..probes.children import BUSY, Probes
from ..sources.process import ProcessWatch
from ..watch.job import JobWatch
from ..watch.step import StepWatch
from ..watch.worker import WorkerWatch
from . import tails

AT_MOST = 64
"""Worker processes of a job that are read; the others are unknown."""
ROOM = 128 << 10
"""Characters of an answer's other threads, all processes together: a report holds 1 MiB, and more than this."""
DEADLINE_S = pyspy.JOB_DEADLINE_S + 3
KIND = "stacks"
STORAGE_S = 10
"""A process that has waited for storage for so long is left alone."""
OFF = "the site has switched stacks off on this node (stacks in [monitor])"
MISSING = ("py-spy is not installed beside the monitor; install astraeus-slurm[monitor], or write its path into "
           "[monitor] stacks")


class Asked:
    """A command and its answer. ``at``: when each process was read (CLOCK_BOOTTIME seconds)."""

    def __init__(self, command: report.TakeStacks) -> None:
        self.command = command
        self.taken: list[Stack] = []
        self.at = 0.0
        self.unknown = ""
        self.ends: list[End] = []
        self.reading = 0
        """Ends of outputs that are being read for it."""
        self.done = self.told = False

    def record(self, now: float) -> report.Stacks | None:
        """For the report; None where there is nothing to tell."""
        if not self.done or self.told or self.reading:
            return None
        age = round(now - self.at, 2)
        return report.Stacks(self.command.ask, self.command.native,
                             [msgspec.structs.replace(stack, s=age) for stack in self.taken], self.unknown, self.ends)


class Stacks:
    """``setting``: the site's, ``auto``, ``off`` or a path. ``soon()``: the controller is to hear at once."""

    def __init__(self, probes: Probes, proc: Proc, clock: Clock, soon: Callable[[], None]) -> None:
        self.probes, self.proc, self.clock, self.soon = probes, proc, clock, soon
        self.setting = "auto"
        self.of: dict[int, Asked] = {}
        """Job to what was last asked of it."""
        self._waiting: deque[JobWatch] = deque()
        self._sent: list[Asked] = []
        self._hangs: dict[int, int] = {}
        """PID to start time of a py-spy that can't be killed: while one hangs, no other begins."""

    def ask(self, job: JobWatch, command: report.TakeStacks) -> bool:
        """Obey a command; whether there is an answer to be told at once."""
        known = self.of.get(job.job)
        if known is not None and known.command.ask == command.ask:
            # It comes again while we read, or because the answer was lost (a controller that was started anew).
            known.told = False
            return known.done
        self.of[job.job] = Asked(command)
        self._read_ends(job, self.of[job.job])
        if job not in self._waiting:
            self._waiting.append(job)
        self.next()
        return self.of[job.job].done

    def record(self, job: JobWatch, now: float) -> report.Stacks | None:
        """A job's answer, for the report that is being made."""
        asked = self.of.get(job.job)
        found = asked.record(now) if asked else None
        if asked and found and asked not in self._sent:  # while the controller is away report after report is made
            self._sent.append(asked)
        return found

    def arrived(self) -> None:
        """A reply came: the report before it has arrived."""
        for asked in self._sent:
            asked.told = True
        self._sent.clear()

    def left(self, job: JobWatch) -> None:
        """The job is gone."""
        self.of.pop(job.job, None)
        if job in self._waiting:
            self._waiting.remove(job)

    def next(self) -> None:
        """Begin with the next job, where none is being read."""
        while self._waiting and KIND not in self.probes.running:
            job = self._waiting.popleft()
            asked = self.of.get(job.job)
            if asked and not asked.done:
                self._begin(job, asked)

    def _begin(self, job: JobWatch, asked: Asked) -> None:
        found = processes(job, asked.command.step)
        targets = [pyspy.Target(p.id, "" if place < AT_MOST else f"only {AT_MOST} of a node are read")
                   for place, (_, _, p) in enumerate(found)]
        for target, (_, _, process) in zip(targets, found, strict=True):
            target.skip = target.skip or _unfit(process, self.clock.boot())
        program, why = self.program()
        if not found:
            why = "no worker process of it runs here"
        why = why or self.probes.start(KIND, partial(pyspy.dump, self.proc, program, targets, asked.command.native),
                                       partial(self._read, job, asked, found), DEADLINE_S)
        if why == BUSY:
            self._waiting.append(job)
        elif why:
            self._answer(job, asked, [], why)

    def _read_ends(self, job: JobWatch, asked: Asked) -> None:
        """The last lines of its steps' output, beside the stacks: both are evidence of the same moment."""
        for step in job.steps.values():
            source = tails.source(job, step) if asked.command.step in ("", step.step) else None
            if source is None:
                continue
            log = source.ask.path
            why = self.probes.start(f"end {job.job}.{step.step}", partial(tail.lines, self.proc, source.ask),
                                    partial(self._end_read, job, asked, step, log))
            asked.reading += not why
            if why:
                asked.ends.append(tails.end(step, log, [], why))

    def _end_read(self, job: JobWatch, asked: Asked, step: StepWatch, log: str, lines: list[bytes], why: str) -> None:
        asked.reading -= 1
        asked.ends.append(tails.end(step, log, lines, why))
        if asked.done and not asked.reading and self.of.get(job.job) is asked:
            self.soon()

    def program(self) -> tuple[str, str]:
        """(py-spy's path, why it can't be run)."""
        self._hangs = {pid: start for pid, start in self._hangs.items()
                       if (seen := self.proc.stat(pid)) and seen.start == start}
        if self.setting == "off":
            return "", OFF
        path = os.path.join(os.path.dirname(sys.executable), "py-spy") if self.setting == "auto" else self.setting
        if not os.access(path, os.X_OK):
            return "", MISSING if self.setting == "auto" else f"{path}, named by stacks in [monitor], can't be run"
        return path, "a py-spy from before hangs in the kernel" if self._hangs else ""

    def _read(self, job: JobWatch, asked: Asked, found: list[tuple[StepWatch, WorkerWatch, ProcessWatch]],
              lines: list[bytes], why: str) -> None:
        looks: dict[tuple[int, int], pyspy.StackLook] = {}
        for line in lines:
            try:
                look = pyspy.DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            looks[look.pid, look.start] = look
            if look.hangs and (seen := self.proc.stat(look.hangs)):
                self._hangs[look.hangs] = seen.start
                self.probes.stuck += 1
                say(f"py-spy (PID {look.hangs}) hangs in the kernel on process {look.pid} and is left behind")
        room, taken = ROOM // max(1, len(found)), []
        for step, worker, process in found:
            look = looks.get(process.id) or pyspy.StackLook(*process.id, unknown=why or "py-spy's child ended early")
            taken.append(Stack(
                look.pid, look.start, step.step, worker.rank, process.local, process.rank, frames=look.frames,
                threads=fitting(look.threads, room), unknown=look.unknown))
        self._answer(job, asked, taken, "")

    def _answer(self, job: JobWatch, asked: Asked, taken: list[Stack], why: str) -> None:
        asked.taken, asked.unknown, asked.at, asked.done = taken, why, self.clock.boot(), True
        say_once(f"stacks {job.job}", f"job {job.job}: stacks: {why}" if why else "")
        if self.of.get(job.job) is asked:
            self.soon()
        self.next()


def processes(job: JobWatch, step: str) -> list[tuple[StepWatch, WorkerWatch, ProcessWatch]]:
    """Living worker processes of a job, or of one of its steps."""
    return [(s, worker, p) for s, worker in job.running() if step in ("", s.step)
            for p in worker.roster.processes if not p.gone]


def _unfit(process: ProcessWatch, now: float) -> str:
    """Why it is not to be read, by what is known of it already."""
    if process.traced:
        return pyspy.UNFIT["t"]
    wait = process.wait.record(now) if process.quiet(now) else None
    if wait and wait.kind and not wait.helper and wait.s >= STORAGE_S:
        return "it waits for storage: reading its program could hang, too"
    return ""


def fitting(threads: list[ThreadStack], room: int) -> list[ThreadStack]:
    """As many of them as fit into so many characters."""
    kept = []
    for thread in threads:
        room -= len(thread.name) + sum(map(len, thread.frames))
        if room < 0:
            break
        kept.append(thread)
    return kept
