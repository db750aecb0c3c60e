"""One look at a job's processes, made in a child with a deadline: what it sees, line by line.

Lines go out as they are found, so that a process whose files do not answer costs its own worker only: the
``Began`` before it names it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from ..host import oom, ties
from ..host.cgroups import CgroupFiles, Cgroups, cgroups_of
from ..host.frozen import is_frozen
from ..host.netns import inner_pid
from ..host.outputs import File, Finder, Inlet, beside, held_by, identities, output_kind, positions
from ..host.procfs import Proc
from ..host.tree import Identity, ProcLook, worker_processes
from .waits import Place, WaitSeen, look_at_waits

MPI_VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK")
RANK_VARIABLES = ("RANK", *MPI_VARIABLES)
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
    relays: list[tuple[int, int, int]] = []
    """(PID, start, descriptor): files into which others of the job hand on what it writes into pipes."""


class Facts(msgspec.Struct):
    """What does not change while a process runs the same program: read once."""

    exe: str
    cmd: int
    made: str
    rank: str
    visible: str | None
    inner: int = 0
    """As ``Process.inner``."""


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
        self.cgroups: dict[Identity, Cgroups] = {}
        """Of tasks, as the last deep look found them."""
        self.cgroup_files = CgroupFiles()
        self.used = 0.0  # time of the last look

    def keep(self, procs: Iterable[ProcLook], now: float) -> None:
        """Remember these processes and forget all others."""
        self.used = now
        self.facts = {(p.pid, p.start, p.comm, p.image): Facts(p.exe, p.cmd, p.made, p.rank, p.visible)
                      for p in procs if p.state not in "ZX"}
        self.cgroups = {p.id: self.cgroups[p.id] for p in procs if p.id in self.cgroups}
        if len(self.kinds) > MAX_KINDS:
            self.kinds.clear()


class Ask(msgspec.Struct, tag="look"):
    """What one look is to read."""

    job: int
    tasks: list[TaskAsk]
    sruns: list[SrunAsk]
    now: float
    settled: dict[Identity, bool]
    """Processes of which only the outputs are read, and whether they hold a GPU."""
    launchers: dict[Identity, bool]
    outs: dict[Identity, list[int]] = {}
    """The descriptors of processes that are output files, as the last deep look found them."""
    waits: list[Identity] = []
    """Processes that have gone quiet: what they wait for in the kernel is read."""


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
    """Regular files that hold its output: ``outputs.Routes``."""
    to: str | None = None
    """As in ``Routes``; None: not looked at this time."""
    inlets: list[Inlet] = []
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
    into: list[str] = []
    """What its standard output and error are instead: ``pipe:[42]``, /dev/null, /dev/pts/3."""


Line = Began | TaskLook | SrunLook | WaitSeen
DECODER = msgspec.json.Decoder(Line)


def look(proc: Proc, ask: Ask, memory: Memory) -> Iterator[Line]:
    """Everything that ``ask`` asks for, worker by worker."""
    sockets: dict[str, dict[int, tuple[str, str]]] = {}
    procs: list[ProcLook] = []
    memory.cgroup_files.begin(deep=any(not task.known for task in ask.tasks))
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
    deep = not task.known
    held: dict[int, dict[int, str]] = {}
    hertz = os.sysconf("SC_CLK_TCK")
    for stat in tree:
        if stat.state in "ZX":
            facts = Facts(stat.comm, 0, "", "", None)
        else:
            facts = memory.facts.get((stat.pid, stat.start, stat.comm, stat.image)) or _facts(proc, stat.pid)
        age = ask.now - stat.start / hertz
        p = ProcLook(stat.pid, stat.start, stat.ppid, stat.comm, stat.state, stat.ticks, age,
                     facts.exe, facts.cmd, facts.made, facts.rank, facts.visible, image=stat.image,
                     inner=facts.inner)
        try:
            io = proc.io(p.pid)
            p.write_bytes, p.wchar = io.get("write_bytes"), io.get("wchar")
            held[p.pid] = _look_at_fds(proc, ask, p, deep=deep)
        except PermissionError:
            seen.faults.append(("process", f"may not read /proc/{p.pid}: the monitor must run as root"))
        seen.procs.append(p)
    for p in worker_processes(seen.procs, ask.launchers):
        p.worker = True
    aside = beside(seen.procs) if deep else {
        p.pid for p in seen.procs if p.pid in task.known and p.id not in ask.outs}
    routes = Finder(proc, memory.kinds, seen.procs, held, aside).find(inlets=task.step == "batch") if deep else None
    if routes:
        seen.files, seen.to, seen.inlets = routes.files, routes.to, routes.inlets
    for p in seen.procs:
        p.aside = p.pid in aside
        if routes:
            p.outs = routes.outs.get(p.pid, [])
        elif not p.aside and p.comm != "srun":
            fresh = [fd for fd in (1, 2) if fd in held.get(p.pid, {})]
            p.outs = ask.outs.get(p.id, fresh)
            here = positions(proc, memory.kinds, p.pid, p.outs, worker=p.worker) if p.outs else []
            seen.files += [f for f in here if f not in seen.files]
    top = (task.pid, task.start)
    if deep or not memory.cgroups.get(top):
        memory.cgroups[top] = cgroups_of(proc, task.pid)
    seen.frozen = is_frozen(memory.cgroups[top], memory.cgroup_files)
    seen.oom = oom.kills(memory.cgroups[top], memory.cgroup_files)
    if task.ties:
        for p in seen.procs:
            if p.worker and p.pid in held:
                inodes = [inode for target in held[p.pid].values() if (inode := ties.socket_inode(target)) is not None]
                p.ties = _ties(proc, p.pid, inodes, sockets)
                if not p.ties or p.rank.startswith(MPI_VARIABLES):  # an MPI's rank has a connection to its launcher
                    p.ties += ties.shared_memory(proc.maps(p.pid), os.uname().nodename)
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
                 visible if visible is None else visible[:MAX_VISIBLE], inner_pid(proc, pid))


def _look_at_fds(proc: Proc, ask: Ask, p: ProcLook, *, deep: bool) -> dict[int, str]:
    """What its descriptors are, and whether it holds a GPU. Of one that is settled, at a deep look its outputs, else
    nothing: where they go was found then."""
    if p.state in "ZX":
        return {}
    found: dict[int, str] = {}
    settled = p.id in ask.settled
    p.gpu = ask.settled.get(p.id, False)
    for fd in ((1, 2) if deep else ()) if settled else proc.fds(p.pid):
        target = proc.link(p.pid, "fd", fd)
        if target:
            found[fd] = target
        if target.startswith("/dev/nvidia") and target[11:].isdigit():
            p.gpu = True
    return found


def _look_at_srun(proc: Proc, memory: Memory, srun: SrunAsk) -> Iterator[SrunLook]:
    stat = proc.stat(srun.pid)
    if stat is None or stat.start != srun.start:
        return
    try:
        io = proc.io(srun.pid)
        seen = SrunLook(srun.step, srun.pid, srun.start, io.get("wchar"), io.get("syscw"))
        for fd in proc.fds(srun.pid):
            target = proc.link(srun.pid, "fd", fd)
            file = output_kind(proc, memory.kinds, srun.pid, fd, target)[1] if target.startswith("/") else None
            if file and file not in seen.files:
                seen.files.append(file)
            elif fd in (1, 2) and target and file is None and target not in seen.into:
                seen.into.append(target)
        for (pid, start), fds in identities(srun.relays).items():
            seen.files += [f for f in held_by(proc, pid, start, fds, memory.kinds) if f not in seen.files]
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
