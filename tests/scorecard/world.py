"""A small world that writes recordings: nodes, ranks and what happens to them, at seconds from the start.

It knows the wire format and nothing of the rules, so that a recording is not made to fit them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from astraeus_protocol.devices import Gpu, Ras
from astraeus_protocol.readings import Edge, Finished, Metric, Oom, Place, Said, Stack, Stacks, Unknown, Wait
from astraeus_protocol.report import Job, Process, Step, Worker

BOOT = 50_000.0
"""CLOCK_BOOTTIME of the controller at second 0."""
WALL = datetime(2026, 10, 7, 13, 0, tzinfo=UTC).timestamp()
EVERY = 15
FAR = 1e9

Times = Callable[[float], float]
"""When something last happened, seen from a moment."""
Spans = list[tuple[float, float]]


def every(period: float, until: float = FAR, again: float = FAR) -> Times:
    """It happens each ``period`` seconds, not between ``until`` and ``again``."""
    def last(t: float) -> float:
        steady = t // period * period
        return steady if steady <= until or steady >= again else until // period * period
    return last


def within(spans: Spans, t: float) -> float | None:
    """Seconds since the span that holds ``t`` began."""
    return next((t - a for a, b in spans if a <= t < b), None)


@dataclass
class Proc:
    """A worker process. ``odd``: (start, end, state, exit status); ``gone``: spans without a pulse."""

    pid: int
    rank: str = ""
    ties: list[int] = field(default_factory=list)
    odd: list[tuple[float, float, str, int | None]] = field(default_factory=list)
    gone: Spans = field(default_factory=list)
    pulse_from: float = 60
    traced: Spans = field(default_factory=list)
    waits: list[tuple[float, float, Wait]] = field(default_factory=list)
    """(start, end, what it is found waiting for): read while it has no pulse or is in D."""
    places: list[tuple[float, float, Place]] = field(default_factory=list)
    """(start, end, where a closer look finds its main thread): told from 15 s after the start on."""
    cpu: list[tuple[float, float, float]] = field(default_factory=list)
    edges: list[tuple[float, float, list[Edge]]] = field(default_factory=list)
    start: int = 0
    born: float = 0
    """It appears at this second."""
    until: float = FAR
    """It is no longer listed from here on."""

    def at(self, t: float, local: int) -> Process:
        found = Process(pid=self.pid, start=self.start or self.pid * 10, local=local, rank=self.rank,
                        comm="python", state="S", ties=self.ties, traced=within(self.traced, t) is not None)
        for a, b, state, status in self.odd:
            if a <= t < b:
                found.state, found.state_s, found.exit_status = state, t - a, status
        if found.state in ("S", "D") and t - self.born >= self.pulse_from:
            gone = within(self.gone, t)
            found.pulse_gone_s = gone if gone is not None and gone >= 10 else 0.0
            found.pulse, found.pulse_base = (0.0 if found.pulse_gone_s else 60.0), 60.0
        if found.state == "D" or found.pulse_gone_s:
            found.wait = next((msgspec.structs.replace(wait, s=t - a) for a, b, wait in self.waits if a <= t < b), None)
        found.place = next((place for a, b, place in self.places if a + 15 <= t < b), None)
        found.cpu = next((cpu for a, b, cpu in self.cpu if a <= t < b), None)
        found.edges = [msgspec.structs.replace(edge, unread_s=t - a if edge.queued else 0.0)
                       for a, b, edges in self.edges if a + 15 <= t < b for edge in edges]
        return found


@dataclass
class Rank:
    """A task. ``output`` None: only the step's shared file. ``busy`` None: its GPUs were never busy."""

    rank: int
    node: str
    procs: list[Proc]
    gpus: list[int] = field(default_factory=list)
    busy: Times | None = None
    unreadable: list[int] = field(default_factory=list)
    """GPUs whose utilisation can't be read."""
    output: Times | None = None
    to: str = ""
    """Where its output goes unseen."""
    quiet: Times | None = None
    """When its processes last wrote anything, told where its output goes unseen; None: not known."""
    cpu: Times = field(default_factory=lambda: every(5))
    writing: Spans = field(default_factory=list)
    metric: Times | None = None
    """When the metric ``step`` last changed; None: nobody asks for it."""
    unread: Spans = field(default_factory=list)
    """When its endpoint can't be read."""
    told: Callable[[float, int], dict[str, Any]] | None = None
    """What its GPUs tell beside how busy they are, at a second, of the one with this index."""
    times: Callable[[float], float] | None = None
    """Its metric ``step_seconds`` at a second."""
    exit: tuple[float, int] | None = None
    killed: float | None = None
    """When one of its helpers was killed for lack of memory."""
    rests: Times | None = None
    """Since when a batch script's tree has held nothing but what waits; None: it holds more."""
    on_gpu: list[tuple[float, float, list[int]]] = field(default_factory=list)
    """(start, end, who is on each of its GPUs); None is told in between."""
    gpu_fault: list[tuple[float, float, str]] = field(default_factory=list)
    """(start, end, why its GPUs can't be read)."""

    def at(self, t: float) -> Worker:
        began = self.procs[0].pid if self.procs else 0
        found = Worker(rank=self.rank, pid=began, start=began * 10, began_s=t,
                       writing_s=within(self.writing, t) or 0.0, cpu_idle_s=t - self.cpu(t))
        if self.output is not None:
            found.output_s = t - self.output(t)
        found.output_to = self.to
        if self.to and self.quiet is not None:
            found.quiet_s = t - self.quiet(t)
        if self.exit is not None and t >= self.exit[0]:
            found.quiet_s = None
            found.state, found.exit_s, found.exit_status = "exited", t - self.exit[0], self.exit[1]
            return found
        if self.metric is not None:
            lost = within(self.unread, t) is not None
            found.metrics = [Metric("step", self.metric(t), None if lost else t - self.metric(t))]
            found.unknown = [Unknown("metric", "port 9000 does not answer within 1 s")] if lost else []
        if self.times is not None:
            found.metrics = [*found.metrics, Metric("step_seconds", self.times(t), 1.0, 1.0)]
        if self.killed is not None and t >= self.killed:
            found.oom = Oom(1, t - self.killed)
        alive = [p for p in self.procs if p.born <= t < p.until]
        found.processes = [p.at(t, local) for local, p in enumerate(alive)]
        if self.rests is not None:
            found.rests_s = t - self.rests(t)
        fault = next((why for a, b, why in self.gpu_fault if a <= t < b), "")
        if fault:
            found.unknown = [*found.unknown, *(Unknown("gpu", f"GPU {index}: {fault}") for index in self.gpus)]
        pids = next((pids for a, b, pids in self.on_gpu if a <= t < b), None)
        for index in self.gpus:
            if index in self.unreadable or fault:
                found.gpus.append(Gpu(index=index))
                continue
            last = self.busy(t) if self.busy else None
            idle = t if last is None else t - last
            gpu = Gpu(index=index, busy=99.0 if idle < EVERY else 0.0, idle_s=idle, ever_busy=last is not None,
                      pids=pids)
            more = self.told(t, index) if self.told else {}
            found.gpus.append(msgspec.structs.replace(gpu, **more) if more else gpu)
        return found


