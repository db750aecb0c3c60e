"""Where the output of a task's processes goes: to files that grow, through pipes and terminals of the tree, or nowhere.

A file counts where a process of the tree writes its standard output or error to it, a log file that a worker process
holds open (``log_like``), and what a relay (tee, script) that reads such output writes.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Collection, Iterable, Mapping

import msgspec

from .procfs import FdInfo, Proc
from .tree import FILTERS, SHELLS, Identity, ProcLook

RELAYS = FILTERS | {"script", "unbuffer", "expect", "conmon", "multilog", "svlogd", "cronolog"}
"""What they read they write: each of their files is output, whatever its name."""
METERS = frozenset({"nvidia-smi", "dcgmi", "nvtop", "nvitop", "gpustat", "rocm-smi", "vmstat", "iostat", "mpstat",
                    "pidstat", "sar", "sadc", "dstat", "dool", "top", "htop", "free", "perf", "inotifywait", "watch"})
"""They print on a clock whatever the training does: a batch script that lets ``nvidia-smi -l 10 > gpu.log &`` run once
looked alive for the whole night."""
DATA = frozenset({
    "pt", "pth", "ckpt", "bin", "safetensors", "npy", "npz", "h5", "hdf5", "pkl", "pickle", "db", "sqlite", "sqlite3",
    "db-wal", "db-shm", "db-journal", "sqlite-wal", "sqlite3-wal", "wal", "arrow", "parquet", "feather", "tfrecord",
    "tfrecords", "tar", "zip", "gz", "zst", "xz", "bz2", "lz4", "mdb", "lmdb", "lock", "pid", "nsys-rep", "qdrep", "pb",
    "onnx", "tmp", "part", "idx", "png", "jpg", "wav", "mp4"})
"""Endings of checkpoints, data sets and databases: their growth is ``writing``, not output."""
LOGS = frozenset({"log", "logs", "out", "err", "stdout", "stderr", "txt", "jsonl"})
PATH_KINDS = (("pipe:", "pipe"), ("socket:", "socket"), ("/dev/null", "null"), ("/dev/pts/", "pty"),
              ("/dev/tty", "pty"), ("/dev/", "device"))
MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")
LOOSE = ("pipe", "socket", "fifo", "pty", "device", "other")
"""Ends where output may go on unseen, those first that a step's srun may hold the other side of."""
DELETED = " (deleted)"
MAX_FDS = 256
"""Descriptors of a worker process among which its logs are looked for: the first that it opened."""


class File(msgspec.Struct, omit_defaults=True):
    """A file that a process holds open for writing."""

    path: str
    ino: int
    pos: int
    mnt: int = 0
    log: bool = False
    """It is no standard output or error: a log file that a worker process opened by itself."""

    @property
    def key(self) -> str:
        """The same for the same file whatever becomes of its name: a log that is rotated by renaming or deleted while
        it is open has not grown. Kernels before 5.14 tell no inode."""
        return f"{self.mnt}:{self.ino}" if self.ino else self.path.removesuffix(DELETED)


class Inlet(msgspec.Struct):
    """A pipe that a process of the tree reads as its standard input, and where what it reads ends."""

    pipe: str
    """As /proc names it: ``pipe:[42]``"""
    holders: list[tuple[int, int, int]]
    """(PID, start, descriptor) of the files"""


class Routes(msgspec.Struct):
    """Where the output of one task goes."""

    outs: dict[int, list[int]] = {}
    """PID to its descriptors that are output files."""
    files: list[File] = []
    to: str = ""
    """Where output of worker processes may go unseen: pipe, socket, fifo, pty, device, other; ``null`` where all of
    it goes to /dev/null, ``nothing`` where it is closed; "" where files hold it."""
    inlets: list[Inlet] = []


def output_kind(proc: Proc, kinds: dict[str, str], pid: int, fd: int, target: str) -> tuple[str, File | None]:
    """(kind, file) of an open file; a File only for a regular one that is open for writing."""
    kind, info = place_of(proc, kinds, pid, fd, target)
    return kind, (File(target, info.ino, info.pos, info.mnt) if kind == "file" and info and info.writes else None)


