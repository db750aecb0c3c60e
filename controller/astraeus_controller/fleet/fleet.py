"""What is live: nodes, jobs, steps and workers, out of reports and Slurm's own word.

No I/O and no clock of its own: ``now`` is CLOCK_BOOTTIME in seconds wherever it is passed, so that a replay
runs the fleet in the recording's time. Memory is bounded by what runs: ``forget`` lets go of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from astraeus_protocol import report as wire

from ..config import Config
from ..rules.picture import Picture
from ..slurm.types import JobFacts, Snapshot
from . import gpus
from .rails import RailBook
from .state import Job, Node, Part, StepMemory, state_word
from .ties import all_tied, learn
from .time import stops
from .view import View

NEXT_SUSPECT_S, NEXT_NEAR_S, NEXT_S, NEXT_HEALTHY_S = 2.0, 5.0, 15.0, 30.0
HEALTHY_AFTER_S = 120.0
"""A node is asked less often once all its steps have printed within this time, and it has reported for it."""
KEEP_ENDED_S = 600.0
KEEP_NODE_S = 3600.0
KEEP_SILENT_S = 86400.0
"""A job all of whose nodes are silent, and of which Slurm says nothing, is forgotten after this."""
POLL_GRACE_S = 30.0
"""A job this young may be missing from a poll that was under way when it started."""
SESSIONS_KEPT = 8
RETURN_S = 15.0
"""A session that another took the place of counts again once that other has been quiet for so long: a report of
long ago that somebody sends again must not shut the node's own monitor out."""


