"""How often the kernel killed a process because a task's memory was used up: its cgroup's own count."""

from __future__ import annotations

from .procfs import Proc

JOB = "job_"
"""Slurm's name of a job's cgroup: above it lie others' processes too."""


def kills(proc: Proc, pid: int, cgroups: str = "/sys/fs/cgroup") -> int | None:
    """OOM kills in the nearest cgroup of the process that counts them, its job's at the farthest; None: none does.

    Version 2's ``memory.events`` counts what lies below, too. Version 1's ``memory.oom_control`` has a count since
    Linux 4.13; ``memory.failcnt`` beside it counts only how often the limit was met, which kills nobody.
    """
    try:
        lines = proc.text(pid, "cgroup", limit=65536).decode(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers == "":
            places = [f"{cgroups}{hybrid}{above}/memory.events" for above in _upwards(path)
                      for hybrid in ("", "/unified")]
        elif "memory" in controllers.split(","):
            places = [f"{cgroups}/memory{above}/memory.oom_control" for above in _upwards(path)]
        else:
            continue
        for place in places:
            found = _count(place)
            if found is not None:
                return found
    return None


def _upwards(path: str) -> list[str]:
    """The cgroup and those above it, up to its job's; outside of a job's only itself."""
    parts = path.rstrip("/").split("/")
    last = next((place for place, part in enumerate(parts) if part.startswith(JOB)), len(parts) - 1)
    return ["/".join(parts[:end]) for end in range(len(parts), last, -1) if end > 1]


def _count(place: str) -> int | None:
    try:
        with open(place) as file:
            words = (line.split() for line in file.read(4096).splitlines())
            return next((int(word[1]) for word in words if len(word) == 2 and word[0] == "oom_kill"), None)
    except (OSError, ValueError):
        return None