def place_of(proc: Proc, kinds: dict[str, str], pid: int, fd: int, target: str) -> tuple[str, FdInfo | None]:
    """(kind, what fdinfo says) of an open file: file, pipe, socket, null, pty, device, fifo, other."""
    for start, kind in PATH_KINDS:
        if target.startswith(start):
            return kind, None
    info = proc.fdinfo(pid, fd)
    if not target.startswith("/") or info is None:
        return "other", None
    if info.pos > 0:  # what has a position is no FIFO: a file system that hangs is not asked about a file in use
        return "file", info
    key = f"{info.ino}:{target}"
    if key not in kinds:
        # The one question to the file system, once a file, before its first byte: a FIFO has a path too.
        try:
            mode = os.stat(f"{proc.root}/{pid}/fd/{fd}").st_mode
        except OSError:
            return "other", None
        kinds[key] = "file" if modes.S_ISREG(mode) else "fifo" if modes.S_ISFIFO(mode) else "other"
    return kinds[key], info


def log_like(path: str, info: FdInfo) -> bool:
    """Whether a file that a worker process holds open is a log, told by how it is opened and called.

    Loggers append (Python's FileHandler, Hydra, absl): O_APPEND. Checkpoints, data sets and databases are written
    at places of their own choice, or once from the beginning; those that append have their own endings. A log that is
    opened anew (``open("train.log", "w")``, NCCL's debug file) is told by its name, if nothing is read from it.
    """
    name = path.removesuffix(DELETED).rpartition("/")[2].lower()
    words = set(name.replace("_", ".").replace("-", ".").split("."))
    if name.rpartition(".")[2] in DATA or "journal" in name:
        return False
    if not info.writes:
        return False
    if info.flags & os.O_APPEND:
        return True
    return info.flags & os.O_ACCMODE == os.O_WRONLY and bool(words & LOGS)


def beside(procs: Iterable[ProcLook]) -> set[int]:
    """PIDs of what only measures: meters, what is below them, and shells that do nothing but call them."""
    procs = list(procs)
    kids: dict[int, list[ProcLook]] = {}
    for p in procs:
        kids.setdefault(p.ppid, []).append(p)
    found: set[int] = set()
    for p in procs:  # parents come first
        below = kids.get(p.pid, [])
        loop = (p.name in SHELLS and not p.worker and p is not procs[0] and bool(below)
                and all(kid.name in METERS or kid.name == "sleep" for kid in below))
        if p.ppid in found or (not p.worker and (p.name in METERS or p.comm in METERS)) or loop:
            found.add(p.pid)
    return found


