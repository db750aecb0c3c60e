"""Whether a process stands still because its cgroup is frozen: a job that Slurm suspended, mostly."""

from __future__ import annotations

import os

from .procfs import READING, Proc


def is_frozen(proc: Proc, pid: int, cgroups: str = "/sys/fs/cgroup") -> bool:
    """Whether the process's cgroup is frozen, version 2 or 1."""
    try:
        lines = proc.text(pid, "cgroup", limit=65536).decode(errors="replace").splitlines()
    except OSError:
        return False
    return any(_frozen(line, cgroups) for line in lines)


def _frozen(line: str, cgroups: str) -> bool:
    """One hierarchy of ``/proc/PID/cgroup``. A kernel may name one that is mounted nowhere: no word on the others."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers == "":
        return any("frozen 1" in _word(f"{cgroups}{hybrid}{path}/cgroup.events") for hybrid in ("", "/unified"))
    return "freezer" in controllers.split(",") and _word(f"{cgroups}/freezer{path}/freezer.state") == "FROZEN"


def _word(path: str) -> str:
    try:
        fd = os.open(path, READING)
    except OSError:
        return ""
    try:
        return os.read(fd, 4096).decode(errors="replace").strip()  # a Python file object costs three times as much
    except OSError:
        return ""
    finally:
        os.close(fd)
