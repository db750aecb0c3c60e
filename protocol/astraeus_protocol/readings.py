"""What sources say, as a report carries it: docs/report.md. Ages and unknowns as in ``report``."""

from __future__ import annotations

import msgspec


class Unknown(msgspec.Struct, omit_defaults=True):
    """A source that could not be read, and why, in a few words."""

    source: str
    reason: str


class Gpu(msgspec.Struct, omit_defaults=True):
    """One GPU of a worker."""

    index: int
    """Slurm's index on the node, which is the driver's minor number."""
    uuid: str = ""
    busy: float | None = None
    """Percent, the highest sample since the report before."""
    idle_s: float | None = None
    """Since it was last busy (5 % or more), or since the watch began if it never was."""
    ever_busy: bool = False
    """It was busy at some time in this attempt."""
    looked_s: float = 0
    """Since it was last looked at: ``idle_s`` beyond that is not known to be idle."""
    mig: str = ""
    """UUID of the instance that the worker has of it; "" where it has the whole."""
    sm_mhz: float | None = None
    """SM clock at the last look."""
    sm_max_mhz: float | None = None
    reasons: int | None = None
    """Why its clock is held, at the last look: bits of NVML's nvmlClocksEventReasons."""
    held_s: dict[str, float] = {}
    """Seconds in this attempt for which its clock was held, by NVML's reason (sw_power_cap, sw_thermal, hw_thermal,
    hw_power_brake, sync_boost), of those reasons that the driver counts time of."""
    temp_c: float | None = None
    slowdown_c: float | None = None
    """The temperature at which the hardware slows down."""
    power_w: float | None = None
    limit_w: float | None = None
    """The limit that is enforced."""
    power_usual_w: float | None = None
    """Median of its power while its worker progressed in this attempt; None before 20 samples."""
    busy_before: float | None = None
    """At the look before the last, as long as the two are consecutive."""
    power_before_w: float | None = None
    errors: dict[str, int] = {}
    """What grew in this attempt, by how much: ecc_corrected, ecc_uncorrected, remapped_rows; and 1 for what holds now:
    remap_pending, remap_failed. Nothing that is zero."""
    xids: list[int] = []
    """Xid events of this attempt, oldest first, 16 at most."""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks_down: list[int] = []
    """Links that are not active, of a GPU of which others are."""
    pids: list[int] | None = None
    """Processes that have a context on it, in the node's PID namespace; None: not known."""
    unknown: dict[str, str] = {}
    """Name of a reading to why the driver does not tell it."""


XID_LOST, XID_NO_ANSWER = frozenset({79}), frozenset({119, 120})
"""Xid events: the GPU has fallen off the bus; its firmware (GSP) does not answer."""


