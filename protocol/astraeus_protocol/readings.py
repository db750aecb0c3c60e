"""What sources say, as a report carries it: docs/report.md. Ages and unknowns as in ``report``."""

from __future__ import annotations

import msgspec


class Unknown(msgspec.Struct, omit_defaults=True, gc=False):
    """A source that could not be read, and why, in a few words."""

    source: str
    reason: str


XID_LOST, XID_NO_ANSWER = frozenset({79}), frozenset({119, 120})
"""Xid events: the GPU has fallen off the bus; its firmware (GSP) does not answer."""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class Place(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class Edge(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class Oom(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Processes of the worker's cgroup that the kernel killed because its memory was used up."""

    kills: int
    """Since the watch of the worker began."""
    s: float
    """Since the last one was noticed, which is a look (15 s) after it at most."""


class Finished(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last words of a training that is over: after them nothing but exit noise was written."""

    line: str
    """As it was written, 200 characters at most."""
    s: float
    """Since it was first seen, seconds."""


SANE_WORK = 1 << 53
"""``last completed NCCL work: 76280750235782912`` was posted: such a number is no count of operations."""


class Work(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a rank's PyTorch says of its default process group."""

    rank: int
    """The program's own."""
    enqueued: int
    completed: int | None = None


class Said(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class Chatter(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An output line that repeats on a clock. It counts as output all the same, unless the run or its site says that
    it does not."""

    line: str
    every_s: float
    other_s: float
    """Since any other line was last written, seconds."""


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Python threads of a process that are all in the same place."""

    name: str = ""
    """Of the first of them; Python's own name for it."""
    count: int = 1
    frames: list[str] = []
    """Leaf first, 24 at most."""


class Stack(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class End(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last lines of a step's output, read when stacks were asked for: evidence for people, never judged."""

    step: str
    log: str = ""
    """Path of the file."""
    lines: list[str] = []
    """24 at most of 200 printable characters, the newest last."""
    unknown: str = ""
    """Why there are none."""


class Stacks(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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


class Metric(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A metric that the run named, as the worker's endpoint or text file tells it."""

    name: str
    value: float | None = None
    """Its last finite value; where it has several series, their sum. None: it never had one."""
    unchanged_s: float | None = None
    """Since its value last changed, or another process came to serve it, seconds. None: it could not be read now."""
    looked_s: float = 0
    """Since it was last read."""
