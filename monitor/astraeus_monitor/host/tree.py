"""Which processes of a task do its work: worker processes. Pure.

A worker process holds a GPU's device file; where none does, it carries a rank of its own; where none does, it
is a leaf. Wrappers (shells, launchers, agents) are none, nor are the helpers that a worker process forked
(data loaders inherit its rank and its open devices).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox"})
LAUNCHERS = SHELLS | {
    "env", "timeout", "nice", "ionice", "numactl", "taskset", "time", "stdbuf", "setsid", "nohup", "xargs",
    "parallel", "unbuffer", "script", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy",
    "hydra_bstrap_proxy", "orterun", "orted", "prterun", "prted", "singularity", "apptainer", "starter",
    "starter-suid", "appinit", "enroot", "enroot-mount", "enroot-nsenter", "enroot-switchroot", "ch-run", "bwrap",
    "unshare", "nsenter", "chroot", "setpriv", "podman", "conmon", "runc", "crun", "tini", "tini-static",
    "dumb-init", "catatonit", "docker-init", "torchrun", "accelerate", "deepspeed", "horovodrun", "nsys", "ncu"}
MOUNTERS = frozenset({"squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "gocryptfs", "fusermount",
                      "fusermount3"})
"""Serve a container's file system from inside the task's tree, with the task's rank in their environment."""
OUTSIDE = MOUNTERS | {"srun", "slurmstepd", "sbcast", "scontrol", "squeue", "sacct", "nvidia-smi", "dcgmi", "nvtop"}
FILTERS = frozenset({"tee", "cat", "grep", "egrep", "sed", "awk", "gawk", "mawk", "ts", "tail", "head",
                     "sort", "uniq", "gzip", "zstd", "rotatelogs"})
INTERPRETERS = frozenset({"python", "pypy", "julia", "java", "node", "ruby", "perl", "Rscript", "R", "lua",
                          "octave"})
LEAF_SETTLED_S = 10
"""A leaf that is no interpreter counts once it has lived so long: a shell's ``sleep 1`` does not."""

Identity = tuple[int, int]
"""(PID, start time in clock ticks): tells a reused PID."""


class ProcLook(msgspec.Struct, omit_defaults=True):
    """What one look saw of a process in a task's tree."""

    pid: int
    start: int
    ppid: int
    comm: str
    state: str = "S"
    ticks: int = 0
    age_s: float = 0
    exe: str = ""
    cmd: int = 0
    """CRC of its arguments: tells a forked copy from a process that ran something else."""
    made: str = ""
    """``spawn`` or ``helper``, as Python's multiprocessing names its children on their command lines."""
    rank: str = ""
    """``RANK=21``"""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it has none."""
    gpu: bool = False
    """It holds a /dev/nvidia<number>."""
    write_bytes: int | None = None
    wchar: int | None = None
    """Bytes that it has written to anything: files, pipes, terminals, /dev/null."""
    outs: list[int] = []
    """Its descriptors that are output files."""
    aside: bool = False
    """It only measures: what it writes is nobody's output."""
    worker: bool = False
    ties: list[int] = []
    image: int = 0
    """As in ``Stat``."""
    inner: int = 0
    """Its PID as it sees it itself, where that is another."""

    @property
    def id(self) -> Identity:
        """(PID, start)"""
        return self.pid, self.start

    @property
    def name(self) -> str:
        """The program's name, else the process's."""
        return self.exe or self.comm


def worker_processes(procs: Iterable[ProcLook], launchers: Mapping[Identity, bool]) -> list[ProcLook]:
    """Worker processes among a task's tree, in order of start.

    ``launchers`` is what ``judge`` said of parents that forked copies of themselves: True, it only waits for
    them; False, it works beside them.
    """
    procs = list(procs)
    real = _with_own_ranks(_inside(procs))
    found: list[ProcLook] = []
    for group in ([p for p in real if p.gpu], [p for p in real if p.rank]):
        found = found or _Family(group, real, launchers, leaves=False).heads()
    found = found or _leaves(_Family(real, real, launchers, leaves=True).heads(), real)
    given = {p.id: p for p in procs}
    return sorted((given[p.id] for p in found), key=lambda p: p.id[::-1])


def _with_own_ranks(real: list[ProcLook]) -> list[ProcLook]:
    """The same, where a script under srun that set its own RANK has it, too: its environment as it was started does not
    show it, that of its children does. A program that it ran, a data loader's worker made by spawn, was taken for the
    rank. A launcher's children differ in rank, or run the script itself."""
    ranks: dict[int, set[str]] = {}
    programs: set[int] = set()
    for p in real:
        if p.rank:
            ranks.setdefault(p.ppid, set()).add(p.rank)
            if _interprets(p) and p.made != "spawn":
                programs.add(p.ppid)
    return [msgspec.structs.replace(p, rank=min(ranks[p.pid])) if not p.rank and _interprets(p)
            and len(ranks.get(p.pid, ())) == 1 and p.pid not in programs else p for p in real]