class Finder:
    """Follows the output of one task's processes. ``held``: PID to its descriptors and what they are."""

    def __init__(self, proc: Proc, kinds: dict[str, str], procs: list[ProcLook],
                 held: Mapping[int, Mapping[int, str]], aside: Collection[int]) -> None:
        self.proc, self.kinds, self.held = proc, kinds, held
        self.procs = {p.pid: p for p in procs if p.state not in "ZX" and p.comm != "srun" and p.pid not in aside}
        self.routes = Routes(outs={})
        self.seen: dict[tuple[int, int], tuple[str, File | None]] = {}
        self.readers = self._readers()

    def find(self, *, inlets: bool) -> Routes:
        """Where it goes. ``inlets``: name the pipes that come from outside, too."""
        ends: set[str] = set()
        reached = False
        for p in self.procs.values():
            for fd in (1, 2):
                self._note(p.pid, fd)  # a script's own words count, wherever its training's go
        workers = [p for p in self.procs.values() if p.worker] or list(self.procs.values())
        for p in workers:
            files, kinds = self._follow(p.pid, set())
            files |= {(p.pid, fd) for fd in self._logs(p)}
            reached |= bool(files)
            ends |= kinds
        loose = [kind for kind in LOOSE if kind in ends]
        self.routes.to = loose[0] if loose else "" if reached else "null" if "null" in ends else "nothing"
        if inlets:
            for p in self.procs.values():
                pipe = self.held.get(p.pid, {}).get(0, "")
                if pipe.startswith("pipe:"):
                    files = self._follow(p.pid, set(), (1,))[0]
                    holders = [(pid, self.procs[pid].start, fd) for pid, fd in sorted(files)]
                    if holders:
                        self.routes.inlets.append(Inlet(pipe, holders))
        return self.routes

    def _note(self, pid: int, fd: int, *, log: bool = False) -> bool:
        """Whether it is a file that is written; it counts then."""
        target = self.held.get(pid, {}).get(fd, "")
        if not target:
            return False
        file = self._kind(pid, fd, target)[1]
        if file is None:
            return False
        outs = self.routes.outs.setdefault(pid, [])
        if fd not in outs:
            outs.append(fd)
            file.log = log
            if file not in self.routes.files:
                self.routes.files.append(file)
        return True

    def _kind(self, pid: int, fd: int, target: str) -> tuple[str, File | None]:
        if (pid, fd) not in self.seen:
            self.seen[pid, fd] = output_kind(self.proc, self.kinds, pid, fd, target)
        return self.seen[pid, fd]

    def _follow(self, pid: int, passed: set[int], fds: tuple[int, ...] = (1, 2),
                ) -> tuple[set[tuple[int, int]], set[str]]:
        """Files (PID, descriptor) where what a process writes ends, and the kinds of its other ends. What a reader
        reads goes to its standard output: its errors are its own words (``cat FIFO > /dev/null`` once seemed to print
        into the job's file)."""
        files: set[tuple[int, int]] = set()
        ends: set[str] = set()
        passed.add(pid)
        held = self.held.get(pid, {})
        for fd in fds:
            target = held.get(fd, "")
            if not target:
                continue
            if self._note(pid, fd):
                files.add((pid, fd))
                continue
            kind = self._kind(pid, fd, target)[0]
            readers = self.readers.get(target, set()) - {pid}
            if not readers:
                ends.add("other" if kind == "file" else kind)
            for reader in readers - passed:
                more, kinds = self._follow(reader, passed, (1,))
                files |= more
                ends |= kinds
        p = self.procs[pid]
        if p.name in RELAYS or p.comm in RELAYS:
            files |= {(pid, fd) for fd in held if fd > 2 and self._note(pid, fd)}
        return files, ends

    def _logs(self, p: ProcLook) -> list[int]:
        found = []
        for fd, target in list(self.held.get(p.pid, {}).items())[:MAX_FDS]:
            if fd > 2 and target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
                info = self.proc.fdinfo(p.pid, fd) if self.proc.may_write(p.pid, fd) else None
                if info and log_like(target, info) and self._note(p.pid, fd, log=True):
                    found.append(fd)
        return found

    def _readers(self) -> dict[str, set[int]]:
        """What output is written into (pipes, FIFOs, terminals) to who in the tree reads it."""
        wanted = {target for pid in self.procs for fd in (1, 2) if (target := self.held.get(pid, {}).get(fd, ""))}
        wanted = {target for target in wanted if target.startswith(("pipe:", "/"))}
        found: dict[str, set[int]] = {}
        for pid in self.procs:
            for fd, target in self.held.get(pid, {}).items():
                if target in MASTERS:
                    number = self.proc.terminal(pid, fd)
                    if number is not None:
                        found.setdefault(f"/dev/pts/{number}", set()).add(pid)
                elif target in wanted and fd not in (1, 2) and not target.startswith("/dev/"):
                    info = self.proc.fdinfo(pid, fd)
                    if info and info.flags & os.O_ACCMODE != os.O_WRONLY:
                        found.setdefault(target, set()).add(pid)
        return found


def positions(proc: Proc, kinds: dict[str, str], pid: int, fds: Collection[int], *, worker: bool) -> list[File]:
    """Files behind descriptors that were found to be outputs before, of a worker process or of another."""
    found = []
    for fd in fds:
        target = proc.link(pid, "fd", fd)
        file = output_kind(proc, kinds, pid, fd, target)[1] if target else None
        if file:
            file.log = worker and fd > 2
            found.append(file)
    return found


def held_by(proc: Proc, pid: int, start: int, fds: Collection[int], kinds: dict[str, str]) -> list[File]:
    """The same of a process that may have gone meanwhile."""
    stat = proc.stat(pid)
    return positions(proc, kinds, pid, fds, worker=False) if stat and stat.start == start else []


def identities(holders: Iterable[tuple[int, int, int]]) -> dict[Identity, list[int]]:
    """(PID, start) to descriptors."""
    found: dict[Identity, list[int]] = {}
    for pid, start, fd in holders:
        found.setdefault((pid, start), []).append(fd)
    return found
