"""What a node's monitor sends, and what it is answered. JSON over HTTP, ``POST /v1/report``; docs/report.md.

Every duration is an age in seconds, measured on CLOCK_BOOTTIME and computed when the report is sent (a retry
computes anew); the controller adds the time since receipt. ``None`` means unknown and has an entry in
``unknown`` that says why: it is never zero, never idle. Unknown fields are ignored, so that a newer monitor
may speak to an older controller.
"""

from __future__ import annotations

import msgspec

from . import VERSION, WIRE
from .devices import Gpu, Rail, Ras
from .readings import Chatter, Edge, Finished, Metric, Oom, Place, Said, Stacks, Unknown, Wait

MAX_BYTES = 1 << 20
"""A report's size at most."""
THROUGH_SRUN = ("pipe", "socket", "pty")
"""Values of ``output_to`` of which slurmstepd holds the other end, and hands on to the step's srun."""


class Process(msgspec.Struct, omit_defaults=True, gc=False):
    """One worker process: a process that does the worker's work; wrappers and agents are none."""

    pid: int
    start: int
    """Start time in clock ticks since boot (field 22 of /proc/PID/stat): tells a reused PID."""
    local: int = 0
    """Its place among the worker's processes, in order of start."""
    inner: int = 0
    """Its PID in its own PID namespace, where that is another (in a container); 0: the same."""
    rank: str = ""
    """The process's own RANK, PMIX_RANK or OMPI_COMM_WORLD_RANK, where it has one."""
    comm: str = ""
    state: str = "?"
    """R, S, D, T, t, Z as in /proc/PID/stat; X: gone; ?: not read."""
    state_s: float | None = None
    """For how long it has been in a state of T, t, Z, D or X without a break."""
    exit_status: int | None = None
    """Wait status where somebody saw it (the plugin for tasks); None when only its absence was seen."""
    pulse: float | None = None
    """Voluntary context switches of the main thread per second in the last 5 s window."""
    pulse_base: float | None = None
    """Its own median of 5 min of windows while it had one."""
    pulse_gone_s: float | None = None
    """0: it has its pulse; more: for so long it has been at 2 % of its base or less, two windows at least.
    None: unknown (it has not yet shown 1/s in three windows, its base is under 2/s, it was stopped)."""
    cpu: float | None = None
    """Percent of one core since the report before, all threads."""
    traced: bool = False
    """A debugger holds it (TracerPid)."""
    ties: list[int] = []
    """A number per TCP connection that it holds, the same number at both ends, or per segment of an MPI's or NCCL's
    shared memory: two processes of a step that share one are tied. Sent until the step is known to be tied, 32 of each
    at most."""
    wait: Wait | None = None
    """None: it was not asked (it has its pulse), it does not wait, or it could not be read."""
    place: Place | None = None
    """None: its step has not gone quiet, or it could not be read."""
    edges: list[Edge] = []
    """Only while its step has gone quiet; of a process whose connections could not be read, none."""


class Worker(msgspec.Struct, omit_defaults=True, gc=False):
    """A task of a step and what counts as its progress."""

    rank: int
    """The task's global id in its step."""
    local: int = 0
    """Its local id on the node (SLURM_LOCALID)."""
    pid: int = 0
    start: int = 0
    state: str = "running"
    """running, exited (the plugin saw its end), gone (no process, and nobody saw its end)."""
    exit_status: int | None = None
    """Wait status: ``status >> 8`` is the exit code, ``status & 127`` the signal."""
    exit_s: float | None = None
    """Since it exited or was found gone."""
    output_s: float | None = None
    """Since one of its own files last grew, or since the watch of it began. None: it has no file of its own,
    or it could not be read; then its step's shared file counts."""
    output_to: str = ""
    """Where its output goes beside that, unseen by its node: pipe, socket, fifo, pty, device, other (the first two and
    pty are what an srun of the step may hold the other end of); null: all of it to /dev/null; nothing: it is closed."""
    quiet_s: float | None = None
    """Where its output goes elsewhere: since its process tree last wrote a byte to anything, or since the watch of it
    began. It printed nothing in this time, whatever it does. None: not needed, or not known."""
    writing_s: float | None = None
    """For how long its process tree has written 1 MiB or more to files at each look; 0: it does not."""
    cpu_idle_s: float | None = None
    """Since its process tree last used 5 % of a core or more."""
    rests_s: float | None = None
    """The batch script's task alone: for how long its process tree has held nothing but shells, sleepers and Slurm's
    commands; 0: it holds more."""
    looked_s: float = 0
    """Since its files and its CPU were last looked at: what it did in this time is not known yet."""
    began_s: float = 0
    """Since its task was registered."""
    processes: list[Process] = []
    gpus: list[Gpu] = []
    metrics: list[Metric] = []
    """Those that the run names: one for its progress, one that holds its time per iteration."""
    said: list[Said] = []
    """In files that it alone writes, the proof first."""
    oom: Oom | None = None
    """None: no such kill was seen; or its cgroup has no count of them, which ``unknown`` says once the step has gone
    quiet."""
    unknown: list[Unknown] = []


