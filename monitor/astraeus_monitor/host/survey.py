"""One pass over all processes of the node, made in a child and seldom: which srun holds a step's output, and
which steps run here that no plugin registered."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

import msgspec

from .procfs import Proc
from .ties import LISTEN, socket_inode
from .tree import Identity

STEPD = re.compile(rb"slurmstepd: \[(\d+)\.(batch|\d+)(?:\+\d+)?\]")


class Srun(msgspec.Struct, tag="srun"):
    """An srun on this node: the job that it says it belongs to, and the ports where it listens."""

    pid: int
    start: int
    ppid: int
    job: int
    ports: list[int]
    uid: int | None = None
    """Whose it is."""
    drops: bool = False
    """It was told to throw its tasks' output away (``--output=none``): the files that it holds tell nothing."""


class Stepd(msgspec.Struct, tag="stepd"):
    """A step's slurmstepd and its tasks, found by parentage."""

    pid: int
    start: int
    job: int
    step: str
    tasks: list[tuple[int, int, int, int]]
    """(rank, local id, PID, start)"""
    nodes: int = 1
    ntasks: int = 1
    node_id: int = 0
    nodelist: str = ""


Line = Srun | Stepd
DECODER = msgspec.json.Decoder(Line)


def survey(proc: Proc) -> Iterator[Line]:
    """Every srun and every slurmstepd of a step on the node."""
    stepds: dict[int, tuple[int, int, str]] = {}
    below: dict[int, list[tuple[int, int]]] = {}
    sruns = []
    for pid in proc.pids():
        try:
            stat = proc.stat(pid)
            if stat is None or stat.state in "ZX":
                continue
            if stat.comm == "srun":
                sruns.append(stat)
            elif stat.comm.startswith("slurmstepd") and proc.uid(pid) in (0, os.geteuid()):
                # A user's process may have that name too: it would tell of tasks in anybody's job.
                found = STEPD.match(proc.cmdline(pid))
                if found:
                    stepds[pid] = (stat.start, int(found[1]), found[2].decode())
            else:
                below.setdefault(stat.ppid, []).append((pid, stat.start))
        except PermissionError:
            continue
    for stat in sruns:
        yield _srun(proc, stat.pid, stat.start, stat.ppid)
    for pid, (start, job, step) in stepds.items():
        yield _stepd(proc, Stepd(pid, start, job, step, []), below.get(pid, []))


def ambiguous(sruns: Collection[Srun], taken: Collection[Identity]) -> bool:
    """Whether a step could be of several sruns of its job, or only of one that is another step's (``taken``)."""
    pids = {s.pid for s in sruns}
    tops = [s for s in sruns if s.ppid not in pids]  # srun forks a copy of itself
    return len(tops) != 1 or any((s.pid, s.start) in taken for s in tops)


def _srun(proc: Proc, pid: int, start: int, ppid: int) -> Srun:
    job, ports, drops = 0, set(), False
    try:
        environ = proc.environ(pid)
        job, drops = _int(environ, "SLURM_JOB_ID"), drops_output(proc.cmdline(pid).decode(errors="replace"), environ)
        inodes = {socket_inode(proc.link(pid, "fd", fd)) for fd in proc.fds(pid)}
        for socket in proc.sockets(pid):
            if socket.state == LISTEN and socket.inode in inodes:
                ports.add(int(socket.local.rpartition(":")[2], 16))
    except PermissionError:
        pass
    return Srun(pid, start, ppid, job, sorted(ports), proc.uid(pid), drops)


def drops_output(arguments: str, environ: dict[str, str]) -> bool:
    """Whether an srun's options (NUL between them) or variables throw standard output away, and errors with it."""
    words = arguments.split("\0")
    out, err = environ.get("SLURM_STDOUTMODE", ""), environ.get("SLURM_STDERRMODE", "")
    for name, value in zip(words[1:], [*words[2:], ""], strict=True):
        for short, long in (("-o", "--output"), ("-e", "--error")):
            if name in (short, long):
                told = value
            elif name.startswith(f"{long}=") or (name.startswith(short) and not name.startswith("--")):
                told = name.removeprefix(f"{long}=" if name.startswith("--") else short).lstrip("=")
            else:
                continue
            out, err = (told, err) if short == "-o" else (out, told)
    return out == "none" and err in ("", "none")


def _stepd(proc: Proc, found: Stepd, kids: list[tuple[int, int]]) -> Stepd:
    for pid, start in kids:
        try:
            environ = proc.environ(pid)
        except PermissionError:
            continue
        if found.step == "batch":
            found.tasks.append((0, 0, pid, start))
            found.nodelist = environ.get("SLURM_JOB_NODELIST", "")
        elif "SLURM_PROCID" in environ:
            found.tasks.append((_int(environ, "SLURM_PROCID"), _int(environ, "SLURM_LOCALID"), pid, start))
            found.nodes = _int(environ, "SLURM_STEP_NUM_NODES", 1)
            found.ntasks = _int(environ, "SLURM_STEP_NUM_TASKS", 1)
            found.node_id = _int(environ, "SLURM_NODEID")
            found.nodelist = environ.get("SLURM_STEP_NODELIST", "")
    return found


def _int(environ: dict[str, str], name: str, default: int = 0) -> int:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default
