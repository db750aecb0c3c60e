"""Whether a process stands still because its cgroup is frozen: a job that Slurm suspended, mostly."""

from __future__ import annotations

import os

from .cgroups import Cgroups
from .procfs import READING


def is_frozen(cgroups: Cgroups, root: str = "/sys/fs/cgroup") -> bool:
    """Whether one of a process's cgroups is frozen, version 2 or 1."""
    return any(_frozen(controllers, path, root) for controllers, path in cgroups)


def _frozen(controllers: list[str], path: str, root: str) -> bool:
    """One hierarchy. A kernel may name one that is mounted nowhere: no word on the others."""
    if not controllers:
        return any("frozen 1" in _word(f"{root}{hybrid}{path}/cgroup.events") for hybrid in ("", "/unified"))
    return "freezer" in controllers and _word(f"{root}/freezer{path}/freezer.state") == "FROZEN"


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