class Step(msgspec.Struct, omit_defaults=True, gc=False):
    """One step's part on this node."""

    step: str
    """``batch`` or the number, as Slurm writes it: ``0``."""
    component: int | None = None
    """Of a heterogeneous job."""
    nodes: int = 1
    tasks: int = 1
    """Of the whole step: the roster that its first registration fixes."""
    node_id: int = 0
    nodelist: str = ""
    settings: dict[str, str] = {}
    """The step's own options in canonical form (settings.settings_from)."""
    plugin: bool = True
    """False: found by parentage, for the plugin did not register it."""
    ended: bool = False
    output_s: float | None = None
    """Since the file that all its tasks share last grew by this step's doing; only the node that holds the
    file knows. None elsewhere."""
    looked_s: float = 0
    """Since that file was last looked at."""
    output_to: str = ""
    """Where its srun writes instead, as of a worker: null where it throws the output away, too."""
    output_gap_s: float | None = None
    """Its usual (median) gap between two growths of output, over the last 20."""
    log: str = ""
    """Path of the file that holds the step's output, for people."""
    finished: Finished | None = None
    """Told by the node that holds the file. None: the training is not known to be over."""
    said: list[Said] = []
    """In files that several of its tasks share, the proof first."""
    chatter: Chatter | None = None
    ras: Ras | None = None
    """None: the controller does not ask for it."""
    workers: list[Worker] = []
    unknown: list[Unknown] = []


class Job(msgspec.Struct, omit_defaults=True):
    """One job's part on this node: facts of Prolog, and its steps."""

    job: int
    nonce: str
    """Written by Prolog; (job, boot id, nonce) is the attempt on this node."""
    restarts: int = 0
    """Slurm's restart count when Prolog ran."""
    leader: int = 0
    """Job id of the heterogeneous job's leader; 0 for others."""
    uid: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    nodelist: str = ""
    nodes: int = 1
    gpus: list[int] = []
    """Indices allocated on this node."""
    settings: dict[str, str] = {}
    by: str = "prolog"
    """prolog; plugin: a step asked inside a job that Prolog did not hand over."""
    began_s: float = 0
    """Since Prolog handed it over."""
    restart_cause: str = ""
    """What this attempt was restarted for, as Prolog found it."""
    stopped: list[tuple[float, float]] = []
    """Times when every process of the job here was stopped or frozen: (age of start, age of end), newest
    last, 40 at most; an end of 0 is still going on. A suspension is what all nodes share."""
    stop_file: bool = False
    """The stop file that a command asked for is written."""
    stacks: Stacks | None = None
    """None: none were asked for, or they have arrived."""
    steps: list[Step] = []
    rails: list[Rail] = []
    """Of the node, with what happened to them in this job."""
    unknown: list[Unknown] = []


class Report(msgspec.Struct, omit_defaults=True):
    """Everything a node says at one time."""

    node: str
    boot: str
    """/proc/sys/kernel/random/boot_id"""
    session: str
    """Drawn when the monitor started."""
    seq: int
    """Grows by one with each report of a session; an older one than the last seen is dropped."""
    nonce: str
    """Drawn anew for each try; the reply is bound to it."""
    at: float
    """Time of day (Unix seconds): for people and recordings, never for judging."""
    cluster: str = ""
    v: int = WIRE
    version: str = VERSION
    jobs: list[Job] = []


class StopFile(msgspec.Struct, tag="stop_file", tag_field="do", omit_defaults=True):
    """Write the job's stop file: ``key: value`` lines, readable by the job's user only."""

    job: int
    nonce: str
    lines: dict[str, str]
    """cause, reason, signal, grace_seconds, at, finding."""


class DropJob(msgspec.Struct, tag="drop_job", tag_field="do", omit_defaults=True):
    """Let go of the job: it is not to be watched."""

    job: int
    nonce: str
    reason: str = ""


class TakeStacks(msgspec.Struct, tag="stacks", tag_field="do", omit_defaults=True):
    """Read the Python stacks of the job's worker processes, once for each id."""

    job: int
    nonce: str
    ask: str
    """Drawn by the controller; a command that comes again with the same one is answered with what was read."""
    step: str = ""
    """"": of all its running steps."""
    native: bool = False
    """Frames of C and C++, too: that holds each process for a moment. Only where a person asked for it."""


Command = StopFile | DropJob | TakeStacks
"""The closed list of what a controller may ask of a monitor."""


class Reply(msgspec.Struct, omit_defaults=True):
    """The answer to a report."""

    nonce: str
    """The report's own."""
    next_s: float = 15
    """When to report again; the monitor keeps it between 1 and 60."""
    v: int = WIRE
    commands: list[Command] = []
    causes: dict[str, str] = {}
    """Job id to restart cause, for attempts whose Comment could not carry it; "" when there is none."""
    closer: list[str] = []
    """Steps (``job.step``) most of whose processes have lost their pulse: a closer look is to be taken at each of
    its processes, also of those that work."""
    ras: list[str] = []
    """Steps (``job.step``) whose NCCL RAS this node is to ask, each 30 s."""
    tied: list[str] = []
    """Steps (``job.step``) known to be tied: their ties need not be sent again."""


ENCODER = msgspec.json.Encoder()
REPORT_DECODER = msgspec.json.Decoder(Report)
REPLY_DECODER = msgspec.json.Decoder(Reply)
