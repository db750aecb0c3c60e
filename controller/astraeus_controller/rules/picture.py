"""One frozen picture of a job: all that the rules may look at.

Built by ``fleet`` from reports and Slurm's own word; rules are pure functions of it. Durations are seconds up
to ``now``, with suspended time already taken out and the time since receipt already added. ``None`` is
unknown: no rule may take it for zero or for idle.

What there is of each worker is kept from the garbage collector (``gc=False``), here and in the reports: they are trees,
and it took longer to walk 80,000 workers for cycles than to judge them.
"""

from __future__ import annotations

import msgspec
from astraeus_protocol.devices import Gpu, Rail, Ras
from astraeus_protocol.readings import Chatter, Edge, Finished, Oom, Place, Said, Wait


class Policy(msgspec.Struct, frozen=True):
    """What holds for a run: its own options over the site's settings for its partition."""

    after: float = 1800.0
    """Patience in seconds."""
    action: str = "alert"
    """alert, restart."""
    asked: bool = False
    """The run gave an option that asks for the watch."""
    mode: str = "observe"
    """observe, act."""
    max_restarts: int = 10
    stop_signal: str = "TERM"
    stop_grace: int | None = None
    """Seconds; None: Slurm's KillWait."""
    progress_metric: str | None = None
    progress_end: float | None = None
    """The progress metric's last value: at it the run is finished."""
    never_began: str = "alert"
    """alert, list: whether a run whose GPUs were never busy is alerted and annotated, or only listed."""
    avoid_guilty: bool = False
    """Its next attempt is to run on other nodes than the guilty rank's."""
    straggler_metric: str | None = None
    """Holds each rank's own time per iteration."""
    straggler_ratio: float = 1.2
    warmup_s: float = 600.0
    """Stragglers are looked for once every worker has run for so long."""


class StackView(msgspec.Struct, frozen=True, gc=False):
    """Where the main thread of a process was in Python, leaf first: ``next_batch (loader.py:41)``."""

    frames: tuple[str, ...]
    s: float
    """Since it was read."""


class ProcessView(msgspec.Struct, frozen=True, gc=False):
    """A worker process; fields as in protocol ``Process``."""

    pid: int
    local: int
    rank: str
    comm: str
    state: str
    state_s: float | None
    exit_status: int | None
    pulse: float | None
    pulse_base: float | None
    pulse_gone_s: float | None
    traced: bool
    tied: bool
    """It is part of the gang: it shares (or shared) a connection with another worker process of the step."""
    wait: Wait | None = None
    cpu: float | None = None
    place: Place | None = None
    """Of a closer look, which is taken only at a step that has gone quiet."""
    edges: tuple[Edge, ...] = ()
    inner: int = 0
    stack: StackView | None = None
    """None: not asked for, or not known."""


class GpuView(msgspec.Struct, frozen=True, gc=False):
    index: int
    busy: float | None
    idle_s: float | None
    ever_busy: bool
    busy_at: float | None = None
    """Unix time at which it was last busy, for sentences: suspended time is not taken out of it."""
    told: Gpu | None = None
    """The reading whole, as it came: its ages are those of its report."""
    before: Gpu | None = None
    """The reading of the look before, a report or two ago; None: there was none lately."""
    looked_at: float = 0.0
    """Unix time of the look that ``told`` is of."""
    apart_s: float = 0.0
    """Between that look and the one before."""


class MetricView(msgspec.Struct, frozen=True, gc=False):
    """A metric that the run names; fields as in protocol ``Metric``."""

    name: str
    value: float | None
    unchanged_s: float | None
    at: float | None = None
    """Unix time of its last change."""
    looked_at: float = 0.0
    """Unix time at which it was last read."""


class WorkerView(msgspec.Struct, frozen=True, gc=False):
    """A task. ``state``: running, exited, gone, stale (its node has missed three reports)."""

    name: str
    rank: int
    node: str
    pid: int
    state: str
    exit_status: int | None
    exit_s: float | None
    output_s: float | None
    """The younger of its own files' and of its step's shared file's age."""
    writing_s: float | None
    cpu_idle_s: float | None
    began_s: float
    processes: tuple[ProcessView, ...]
    gpus: tuple[GpuView, ...]
    unknown: tuple[tuple[str, str], ...]
    """(source, reason)"""
    output_at: float | None = None
    """Unix time of the last output, for sentences and for telling new output from old."""
    cpu_at: float | None = None
    """Unix time at which its process tree last used the CPU."""
    metrics: tuple[MetricView, ...] = ()
    oom: Oom | None = None
    oom_at: float | None = None
    """Unix time at which the last kill for lack of memory was noticed."""
    output_to: str = ""
    """Where its output goes unseen, as the report says; ``null``: to nobody."""
    quiet_s: float | None = None
    """Where its output is not known: since its processes last wrote a byte to anything."""
    quiet_at: float | None = None
    rests_s: float | None = None
    """A batch script's task: for how long its tree has held nothing but shells, sleepers and Slurm's commands; 0: it
    holds more."""


