"""One look at a job's processes, made in a child with a deadline: what it sees, line by line.

Lines go out as they are found, so that a process whose files do not answer costs its own worker only: the
``Began`` before it names it.
"""

from __future__ import annotations

import os
import stat as modes
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from . import oom, ties
from .frozen import is_frozen
from .procfs import Proc
from .tree import Identity, ProcLook, worker_processes
from .waits import Place, WaitSeen, look_at_waits

RANK_VARIABLES = ("RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
MAX_PROCS = 512
"""Processes of a task that are read; beyond it the rest is left out, with a fault."""
MAX_KINDS, MAX_VISIBLE = 1024, 4096
"""Files whose kind is remembered; characters of CUDA_VISIBLE_DEVICES (its owner writes what he likes there)."""
HELPERS = tuple(b"multiprocessing." + name for name in (b"resource_tracker", b"semaphore_tracker", b"forkserver"))


class TaskAsk(msgspec.Struct):
    """A task to look at."""

    step: str
    rank: int
    pid: int
    start: int
    ties: bool = False
    known: list[int] = []
    """PIDs of its tree at the look before, where a shallow look is enough."""


class SrunAsk(msgspec.Struct):
    """An srun that holds a step's output."""

    step: str
    pid: int
    start: int


class Facts(msgspec.Struct):
    """What does not change while a process runs the same program: read once."""

    exe: str
    cmd: int
    made: str
    rank: str
    visible: str | None


class Memory:
    """What looks at a job need not read again. The monitor and the child that stays keep one each: the
    child's is a copy that it brings up to date itself.
    """

    def __init__(self) -> None:
        self.facts: dict[tuple[int, int, str, int], Facts] = {}
        """By (PID, start, comm, image). A child between its fork and its exec still shows its parent's arguments
        and variables, under the name that it may have afterwards too: a rank met there once stayed without its
        RANK for good."""
        self.kinds: dict[str, str] = {}
        """What is behind a path and inode: file, fifo, other."""
        self.waits: dict[Identity, Place] = {}
        """Where processes that have gone quiet waited at the look before."""
        self.used = 0.0  # time of the last look

    def keep(self, procs: Iterable[ProcLook], now: float) -> None:
        """Remember these processes and forget all others."""
        self.used = now
        self.facts = {(p.pid, p.start, p.comm, p.image): Facts(p.exe, p.cmd, p.made, p.rank, p.visible)
                      for p in procs if p.state not in "ZX"}
        if len(self.kinds) > MAX_KINDS:
            self.kinds.clear()


class Ask(msgspec.Struct):
    """What one look is to read."""

    job: int
    tasks: list[TaskAsk]
    sruns: list[SrunAsk]
    now: float
    settled: dict[Identity, bool]
    """Processes of which only the outputs are read, and whether they hold a GPU."""
    launchers: dict[Identity, bool]
    waits: list[Identity] = []
    """Processes that have gone quiet: what they wait for in the kernel is read."""


class File(msgspec.Struct):
    """A file that a process holds open for writing."""

    path: str
    ino: int
    pos: int


class Began(msgspec.Struct, tag="began"):
    """The look comes to this worker now."""

    step: str
    rank: int


class TaskLook(msgspec.Struct, tag="task", omit_defaults=True):
    """What was seen of a task."""

    step: str
    rank: int
    procs: list[ProcLook] = []
    files: list[File] = []
    """Regular files that the tree has open for writing as its standard output or error."""
    others: list[str] = []
    """What else they are: pipe, socket, null, pty, fifo."""
    frozen: bool = False
    oom: int | None = None
    """Processes of its cgroup that were killed for lack of memory; None: nobody counts them."""
    faults: list[tuple[str, str]] = []
    """(source, reason) for what could not be read."""


class SrunLook(msgspec.Struct, tag="srun", omit_defaults=True):
    """What was seen of an srun."""

    step: str
    pid: int
    start: int
    wchar: int | None = None
    syscw: int | None = None
    files: list[File] = []


Line = Began | TaskLook | SrunLook | WaitSeen
DECODER = msgspec.json.Decoder(Line)


def look(proc: Proc, ask: Ask, memory: Memory) -> Iterator[Line]:
    """Everything that ``ask`` asks for, worker by worker."""
    sockets: dict[str, dict[int, tuple[str, str]]] = {}
    procs: list[ProcLook] = []
    for srun in ask.sruns:
        yield from _look_at_srun(proc, memory, srun)
    for task in ask.tasks:
        yield Began(task.step, task.rank)
        seen = _look_at_task(proc, ask, memory, task, sockets)
        procs += seen.procs
        yield seen
    memory.keep(procs, ask.now)
    yield from look_at_waits(proc, ask.waits, procs, memory.waits)  # last: should it hang, all else is told


def _look_at_task(proc: Proc, ask: Ask, memory: Memory, task: TaskAsk,
                  sockets: dict[str, dict[int, tuple[str, str]]]) -> TaskLook:
    seen = TaskLook(task.step, task.rank)
    tree = proc.tree(task.pid, task.known)
    if not tree or tree[0].start != task.start:
        return seen
    if len(tree) > MAX_PROCS:
        seen.faults.append(("process", f"too many processes: {len(tree)}, the first {MAX_PROCS} are read"))
        del tree[MAX_PROCS:]
    held: dict[int, list[int]] = {}
    hertz = os.sysconf("SC_CLK_TCK")
    for stat in tree:
        if stat.state in "ZX":
            facts = Facts(stat.comm, 0, "", "", None)
        else:
            facts = memory.facts.get((stat.pid, stat.start, stat.comm, stat.image)) or _facts(proc, stat.pid)
        age = ask.now - stat.start / hertz
        p = ProcLook(stat.pid, stat.start, stat.ppid, stat.comm, stat.state, stat.ticks, age,
                     facts.exe, facts.cmd, facts.made, facts.rank, facts.visible, image=stat.image)
        try:
            p.write_bytes = proc.io(p.pid).get("write_bytes")
            held[p.pid] = _look_at_fds(proc, ask, memory, p, seen)
        except PermissionError:
            seen.faults.append(("process", f"may not read /proc/{p.pid}: the monitor must run as root"))
        seen.procs.append(p)
    for p in worker_processes(seen.procs, ask.launchers):
        p.worker = True
    seen.frozen = is_frozen(proc, task.pid)
    seen.oom = oom.kills(proc, task.pid)
    if task.ties:
        for p in seen.procs:
            if p.worker:
                p.ties = _ties(proc, p.pid, held.get(p.pid, []), sockets)
    return seen


def _facts(proc: Proc, pid: int) -> Facts:
    """Program, arguments and rank of a process."""
    try:
        arguments, environ = proc.cmdline(pid), proc.environ(pid)
        exe = proc.link(pid, "exe").removesuffix(" (deleted)")
    except PermissionError:
        return Facts("", 0, "", "", None)
    made = "helper" if any(name in arguments for name in HELPERS) else ""
    if not made and (b"--multiprocessing-fork" in arguments or b"multiprocessing.spawn" in arguments):
        made = "spawn"
    rank = next((f"{name}={environ[name]}" for name in RANK_VARIABLES if name in environ), "")
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return Facts(exe.rpartition("/")[2], zlib.crc32(arguments), made, rank[:64],
                 visible if visible is None else visible[:MAX_VISIBLE])


def _look_at_fds(proc: Proc, ask: Ask, memory: Memory, p: ProcLook, seen: TaskLook) -> list[int]:
    """Note the process's outputs and whether it holds a GPU; its socket inodes."""
    if p.state in "ZX":
        return []
    inodes: list[int] = []
    settled = p.id in ask.settled
    p.gpu = ask.settled.get(p.id, False)
    for fd in (1, 2) if settled else proc.fds(p.pid):
        target = proc.link(p.pid, "fd", fd)
        if target.startswith("socket:["):
            inodes.append(int(target[8:-1]))
        elif target.startswith("/dev/nvidia") and target[11:].isdigit():
            p.gpu = True
        if fd in (1, 2) and target and p.comm != "srun":
            kind, file = output_kind(proc, memory.kinds, p.pid, fd, target)
            if file and file not in seen.files:
                seen.files.append(file)
            elif kind != "file" and kind not in seen.others:
                seen.others.append(kind)
    return inodes


def output_kind(proc: Proc, kinds: dict[str, str], pid: int, fd: int,
                target: str) -> tuple[str, File | None]:
    """(kind, file) of an open file; a File only for a regular one that is open for writing."""
    for start, kind in (("pipe:", "pipe"), ("socket:", "socket"), ("/dev/null", "null"), ("/dev/pts/", "pty"),
                        ("/dev/tty", "pty"), ("/dev/", "device")):
        if target.startswith(start):
            return kind, None
    info = proc.fdinfo(pid, fd)
    if not target.startswith("/") or info is None:
        return "other", None
    key = f"{info.ino}:{target}"
    if key not in kinds:
        # The one question to the file system, once a file: a FIFO has a path too.
        try:
            mode = os.stat(f"{proc.root}/{pid}/fd/{fd}").st_mode
        except OSError:
            return "other", None
        kinds[key] = "file" if modes.S_ISREG(mode) else "fifo" if modes.S_ISFIFO(mode) else "other"
    if kinds[key] != "file":
        return kinds[key], None
    return "file", File(target, info.ino, info.pos) if info.writes else None


def _look_at_srun(proc: Proc, memory: Memory, srun: SrunAsk) -> Iterator[SrunLook]:
    stat = proc.stat(srun.pid)
    if stat is None or stat.start != srun.start:
        return
    try:
        io = proc.io(srun.pid)
        seen = SrunLook(srun.step, srun.pid, srun.start, io.get("wchar"), io.get("syscw"))
        for fd in proc.fds(srun.pid):
            target = proc.link(srun.pid, "fd", fd)
            if target.startswith("/"):
                _, file = output_kind(proc, memory.kinds, srun.pid, fd, target)
                if file and file not in seen.files:
                    seen.files.append(file)
        yield seen
    except PermissionError:
        return


def _ties(proc: Proc, pid: int, inodes: list[int],
          sockets: dict[str, dict[int, tuple[str, str]]]) -> list[int]:
    """Numbers of the TCP connections behind these socket inodes; net/tcp is read once per namespace."""
    if not inodes:
        return []
    space = proc.link(pid, "ns", "net") or str(pid)
    if space not in sockets:
        sockets[space] = ties.established(proc.sockets(pid))
    return ties.numbers(sockets[space], inodes)