@dataclass
class World:
    """One job unless ``more`` holds others. ``holder`` is the node with the shared output."""

    ranks: list[Rank]
    job: int = 1001
    step: str = "0"
    output: Times | None = field(default_factory=lambda: every(10))
    gap: float | None = 10.0
    job_settings: dict[str, str] = field(default_factory=dict)
    step_settings: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    stopped: Spans = field(default_factory=list)
    """All processes of the job stand still on every node."""
    slurm: list[tuple[float, str]] = field(default_factory=list)
    """(from, state); RUNNING from 0."""
    lost: dict[str, Spans] = field(default_factory=dict)
    """Reports of a node that don't come."""
    words: list[tuple[float, float, str]] = field(default_factory=list)
    """(start, end, last words of a training): what the output ends with then. Its last growth is their age."""
    said: list[tuple[float, float, int | None, Said]] = field(default_factory=list)
    """(first seen, until, the rank in whose own file or None, what was said of a collective)."""
    ras: list[tuple[float, float, Ras]] = field(default_factory=list)
    """(first said, until, what NCCL's RAS says on the first two nodes): its ages grow from its first look on."""
    wire: dict[str, int] = field(default_factory=dict)
    """A node's wire version, where it is another one: its report lacks what is new, and holds what nobody knows."""
    skew: dict[str, float] = field(default_factory=dict)
    """Seconds by which a node's time of day is wrong."""
    end: float = 300
    restarts: int = 0
    nonce: str = "a"
    begin: float = 0
    stacks: list[tuple[float, dict[int, list[str]]]] = field(default_factory=list)
    """(when they were read, rank to its main thread's frames): told in each node's next report."""
    more: list[World] = field(default_factory=list)

    places: dict[str, list[Rank]] = field(default_factory=dict)
    """Ranks by node, once nothing is moved any more: of a thousand ranks they are asked for at each report."""

    @property
    def nodes(self) -> list[str]:
        return list(self.places) or sorted({rank.node for rank in self.ranks})

    def settle(self) -> None:
        self.places = {node: [rank for rank in self.ranks if rank.node == node] for node in self.nodes}

    def state(self, t: float) -> str:
        return next((s for a, s in reversed(self.slurm) if t >= a), "RUNNING")

    def job_at(self, node: str, t: float) -> Job | None:
        """The job's part on a node, ``t`` seconds from the world's start."""
        here = self.places.get(node, []) if self.places else [rank for rank in self.ranks if rank.node == node]
        if not here or not self.begin <= t < self.end:
            return None
        own = t - self.begin
        step = Step(step=self.step, nodes=len(self.nodes), tasks=len(self.ranks),
                    settings=self.step_settings, output_gap_s=self.gap,
                    workers=[rank.at(own) for rank in here])
        for a, b, rank, word in self.said:
            word = msgspec.structs.replace(word, s=own - a, last_s=max(0.0, own - a - word.last_s))
            for one in step.workers if rank is not None else [step] if node == self.nodes[0] else []:
                if a <= own < b and (rank is None or one.rank == rank):
                    one.said = [*one.said, word]
        for a, b, ras in self.ras if node in self.nodes[:2] else []:
            if a <= own < b:
                step.ras = _aged(ras, own - a)
        if self.output is not None and node == self.nodes[0]:
            step.output_s = own - self.output(own)
            line = next((line for a, b, line in self.words if a <= own < b), "")
            step.finished = Finished(line, step.output_s) if line else None
        gpus = sorted({gpu for rank in here for gpu in rank.gpus})
        stopped = [(own - a, max(0.0, own - b)) for a, b in self.stopped if a <= own]
        taken = next(((a, frames) for a, frames in self.stacks if a <= own < a + EVERY), None)
        read = Stacks(f"a{taken[0]:.0f}", taken=[
            Stack(proc.pid, proc.pid * 10, self.step, rank.rank, own=proc.rank, s=own - taken[0],
                  frames=taken[1][rank.rank]) for rank in here for proc in rank.procs]) if taken else None
        return Job(stacks=read, job=self.job, nonce=self.nonce + node, restarts=self.restarts, uid=1001, user="alice",
                   partition="gpu", nodes=len(self.nodes), gpus=gpus, settings=self.job_settings,
                   stopped=stopped, began_s=own, steps=[step])

    def facts_at(self, t: float) -> dict[str, Any]:
        known = {"job": self.job, "state": self.state(t - self.begin), "name": "llm", "user": "alice",
                 "partition": "gpu", "batch": True, "requeue": True, "restarts": self.restarts,
                 "nodes": len(self.nodes)}
        return known | self.facts

    def row_at(self, t: float) -> dict[str, Any]:
        return {"job": self.job, "state": self.state(t - self.begin), "name": "llm", "user": "alice",
                "partition": "gpu"}


def _aged(ras: Ras, since: float) -> Ras:
    """What it says at its looks each 30 s, ``since`` seconds after the first."""
    looks, replace = int(since // 30) + 1, msgspec.structs.replace
    return replace(ras, s=since % 30, comms=[replace(comm, looks=looks, still_s=30.0 * (looks - 1), missing=[
        replace(one, s=since, looks=looks) for one in comm.missing]) for comm in ras.comms])
