"""What the fleet holds of a node, a job, a step: plain records without judgement."""

from __future__ import annotations

from astraeus_protocol import report as wire
from astraeus_protocol.readings import Stack
from astraeus_protocol.settings import Settings, settings_from

from ..slurm.types import JobFacts, JobRow
from .gpus import GpuLook
from .time import FOREVER, LATE_S, Interval, merged, silent_after

ALIVE = {"RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT"}
STOPPED = {"SUSPENDED", "STOPPED"}
MISSES = 2
"""A job that two successful polls in a row don't list is over."""
BATCH_STEPS = {"batch", "interactive"}
NEVER_STEPS = {"extern"}
SETTLED_S, SETTLED_MAX_S = 5.0, 60.0
"""A stall opens once every node has been heard for so long, or the job for so long without some node."""
NEXT_DEFAULT_S = 15.0
"""When a report is awaited from a node that was told nothing yet."""

Key = tuple[int, int, int]
"""A worker process: (rank, PID, start time)."""


class Node:
    """A node that reports."""

    def __init__(self, report: wire.Report, now: float) -> None:
        self.boot = report.boot
        self.session = report.session
        self.old_sessions: dict[str, int] = {}
        """Sessions before this one, each with the last number seen of it."""
        self.seq = report.seq
        self.first = now
        self.received = now
        self.next_s = NEXT_DEFAULT_S
        self.jobs: set[int] = set()

    def silent(self, now: float) -> bool:
        """It has missed three reports."""
        return now - self.received > silent_after(self.next_s)

    def reach(self, now: float) -> float:
        """Until when its last report tells something: a report that does not come ages nothing for ever."""
        return min(now, self.received + self.next_s + LATE_S)


class Part:
    """A job's part on one node, as last reported."""

    def __init__(self, job: wire.Job, now: float) -> None:
        self.job = job
        self.ended = False
        self.stops: list[Interval] = []
        self.first = self.received = now
        self.bare_since: float | None = None
        """Since when no process has been on any of the GPUs that are read here."""
        self.read = False
        """GPUs are read here, and whose processes are on them."""

    def look_at_gpus(self, now: float) -> None:
        """Take in who is on its GPUs."""
        pids = [gpu.pids for step in self.job.steps if not step.ended for worker in step.workers for gpu in worker.gpus]
        self.read = bool(pids) and None not in pids
        if not self.read or any(pids):
            self.bare_since = None
        elif self.bare_since is None:
            self.bare_since = now


class StepMemory:
    """What is remembered of a step for as long as the attempt lasts."""

    def __init__(self) -> None:
        self.tied: set[Key] = set()
        self.ends: dict[int, Key] = {}
        self.processes: dict[int, list[wire.Process]] = {}
        self.stacks: dict[Key, tuple[float, tuple[str, ...]]] = {}
        """Of the last asking that nobody made for native frames: when it was read, its main thread's frames."""
        self.stacks_ask = ""
        self.gpus: dict[tuple[int, int], GpuLook] = {}
        """(rank, index) to the last two looks at that GPU."""
        self.holder = ""
        """The node that last reported the step's shared output."""
        self._raw: dict[str, str] | None = None
        self._settings = Settings()

    def learn_stack(self, ask: str, stack: Stack, now: float) -> None:
        """Take in where a process's main thread is."""
        if ask != self.stacks_ask:
            self.stacks_ask, self.stacks = ask, {}
        if stack.frames:
            self.stacks[stack.rank, stack.pid, stack.start] = now - stack.s, tuple(stack.frames)

    def settings(self, raw: dict[str, str]) -> Settings:
        if raw != self._raw:
            self._raw, self._settings = raw, settings_from(raw)
        return self._settings


class Job:
    """One attempt of a job."""

    def __init__(self, job: int, restarts: int, now: float) -> None:
        self.job = job
        self.restarts = restarts
        self.first = now
        self.parts: dict[str, Part] = {}
        self.steps: dict[str, StepMemory] = {}
        self.own = StepMemory()
        """Caches the job's own settings."""
        self.row: JobRow | None = None
        self.facts: JobFacts | None = None
        self.facts_at: float | None = None
        self.state = ""
        self.state_at: float | None = None
        self.misses = 0
        self.over = False
        """Slurm's facts speak of a later attempt."""
        self.suspensions: list[Interval] = []
        self.ended_at: float | None = None
        self._several = False

    def word(self, state: str, now: float) -> None:
        """Slurm's state. A suspension reaches from the last word before it that said otherwise to the next
        word that says otherwise: the time between two polls counts for the job."""
        going_on = bool(self.suspensions) and self.suspensions[-1][1] == FOREVER
        if state in STOPPED and not going_on:
            start = self.state_at if self.state_at is not None else now
            self.suspensions = merged([*self.suspensions, (start, FOREVER)])
        elif state not in STOPPED and going_on:
            self.suspensions[-1] = (self.suspensions[-1][0], now)
        self.state, self.state_at = state, now

    @property
    def ended(self) -> bool:
        """Slurm says so, twice where it only keeps silent; or every node let go of it."""
        return (self.over or self.misses >= MISSES or bool(self.state and self.state not in ALIVE)
                or all(part.ended for part in self.parts.values()))

    def settled(self, now: float) -> bool:
        """Enough was heard of the job to judge it: every node for a while, or the job for long without one.

        After a start of the controller reports come one by one, and what ties the ranks comes with a node's
        second: a gang of which one rank was stopped was first found with nobody named.
        """
        youngest = max((part.first for part in self.parts.values()), default=now)
        return now - self.first >= SETTLED_MAX_S or (self.all_heard and now - youngest >= SETTLED_S)

    @property
    def all_heard(self) -> bool:
        """Every node of the job has reported in this attempt."""
        return len(self.parts) >= max((part.job.nodes for part in self.parts.values()), default=1)

    def bare_s(self, now: float) -> float | None:
        """For how long no process has been seen on any of its GPUs that are read; 0: there is one. None: of some it is
        not known. On a node where nothing of it runs nobody reads GPUs: there is nothing on them."""
        live = self.live.values()
        some = [part for part in live if any(not step.ended and step.workers for step in part.job.steps)]
        if not some or not all(part.read for part in some):
            return None
        return min(0.0 if part.bare_since is None else now - part.bare_since for part in some)

    @property
    def live(self) -> dict[str, Part]:
        """Parts on nodes that have not let go of the job."""
        return {node: part for node, part in self.parts.items() if not part.ended}

    @property
    def several_steps(self) -> bool:
        self._several = self._several or sum(
            step not in BATCH_STEPS and step not in NEVER_STEPS for step in self.steps) > 1
        return self._several

    def anothers(self, uid: int) -> bool:
        """The id was given anew, to a job of another user (a slurmctld that lost its state counts from 1)."""
        known = {part.job.uid for part in self.parts.values()} - {0}
        return bool(uid and known) and uid not in known

    def forget_steps(self) -> None:
        """Let go of steps that no node lists any more: a script may run thousands, one after the other. That
        there were several stays known, for workers keep their names."""
        listed = {step.step for part in self.parts.values() for step in part.job.steps}
        if self.several_steps:
            for step in self.steps.keys() - listed:
                del self.steps[step]


def state_word(state: str) -> str:
    """``CANCELLED by 0`` and ``RUNNING*`` as their first word."""
    return state.split(" ")[0].rstrip("*+") if state else ""