def judge(parent_ticks: int, child_ticks: list[int]) -> bool | None:
    """Whether a parent of copies of itself only launches them, from CPU ticks over 15 s; None: can't tell.

    A data loader's parent trains; a launcher that forks its workers waits in wait4 and uses nothing.
    """
    total = sum(child_ticks)
    if parent_ticks <= 3 and total >= 20:
        return True
    if child_ticks and parent_ticks >= 20 and parent_ticks * 2 >= total / len(child_ticks):
        return False
    return None


def is_copy(child: ProcLook, parent: ProcLook) -> bool:
    """Whether ``parent`` forked ``child`` without running something else in it."""
    return child.exe == parent.exe and (child.cmd == parent.cmd or child.made == "spawn")


def _inside(procs: list[ProcLook]) -> list[ProcLook]:
    """Without zombies, Slurm's own commands and what is below them, Python's helpers, what mounts containers,
    and shells that only run srun or mount (enroot's stays in state T as long as its container runs)."""
    out: set[int] = set()
    waiters: set[int] = set()
    shims: set[int] = set()
    kept = []
    for p in procs:  # parents come first
        if p.name in OUTSIDE or p.comm in OUTSIDE or p.made == "helper" or p.ppid in out:
            out.add(p.pid)
            if "srun" in (p.name, p.comm):
                waiters.add(p.ppid)
            elif p.name in MOUNTERS or p.comm in MOUNTERS:
                shims.add(p.ppid)
        elif p.state not in "ZX":
            kept.append(p)
    for p in reversed(list(kept)):
        if p.pid in waiters | shims and p.name in LAUNCHERS and all(k.ppid != p.pid for k in kept):
            kept.remove(p)
            if p.pid in waiters:
                waiters.add(p.ppid)
    return kept


class _Family:
    """A group of processes with the nearest relations inside the group."""

    def __init__(self, group: list[ProcLook], real: list[ProcLook], launchers: Mapping[Identity, bool],
                 *, leaves: bool) -> None:
        self.launchers, self.leaves = launchers, leaves
        by_pid, inside = {p.pid: p for p in real}, {p.pid for p in group}
        self.kids: dict[int, list[ProcLook]] = {}
        self.tops: list[ProcLook] = []
        for p in group:
            above = by_pid.get(p.ppid)
            while above and above.pid not in inside:
                above = by_pid.get(above.ppid)
            if above:
                self.kids.setdefault(above.pid, []).append(p)
            else:
                self.tops.append(p)

    def heads(self) -> list[ProcLook]:
        return [head for top in self.tops for head in self._resolve(top)]

    def _resolve(self, parent: ProcLook) -> list[ProcLook]:
        kids = self.kids.get(parent.pid, [])
        chosen = self._below(parent, kids)
        return [head for kid in chosen for head in self._resolve(kid)] if chosen else [parent]

    def _below(self, parent: ProcLook, kids: list[ProcLook]) -> list[ProcLook]:
        """The children that do the work instead of ``parent``; none when it does it itself."""
        if not kids:
            return []
        if parent.name in LAUNCHERS:
            return self._settled(parent, kids)
        own = [kid for kid in kids if kid.rank and kid.rank != parent.rank]
        if own:
            return own
        same = [kid for kid in kids if kid.exe == parent.exe]
        if not same:
            inner = [] if _interprets(parent) else [kid for kid in kids if _interprets(kid)]
            return inner
        copies = [kid for kid in same if is_copy(kid, parent)]
        verdict = self.launchers.get(parent.id)
        if parent.rank and copies and len(copies) == len(same):
            verdict = False  # copies that carry their parent's rank are its data loaders
        elif verdict is None:
            verdict = len(copies) < len(same) or (self.leaves and len(copies) >= 2)
        return same if verdict else []

    def _settled(self, parent: ProcLook, kids: list[ProcLook]) -> list[ProcLook]:
        """Children of a shell: those that filter another's output or have only just come are left out."""
        if not self.leaves:
            return kids
        work = [kid for kid in kids if kid.name not in FILTERS] or kids
        return [kid for kid in work if _interprets(kid) or kid.name in LAUNCHERS
                or self.kids.get(kid.pid) or kid.age_s >= LEAF_SETTLED_S]


def _leaves(heads: list[ProcLook], real: list[ProcLook]) -> list[ProcLook]:
    """Interpreters where there are any; shells only where nothing else is left."""
    for test in (_interprets, lambda p: p.name not in FILTERS and p.name not in LAUNCHERS):
        found = [p for p in heads if test(p)]
        if found:
            return found
    return heads if len(heads) == 1 or not real else heads[:1]


def _interprets(p: ProcLook) -> bool:
    return p.name.rstrip("0123456789.") in INTERPRETERS
