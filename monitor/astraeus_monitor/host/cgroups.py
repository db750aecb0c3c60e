"""Which cgroups a process is in. Read once a look, for all that asks of them: whether it is frozen, who was killed."""

from __future__ import annotations

from .procfs import Proc

Cgroups = list[tuple[list[str], str]]
"""(controllers, path) of each hierarchy; no controllers: version 2."""


def cgroups_of(proc: Proc, pid: int) -> Cgroups:
    """Empty where it has just ended, or may not be read."""
    try:
        lines = proc.text(pid, "cgroup", limit=65536).decode(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        found.append((controllers.split(",") if controllers else [], path))
    return found