class Rail(msgspec.Struct, omit_defaults=True):
    """One RDMA port of the node: /sys/class/infiniband/DEVICE/ports/PORT. Never told by a network interface's state:
    cutting IP does not cut RDMA."""

    device: str
    port: int = 1
    layer: str = ""
    """link_layer: InfiniBand, Ethernet."""
    rate_gb: float | None = None
    """Gb/s."""
    width: int | None = None
    """Lanes: the 4 of "4X"."""
    speed: str = ""
    """The rate's name: EDR, HDR, NDR."""
    state: str = ""
    """ACTIVE, DOWN, INIT, ARMED; GONE: the node had it when the job began; "" unknown."""
    phys_state: str = ""
    """LinkUp, Polling, Disabled; "" unknown."""
    compute: bool = False
    """It carries the training's data: by the site's settings, else by GPUs' affinity, else by the commonest class."""
    kind: str = ""
    """Its class, the same for rails that are to be compared: model of the adapter and link layer."""
    errors: dict[str, int] = {}
    """Counters that grew during the job, by how much; nothing that is zero."""
    errors_s: float | None = None
    """Since one of them was last seen to grow; None: none did."""
    flaps: int = 0
    """How often it went down and came back during the job."""
    down_s: float | None = None
    """Since it was last seen up in this job; 0 while it is; None: it never was, or that is not known."""
    looked_s: float = 0
    """Since it was last read."""
    peer: str = ""
    """What is at its other end, where it can be told: SWITCH/PORT."""
    peer_wanted: str = ""
    """What the site's topology file says should be there."""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process waits for in the kernel, where every sample of its main thread found it there. A helper's
    wait stands for it where that waits for storage and it itself does not."""

    channel: str
    """/proc/PID/wchan: ``request_wait_answer``, ``rpc_wait_bit_killable``, …"""
    s: float
    """For how long at least, seconds: since the first of these samples."""
    call: str = ""
    """System call, where it could be told: read, openat, …"""
    mount: str = ""
    """Source of the mount whose answer it waits for: ``store1:/export``; "" where it waits for none, or none
    could be told."""
    at: str = ""
    """Where that is mounted, as the process sees it: ``/data``."""
    kind: str = ""
    """Its file system: nfs4, lustre, fuse.sshfs, …; the family alone (nfs, fuse) where it waits for storage and
    the mount could not be told; "" where it does not wait for storage."""
    helper: int = 0
    """PID of the process below it, a data loader, that waits there; 0: its own main thread does."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a process's main thread is, as most samples of a closer look found it: taken only while its step has
    gone quiet, and of all processes of the step."""

    channel: str = ""
    """/proc/PID/wchan; "" where most samples found it running."""
    call: str = ""
    """System call, where it could be told; "" where most samples found it running."""
    share: float = 0
    """Share of the samples that found it there, 0 to 1."""
    samples: int = 0
    s: float = 0
    """Since the last sample."""
    user: float = 0
    """Percent of a core that the main thread used in user mode, over the samples."""
    system: float = 0
    """The same, in the kernel."""
    switches: float = 0
    """Its voluntary context switches per second, over the samples."""
    threads: int = 0



class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """One end of a TCP connection of a process whose step has gone quiet."""

    n: int
    """Its number, as in ``ties``: the same at the other end."""
    queued: int = 0
    """Bytes that came and that the process has not read (Recv-Q)."""
    unread_s: float = 0
    """For how long it has read nothing of them, at least."""
    unacked: int = 0
    """Segments sent and not acknowledged by the other end's kernel."""
    notsent: int = 0
    """Bytes that wait to be sent."""
    backoff: int = 0
    """How often the time to the next try was doubled: the other end's kernel does not answer."""
    sent_s: float | None = None
    """Since a segment with data was sent last."""
    rcvd_s: float | None = None
    """Since one was received."""


class Oom(msgspec.Struct, frozen=True, omit_defaults=True):
    """Processes of the worker's cgroup that the kernel killed because its memory was used up."""

    kills: int
    """Since the watch of the worker began."""
    s: float
    """Since the last one was noticed, which is a look (15 s) after it at most."""


