"""From what the fleet holds of a job to the frozen picture that the rules look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from astraeus_protocol import report as wire
from astraeus_protocol.names import run_name, worker_of
from astraeus_protocol.settings import Settings
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from msgspec import structs

from ..config import Config
from ..rules.limits import PROGRESS_SLACK_S
from ..rules.picture import (
    GpuView,
    JobView,
    MetricView,
    Picture,
    ProcessView,
    RailView,
    RasView,
    SaidView,
    StackView,
    StepView,
    WorkerView,
)
from ..rules.stacks import at_prompt
from .gpus import before
from .rails import RailBook
from .state import BATCH_STEPS, NEVER_STEPS, STOPPED, Job, Key, Node, StepMemory
from .ties import key_of, processes_of
from .time import FOREVER, Clock, merged, shared
from .watch import Facts, watched

Pieces = list[tuple[str, wire.Step]]
"""A step's parts: (node, what it reported)."""


class Shared(NamedTuple):
    """A step's shared output. ``lost``: the node that holds it is silent; ``thrown``: it goes to nobody."""

    age: float | None
    at: float | None
    """Unix time."""
    lost: bool
    thrown: bool


class View:
    """Builds one job's picture at ``now``; ``wall`` turns boot time into Unix time."""

    def __init__(self, job: Job, nodes: Mapping[str, Node], rails: RailBook, config: Config, cluster: str, now: float,
                 wall: float) -> None:
        self.job, self.config, self.cluster, self.now, self.wall = job, config, cluster, now, wall
        self.live = job.live
        self.nodes = {name: nodes[name] for name in self.live}
        self.silent = sorted(name for name, node in self.nodes.items() if node.silent(now))
        self.fresh = [name for name in self.live if name not in self.silent]
        suspended = [*job.suspensions, *shared([self.live[name].stops for name in self.fresh])]
        self.suspended = merged(suspended) if suspended else []
        self.clocks = {name: Clock(node.received, node.reach(now), self.suspended, wall)
                       for name, node in self.nodes.items()}
        self.first = next(iter(job.parts.values())).job
        self.partition = job.facts.partition if job.facts else self.first.partition
        self.gpus = sum(len(part.job.gpus) for part in self.live.values())
        self.run = self._run()
        self.rails = tuple(RailView(name, rail) for name in self.fresh for rail in self.live[name].job.rails)
        kinds = {view.rail.kind for view in self.rails}
        self.rail_classes = rails.views(kinds, config.rail_rates(self.partition, kinds)) if kinds else {}

    def picture(self) -> Picture:
        job, facts, row = self.job, self.job.facts, self.job.row
        pieces: dict[str, Pieces] = {}
        for node, part in self.live.items():
            for step in part.job.steps:
                pieces.setdefault(step.step, []).append((node, step))
        received = [node.received for node in self.nodes.values()]
        settings = self.job.own.settings(self.first.settings)
        return Picture(now=self.now + self.wall, cluster=self.cluster, job=JobView(
            job=job.job, run=self.run,
            name=facts.name if facts else row.name if row else "",
            user=(facts.user if facts else "") or self.first.user,
            account=(facts.account if facts else "") or self.first.account,
            partition=self.partition, state=job.state, restarts=job.restarts,
            nodes=(facts.nodes if facts else 0) or self.first.nodes,
            nodelist=(facts.nodelist if facts else "") or self.first.nodelist,
            gpus=self.gpus, batch=facts.batch if facts else None, suspended=self._stands_still(),
            silent_nodes=tuple(self.silent),
            silent_s=tuple(self.now - self.nodes[name].received for name in self.silent),
            policy=self.config.policy(self.partition, settings),
            steps=tuple(self._steps(pieces, settings)), ended=job.ended,
            facts_s=None if job.facts_at is None else self.now - job.facts_at,
            report_s=self.now - max(received, default=self.now),
            rails=self.rails, rail_classes=self.rail_classes,
            rails_unknown=tuple((name, one.reason) for name in self.fresh for one in self.live[name].job.unknown
                                if one.source == "rail"),
            all_heard=job.all_heard, bare_s=job.bare_s(self.now), settled=job.settled(self.now),
        ))

    def _run(self) -> str:
        facts, row = self.job.facts, self.job.row
        component = facts.component if facts else next(
            (step.component for part in self.job.parts.values() for step in part.job.steps
             if step.component is not None), None)
        return run_name(
            self.job.job,
            array_job=facts.array_job if facts else row.array_job if row else 0,
            array_task=facts.array_task if facts else row.array_task if row else None,
            leader=(facts.leader if facts else 0) or self.first.leader, component=component)

    def _stands_still(self) -> bool:
        """Slurm says so, or every process on every node that reports is stopped."""
        if self.job.state in STOPPED:
            return True
        stops = [self.live[name].stops for name in self.fresh]
        return bool(stops) and all(s and s[-1][1] == FOREVER for s in stops)

    def _steps(self, pieces: dict[str, Pieces], settings: Settings) -> Iterator[StepView]:
        run = {step for step, parts in pieces.items()
               if step not in BATCH_STEPS and step not in NEVER_STEPS and not all(p.ended for _, p in parts)}
        for step, parts in pieces.items():
            yield self._step(step, parts, settings, bool(run - {step}))

    def _step(self, step: str, parts: Pieces, settings: Settings, others_run: bool) -> StepView:
        memory = self.job.steps.setdefault(step, StepMemory())
        some = next((p for _, p in parts if p.settings), parts[0][1])
        own = memory.settings(some.settings)
        name = f"{self.run}.{step}" if self.job.several_steps else self.run
        shared = self._shared(memory, parts)
        workers = sorted([self._worker(memory, name, node, piece, worker, shared)
                          for node, piece in parts for worker in piece.workers], key=attrgetter("rank"))
        is_watched, reason = watched(Facts(
            step=step, others_run=others_run, gpus=self.gpus > 0,
            step_gpus=any(w.gpus or any(source == "gpu" for source, _ in w.unknown) for w in workers),
            own=own, own_raw=some.settings, job=settings, job_raw=self.first.settings,
        ), self.job.facts, self.config)
        youngest = min(((w.output_s, w.output_at) for w in workers if w.output_s is not None),
                       default=(shared.age, shared.at))
        return StepView(
            step=step, name=name, nodes=some.nodes, tasks=some.tasks,
            nodelist=some.nodelist or fold([node for node, _ in parts]),
            policy=self.config.policy(self.partition, own.over(settings)),
            watched=is_watched, watch_reason=reason, ended=all(p.ended for _, p in parts),
            complete=len({w.rank for w in workers}) >= some.tasks,
            output_s=youngest[0], output_at=youngest[1],
            output_gap_s=max((p.output_gap_s for _, p in parts if p.output_gap_s is not None), default=None),
            log=next((p.log for _, p in parts if p.log), ""), workers=tuple(workers),
            ras=tuple(self._ras(parts)), finished=self._finished(parts, youngest[0]), said=tuple(self._said(parts)),
            chatter=min((p.chatter for _, p in parts if p.chatter), key=lambda one: one.other_s, default=None))

    def _said(self, parts: Pieces) -> Iterator[SaidView]:
        for node, piece in parts:
            clock = self.clocks[node]
            for rank, one in ((None, piece.said), *((w.rank, w.said) for w in piece.workers)):
                for said in one:
                    yield SaidView(
                        said=structs.replace(said, s=clock.age(said.s) or 0.0, last_s=clock.age(said.last_s) or 0.0),
                        node=node, worker=rank, at=clock.at(said.s) or 0.0, last_at=clock.at(said.last_s) or 0.0)

    def _ras(self, parts: Pieces) -> Iterator[RasView]:
        for node, piece in parts:
            if piece.ras is not None and node not in self.silent:
                late = self.clocks[node].age(0.0) or 0.0
                yield RasView(node, structs.replace(piece.ras, s=piece.ras.s + late, comms=[structs.replace(
                    comm, missing=[structs.replace(one, s=one.s + late) for one in comm.missing])
                    for comm in piece.ras.comms]))

    def _finished(self, parts: Pieces, youngest: float | None) -> wire.Finished | None:
        """The last words where the newest output of the step stands: those of a rank whose file has gone quiet
        while others wrote on are not the step's."""
        for node, piece in parts:
            clock = self.clocks[node]
            ages = [age for age in (clock.age(piece.output_s), *(clock.age(w.output_s) for w in piece.workers))
                    if age is not None]
            if piece.finished and ages and youngest is not None and min(ages) <= youngest + PROGRESS_SLACK_S:
                return wire.Finished(piece.finished.line, clock.age(piece.finished.s) or 0.0)
        return None

    def _shared(self, memory: StepMemory, parts: Pieces) -> Shared:
        best: tuple[float, float] | None = None
        for node, piece in parts:
            if piece.output_s is None or node in self.silent:
                continue
            clock = self.clocks[node]
            age, at = clock.known(piece.output_s, piece.looked_s), clock.at(piece.output_s)
            if age is not None and at is not None and (best is None or age < best[0]):
                best = (age, at)
        thrown = any(p.output_to == "null" for _, p in parts)
        return Shared(*best, False, thrown) if best else Shared(None, None, memory.holder in self.silent, thrown)

    def _worker(self, memory: StepMemory, step_name: str, node: str, piece: wire.Step, worker: wire.Worker,
                shared: Shared) -> WorkerView:
        clock = self.clocks[node]
        stale = node in self.silent
        shared_age, shared_at = shared.age, shared.at
        output_s, output_at = clock.known(worker.output_s, worker.looked_s), clock.at(worker.output_s)
        to, quiet_s, quiet_at = worker.output_to, None, None
        if to in wire.THROUGH_SRUN and piece.step not in BATCH_STEPS:
            if shared_age is None:  # of what goes through srun its files tell nothing
                output_s = None
            to = "null" if shared.thrown else to
        elif to:  # the step's file does not hold it
            output_s, shared_age, shared_at = None, None, None
        if shared.lost or (stale and output_s is not None):
            output_s = output_at = None
        elif output_s is None or (shared_age is not None and shared_age < output_s):
            output_s, output_at = shared_age, shared_at
        if output_s is None and not stale:
            quiet_s, quiet_at = clock.known(worker.quiet_s, worker.looked_s), clock.at(worker.quiet_s)
        unknown = [*worker.unknown, *piece.unknown] if worker.unknown or piece.unknown else ()
        return WorkerView(
            name=worker_of(step_name, worker.rank),
            rank=worker.rank, node=node, pid=worker.pid,
            state="stale" if stale and worker.state == "running" else worker.state,
            exit_status=worker.exit_status, exit_s=clock.age(worker.exit_s),
            output_s=output_s, output_at=output_at, output_to=to, quiet_s=quiet_s, quiet_at=quiet_at,
            writing_s=worker.writing_s, rests_s=clock.known(worker.rests_s, worker.looked_s),
            cpu_idle_s=clock.known(worker.cpu_idle_s, worker.looked_s), cpu_at=clock.at(worker.cpu_idle_s),
            began_s=clock.age(worker.began_s) or 0.0,
            processes=tuple([self._process(memory, clock, worker, p) for p in processes_of(memory, worker)]),
            gpus=tuple([_gpu(memory, clock, worker.rank, gpu) for gpu in worker.gpus]),
            metrics=tuple([MetricView(name=m.name, value=m.value, unchanged_s=clock.known(m.unchanged_s, m.looked_s),
                                      at=clock.at(m.unchanged_s), looked_at=clock.at(m.looked_s) or 0.0)
                           for m in worker.metrics]) if worker.metrics else (),
            oom=worker.oom, oom_at=clock.at(worker.oom.s) if worker.oom else None,
            unknown=tuple([(one.source, one.reason) for one in unknown]) if unknown else ())

    def _process(self, memory: StepMemory, clock: Clock, worker: wire.Worker, p: wire.Process) -> ProcessView:
        key = key_of(worker, p)
        stack = _stack(memory, clock, key) if memory.stacks else None
        gone_s = clock.age(p.pulse_gone_s) if p.pulse_gone_s else p.pulse_gone_s
        return ProcessView(
            pid=p.pid, local=p.local, rank=p.rank, comm=p.comm, state=p.state, state_s=clock.age(p.state_s),
            exit_status=p.exit_status, pulse=p.pulse, pulse_base=p.pulse_base,
            pulse_gone_s=gone_s, traced=p.traced or (stack is not None and at_prompt(stack, gone_s)),
            tied=key in memory.tied,
            wait=p.wait and structs.replace(p.wait, s=clock.age(p.wait.s) or 0.0),
            cpu=p.cpu, place=p.place and structs.replace(p.place, s=clock.age(p.place.s) or 0.0), edges=tuple(p.edges),
            inner=p.inner, stack=stack)


def _gpu(memory: StepMemory, clock: Clock, rank: int, gpu: wire.Gpu) -> GpuView:
    last, apart_s = before(memory, rank, gpu)
    return GpuView(index=gpu.index, busy=gpu.busy, idle_s=clock.known(gpu.idle_s, gpu.looked_s),
                   ever_busy=gpu.ever_busy, busy_at=clock.at(gpu.idle_s), told=gpu, before=last,
                   looked_at=clock.at(gpu.looked_s) or 0.0, apart_s=apart_s)


def _stack(memory: StepMemory, clock: Clock, key: Key) -> StackView | None:
    taken = memory.stacks.get(key)
    return StackView(taken[1], clock.age(clock.received - taken[0]) or 0.0) if taken else None


def fold(nodes: Sequence[str]) -> str:
    """``c[1-4]``"""
    return _folded(tuple(nodes))


@lru_cache(maxsize=4096)
def _folded(nodes: tuple[str, ...]) -> str:
    """A job's nodes are folded at each round, and seldom others than at the one before: of a thousand nodes this took
    longer than all rules."""
    return str(NodeSet.fromlist(sorted(nodes), resolver=RESOLVER_NOGROUP))