class SaidView(msgspec.Struct, frozen=True):
    """A word of NCCL's and its like in the step's output; ages as in protocol ``Said``, up to now."""

    said: Said
    node: str
    """Which node read it."""
    worker: int | None
    """Rank of the worker whose own file holds it; None: the step's file does."""
    at: float
    """Unix time at which it was first seen, and at which such a word was last seen."""
    last_at: float


class RasView(msgspec.Struct, frozen=True):
    """What NCCL's RAS told a node of the step's communicators; ages as in protocol ``Ras``, up to now."""

    node: str
    ras: Ras


class StepView(msgspec.Struct, frozen=True):
    step: str
    name: str
    """``123`` where it is the job's only step, else ``123.1``: what is named where no rank stands out."""
    nodes: int
    tasks: int
    nodelist: str
    policy: Policy
    watched: bool
    watch_reason: str
    """Why it is, or is not, watched: a sentence."""
    ended: bool
    complete: bool
    """Every task of the roster has been heard of."""
    output_s: float | None
    """Age of the youngest output of any of its workers."""
    output_gap_s: float | None
    log: str
    workers: tuple[WorkerView, ...]
    output_at: float | None = None
    """Unix time of the youngest output of any of its workers."""
    finished: Finished | None = None
    """Its output's last words say that the training is over."""
    said: tuple[SaidView, ...] = ()
    chatter: Chatter | None = None
    """A line of its output that repeats on a clock, where nothing else is newer."""
    ras: tuple[RasView, ...] = ()
    """Of nodes that are not silent; empty while nobody asks."""


class RailView(msgspec.Struct, frozen=True):
    """An RDMA port of a node of the job; ages are those of its report."""

    node: str
    rail: Rail


class RailClass(msgspec.Struct, frozen=True):
    """What is known of all compute rails of one class, those of this job among them."""

    site_gb: float | None = None
    """What the site says that they are made for, Gb/s."""
    rates: dict[float, int] = {}
    """Gb/s to how many rails that are up have it."""
    up: dict[str, int] = {}
    """``mlx5_1/1`` to on how many nodes that port is up, and is not."""
    down: dict[str, int] = {}


class JobView(msgspec.Struct, frozen=True):
    job: int
    run: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    """Slurm's state, or "" while it is not known."""
    restarts: int
    nodes: int
    nodelist: str
    gpus: int
    """GPUs allocated on all nodes that have reported."""
    batch: bool | None
    """Slurm's BatchFlag; None while not known."""
    suspended: bool
    """Slurm says so, or every process on every node of the job is stopped."""
    silent_nodes: tuple[str, ...]
    """Nodes that have missed three reports."""
    policy: Policy
    steps: tuple[StepView, ...]
    ended: bool = False
    """This attempt is over: every node let go of it, or Slurm says so."""
    silent_s: tuple[float, ...] = ()
    """For each of ``silent_nodes``: seconds since its last report."""
    facts_s: float | None = None
    """Age of Slurm's facts of this attempt; None: it has not been asked."""
    report_s: float = 0.0
    """Age of the newest report that this picture uses."""
    rails: tuple[RailView, ...] = ()
    """Of the nodes that are not silent."""
    rail_classes: dict[str, RailClass] = {}
    """By ``Rail.kind``, of the classes that the job has."""
    rails_unknown: tuple[tuple[str, str], ...] = ()
    """(node, why some of its rails could not be read)"""
    all_heard: bool = True
    """Every node of it has reported in this attempt."""
    bare_s: float | None = None
    """For how long no process has been seen on any of its GPUs that are read; 0: there is one. None: not known."""
    settled: bool = True
    """Every node was heard, and for long enough to have told what ties its ranks: a stall may open."""


class Picture(msgspec.Struct, frozen=True):
    """A job at one moment. ``now`` is Unix time, for sentences only."""

    now: float
    cluster: str
    job: JobView
