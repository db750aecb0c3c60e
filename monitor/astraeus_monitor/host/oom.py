"""How often the kernel killed a process because a task's memory was used up: its cgroup's own count."""

from __future__ import annotations

from astraeus_protocol import report

from .cgroups import CgroupFiles, Cgroups

JOB = "job_"
"""Slurm's name of a job's cgroup: above it lie others' processes too."""
NO_COUNT = "its cgroup has no count of what was killed for lack of memory"


class OomWatch:
    """Kills for lack of memory, since the watch began. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.at = 0.0

    def see(self, count: int | None, now: float) -> None:
        """Take the cgroup's count in; one that fell is another cgroup's."""
        if count is not None and (self.first is None or self.last is None or count < self.last):
            self.first = count
        elif count is not None and self.last is not None and count > self.last:
            self.at = now
        self.last = count if count is not None else self.last

    def record(self, now: float) -> report.Oom | None:
        """For the report."""
        kills = (self.last or 0) - (self.first or 0)
        return report.Oom(kills, round(now - self.at, 2)) if kills else None


def kills(cgroups: Cgroups, files: CgroupFiles) -> int | None:
    """OOM kills in the nearest of a process's cgroups that counts them, its job's at the farthest; None: none does.

    Version 2's ``memory.events`` counts what lies below, too. Version 1's ``memory.oom_control`` has a count since
    Linux 4.13; ``memory.failcnt`` beside it counts only how often the limit was met, which kills nobody.
    """
    for controllers, path in cgroups:
        if not controllers:
            places = [f"{hybrid}{above}/memory.events" for above in _upwards(path) for hybrid in ("", "/unified")]
        elif "memory" in controllers:
            places = [f"/memory{above}/memory.oom_control" for above in _upwards(path)]
        else:
            continue
        for place in places:
            found = _count(files.text(place))
            if found is not None:
                return found
    return None


def _upwards(path: str) -> list[str]:
    """The cgroup and those above it, up to its job's; outside of a job's only itself."""
    parts = path.rstrip("/").split("/")
    last = next((place for place, part in enumerate(parts) if part.startswith(JOB)), len(parts) - 1)
    return ["/".join(parts[:end]) for end in range(len(parts), last, -1) if end > 1]


def _count(text: str) -> int | None:
    counts = (line.removeprefix("oom_kill ") for line in text.splitlines() if line.startswith("oom_kill "))
    return next((int(count) for count in counts if count.isdigit()), None)