class Finished(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last words of a training that is over: after them nothing but exit noise was written."""

    line: str
    """As it was written, 200 characters at most."""
    s: float
    """Since it was first seen, seconds."""


SANE_WORK = 1 << 53
"""``last completed NCCL work: 76280750235782912`` was posted: such a number is no count of operations."""


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What a rank's PyTorch says of its default process group."""

    rank: int
    """The program's own."""
    enqueued: int
    completed: int | None = None


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NCCL, PyTorch, Gloo, MLX, XLA or vLLM said of a collective in an output file: the first of its class in
    this attempt."""

    kind: str
    """stuck, aborted, dying, peer_gone, ambiguous, benign."""
    stack: str
    """nccl, c10d, gloo, mlx, xla, vllm."""
    line: str
    """As it was written, 400 characters at most."""
    s: float = 0
    """Since it was first seen, seconds."""
    last_s: float = 0
    """Since such a word was last seen."""
    rank: int | None = None
    """Who says so: the program's own rank, else the task that ``srun --label`` names. It waits; it is not the one
    that is missing."""
    op: str = ""
    seq: int | None = None
    """Counts per process group: no measure between groups."""
    ran_ms: int | None = None
    enqueued: int | None = None
    """The last work that this rank enqueued, and the last that was completed."""
    completed: int | None = None
    ranks: tuple[int, ...] = ()
    """Those that it names as missing or lagging."""
    works: tuple[Work, ...] = ()
    """Of all ranks that told it in these files: those with the lowest last enqueued work, and the one with the highest;
    64 at most."""


class Chatter(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output line that repeats on a clock. It counts as output all the same, unless the run or its site says that
    it does not."""

    line: str
    every_s: float
    other_s: float
    """Since any other line was last written, seconds."""


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """Python threads of a process that are all in the same place."""

    name: str = ""
    """Of the first of them; Python's own name for it."""
    count: int = 1
    frames: list[str] = []
    """Leaf first, 24 at most."""


class Stack(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a worker process's Python is, as py-spy read it."""

    pid: int
    start: int
    """As in the process's record: tells a reused PID."""
    step: str
    rank: int
    """Of its worker."""
    local: int = 0
    own: str = ""
    """The process's own RANK, as in its record."""
    s: float = 0
    """Since it was read, seconds."""
    frames: list[str] = []
    """Its main thread's (os_thread_id == PID), leaf first, 24 at most of 120 characters:
    ``next_batch (loader.py:41)``."""
    threads: list[ThreadStack] = []
    """The other threads, as many as there is room for."""
    unknown: str = ""
    """Why there are no frames."""


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last lines of a step's output, read when stacks were asked for: evidence for people, never judged."""

    step: str
    log: str = ""
    """Path of the file."""
    lines: list[str] = []
    """24 at most of 200 printable characters, the newest last."""
    unknown: str = ""
    """Why there are none."""


class Stacks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a command ``stacks``, in each report until a reply shows that one arrived."""

    ask: str
    """The command's own id."""
    native: bool = False
    """Frames of C and C++ are among them."""
    taken: list[Stack] = []
    unknown: str = ""
    """Why there is nothing at all."""
    ends: list[End] = []
    """Of the steps whose output file is held on this node."""


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric that the run named, as the worker's endpoint or text file tells it."""

    name: str
    value: float | None = None
    """Its last finite value; where it has several series, their sum. None: it never had one."""
    unchanged_s: float | None = None
    """Since its value last changed, or another process came to serve it, seconds. None: it could not be read now."""
    looked_s: float = 0
    """Since it was last read."""


class RasRank(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank of a communicator, as NCCL RAS names it."""

    rank: int
    """In its communicator."""
    host: str = ""
    """Address that its process made its first connection from; "" where it was not told."""
    pid: int = 0
    """As the process sees itself: in its own PID namespace. 0: it was not told."""
    why: str = ""
    """Of one that is missing: missing (nothing came from it), dead (for a minute and more)."""
    s: float = 0
    """Since the first of the looks that told so without a break, seconds."""
    looks: int = 0


class RasGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ranks of a communicator that have launched the same operations."""

    n: int
    counts: dict[str, int] = {}
    """By kind, AllReduce and its like; "" for all kinds together, which is what 2.24 tells. Nothing that is zero."""
    ranks: list[RasRank] = []
    """32 at most; of a text reply only those that it names."""


class RasComm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A communicator of which something is odd."""

    id: str
    size: int
    missing: list[RasRank] = []
    """32 at most."""
    missing_n: int = 0
    groups: list[RasGroup] = []
    """The fullest first, 8 at most."""
    states: dict[str, int] = {}
    """RUNNING, INIT, FINALIZE, ABORT, NOCOMM, to how many ranks are in it."""
    errors: dict[str, int] = {}
    """ncclResult_t by number, or what a text reply calls it, to how many ranks report it."""
    still_s: float = 0
    """For how long its operation counts have stood still, over all looks that found them so."""
    looks: int = 0
    """How many looks found them so."""


class Ras(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NCCL RAS says of a step's communicators: asked only on suspicion, of one node or two."""

    s: float = 0
    """Since it was said, seconds."""
    version: str = ""
    """Of NCCL."""
    text: bool = False
    """It was asked in text: of those that are well it names nobody."""
    of: int = 0
    """How many communicators it told of."""
    comms: list[RasComm] = []
    """Those of which something is odd, 16 at most."""
    unknown: str = ""
    """Why nothing is known: it could not be asked, or its answer tells nothing. Never a sign of a stall."""