class Fleet:
    """All nodes and jobs of one cluster. ``wall_offset``: Unix time minus CLOCK_BOOTTIME."""

    def __init__(self, config: Config, cluster: str, wall_offset: float) -> None:
        self.config = config
        self.cluster = cluster
        self.wall_offset = wall_offset
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[int, Job] = {}
        self.rails = RailBook()
        self.polls: list[set[int]] = []
        """Jobs that the last two successful polls listed."""

    def wall(self, now: float) -> float:
        """Unix time at ``now``."""
        return now + self.wall_offset

    def report(self, report: wire.Report, now: float) -> list[int]:
        """Take a report; ids of the jobs that it says something of. A report that is older than the last one
        seen is dropped: nothing is touched. A job that the node no longer lists has ended there."""
        before = self._admit(report, now)
        if before is None:
            return []
        self.rails.learn(report)
        node = self.nodes[report.node]
        touched = []
        listed = set()
        for said in report.jobs:
            job = self._attempt(said, now)
            if job is None:
                continue
            listed.add(said.job)
            self._part(job, report.node, said, before, now)
            touched.append(said.job)
        for gone in node.jobs - listed:
            held = self.jobs.get(gone)
            if held is not None and report.node in held.parts:
                held.parts[report.node].ended = True
                touched.append(gone)
        node.jobs = listed
        return touched

    def _admit(self, report: wire.Report, now: float) -> float | None:
        """When the report before this one came; None: this one is not to be taken."""
        node = self.nodes.get(report.node)
        if node is None:
            self.nodes[report.node] = Node(report, now)
            return now
        if report.session == node.session and report.boot == node.boot:
            if report.seq <= node.seq:
                return None
        else:
            last = node.old_sessions.pop(report.session, None)
            if last is not None and (report.seq <= last or now - node.received < RETURN_S):
                node.old_sessions[report.session] = last
                return None
            node.old_sessions[node.session] = node.seq
            if len(node.old_sessions) > SESSIONS_KEPT:
                del node.old_sessions[next(iter(node.old_sessions))]
            node.session, node.boot = report.session, report.boot
        before, node.received, node.seq = node.received, now, report.seq
        return before

    def _attempt(self, said: wire.Job, now: float) -> Job | None:
        """The attempt that a node speaks of; None: one that is over."""
        job = self.jobs.get(said.job)
        if job is not None and job.anothers(said.uid):
            job = None
        if job is not None and said.restarts < job.restarts:
            return None
        if job is None or said.restarts > job.restarts:
            new = Job(said.job, said.restarts, now)
            if job is not None and job.facts is not None and job.facts.restarts == said.restarts:
                new.facts, new.facts_at, new.row = job.facts, job.facts_at, job.row
                new.state, new.state_at = job.state, job.state_at
            job = self.jobs[said.job] = new
        return job

    def _part(self, job: Job, node: str, said: wire.Job, before: float, now: float) -> None:
        part = job.parts.get(node)
        if part is None or part.job.nonce != said.nonce:
            part = job.parts[node] = Part(said, now)
        part.stops = stops(part.stops, said.stopped, before, now)
        part.job, part.received, part.ended = said, now, False
        part.look_at_gpus(now)
        for step in said.steps:
            memory = job.steps.setdefault(step.step, StepMemory())
            learn(memory, step.workers)
            gpus.learn(memory, step.workers, now)
            if step.output_s is not None:
                memory.holder = node
        if said.stacks is not None and not said.stacks.native:
            for stack in said.stacks.taken:
                if stack.step in job.steps:
                    job.steps[stack.step].learn_stack(said.stacks.ask, stack, now)

    def slurm(self, snapshot: Snapshot, now: float) -> list[int]:
        """Take a successful poll of all jobs; ids of the jobs whose state it changes."""
        self.polls = [*self.polls, {row.job for row in snapshot.jobs}][-2:]
        rows = {row.job: row for row in snapshot.jobs}
        touched = []
        for number, job in self.jobs.items():
            row = rows.get(number)
            if row is None:
                if now - job.first > POLL_GRACE_S:
                    job.misses += 1
                    touched.append(number)
                continue
            state = state_word(row.state)
            if state != job.state or job.misses:
                touched.append(number)
            job.row, job.misses = row, 0
            job.word(state, now)
        return touched

    def job_facts(self, facts: JobFacts, now: float) -> None:
        """Take one job's facts. Those of a later attempt say that the one we hold is over; those of an
        earlier one (Slurm was asked before) are left out."""
        job = self.jobs.get(facts.job)
        if job is None or facts.restarts < job.restarts:
            return
        job.facts, job.facts_at = facts, now
        job.over = facts.restarts > job.restarts
        job.word(state_word(facts.state), now)

    def pictures(self, now: float, jobs: Iterable[int] | None = None) -> Iterator[Picture]:
        """Pictures of these jobs, or of all, those that ended within the last minutes among them."""
        for number in list(self.jobs) if jobs is None else jobs:
            job = self.jobs.get(number)
            if job is not None and job.parts:
                yield View(job, self.nodes, self.rails, self.config, self.cluster, now, self.wall_offset).picture()

    def forget(self, now: float) -> None:
        """Let go of jobs that ended ten minutes ago and of nodes that nothing runs on."""
        for number, job in list(self.jobs.items()):
            job.forget_steps()
            lost = all(now - self.nodes[name].received > KEEP_SILENT_S for name in job.live)
            if not job.ended and not lost:
                job.ended_at = None
                continue
            job.ended_at = job.ended_at if job.ended_at is not None else now
            if now - job.ended_at >= KEEP_ENDED_S:
                del self.jobs[number]
        needed = {name for job in self.jobs.values() for name in job.parts}
        for name, node in list(self.nodes.items()):
            if name not in needed and now - node.received > KEEP_NODE_S:
                del self.nodes[name]
                self.rails.forget(name)

    def gone(self, job: int, restarts: int) -> bool:
        """Whether an attempt is surely over: we hold a later one, or ended it, or two polls came without it.

        For findings of an attempt that no report speaks of since this controller started.
        """
        held = self.jobs.get(job)
        if held is not None:
            return held.restarts > restarts or held.ended
        return len(self.polls) >= 2 and not any(job in listed for listed in self.polls)

    def all_heard(self, job: int) -> bool:
        """Every node of the job has reported in this attempt."""
        held = self.jobs.get(job)
        return held is not None and held.all_heard

    def needs_facts(self) -> list[int]:
        """Jobs that run and of which Slurm has not been asked in this attempt, or not since Prolog is through."""
        return [number for number, job in self.jobs.items()
                if (job.facts is None or job.state == "CONFIGURING") and not job.ended]

    def tied_steps(self, node: str) -> list[str]:
        """``JOB.STEP`` of the steps whose ties this node need not send again: all of its worker processes are
        known to be tied. A process that takes another's place takes its step off the list."""
        found = []
        for number in sorted(self.nodes[node].jobs if node in self.nodes else ()):
            job = self.jobs.get(number)
            part = job.parts.get(node) if job is not None else None
            if job is None or part is None:
                continue
            found += [f"{number}.{step.step}" for step in part.job.steps
                      if step.step in job.steps and all_tied(job.steps[step.step], step.workers)]
        return found

    def component(self, leader: int, component: int) -> int | None:
        """The job that Slurm shows as ``leader+component``."""
        return next((number for number, job in self.jobs.items() if job.facts is not None
                     and (job.facts.leader, job.facts.component) == (leader, component)), None)

    def nodes_of(self, job: int) -> dict[str, str]:
        """Node to nonce of the job's live parts: what a command to the monitors must name."""
        held = self.jobs.get(job)
        return {name: part.job.nonce for name, part in held.live.items()} if held else {}

    def stop_file_acks(self, job: int) -> tuple[set[str], set[str]]:
        """(nodes that have written the stop file, all nodes that hold the job)."""
        held = self.jobs.get(job)
        live = held.live if held else {}
        return {name for name, part in live.items() if part.job.stop_file}, set(live)

    def quiet_s(self, job: int, now: float) -> float:
        """Since the last report of the job's node that was heard the longest ago; infinite where one never was."""
        if not self.all_heard(job):
            return math.inf
        return max((now - self.nodes[name].received for name in self.nodes_of(job)), default=math.inf)

    def next_s(self, node: str, suspect_jobs: set[int], near_jobs: AbstractSet[int] = frozenset()) -> float:
        """When the node is to report again; remembered, for silence is measured by it.

        ``suspect_jobs``: jobs that are suspect, stalled or being stopped; ``near_jobs``: those whose patience is
        soon over.
        """
        held = self.nodes.get(node)
        if held is None:
            return NEXT_S
        if held.jobs & suspect_jobs:
            held.next_s = NEXT_SUSPECT_S
        elif held.jobs & near_jobs:
            held.next_s = NEXT_NEAR_S
        elif held.received - held.first >= HEALTHY_AFTER_S and self._healthy(node, held.jobs):
            held.next_s = NEXT_HEALTHY_S
        else:
            held.next_s = NEXT_S
        return held.next_s

    def _healthy(self, node: str, jobs: set[int]) -> bool:
        """Nothing decisive here: every step has printed lately and no worker process is in an odd state."""
        for number in jobs:
            job = self.jobs.get(number)
            part = job.parts.get(node) if job is not None else None
            if part is None or any(not step.ended and not _well(step) for step in part.job.steps):
                return False
        return True


def _well(step: wire.Step) -> bool:
    told = [step.output_s, *(w.output_s for w in step.workers)]
    # Where no output can be seen, who writes is as healthy as can be known.
    ages = [age for age in told if age is not None] or [w.quiet_s for w in step.workers if w.quiet_s is not None]
    gpus = [gpu.idle_s for w in step.workers for gpu in w.gpus if gpu.idle_s is not None]
    if min(ages, default=HEALTHY_AFTER_S) >= HEALTHY_AFTER_S and min(gpus, default=HEALTHY_AFTER_S) > 0:
        return False
    return all(p.state_s is None and not p.pulse_gone_s for w in step.workers for p in w.processes
               if w.state == "running") and all(w.state == "running" or w.exit_status == 0
                                                for w in step.workers)
