"""Whether a batch script runs anything: of a tree of shells that wait and sleepers nobody can expect progress. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..host.outputs import METERS
from ..host.tree import SHELLS, ProcLook

RESTING = SHELLS | METERS | {
    "sleep", "slurm_script", "srun", "sbcast", "scontrol", "squeue", "sacct", "sinfo", "tail", "tee", "env", "timeout",
    "nice", "nohup", "setsid", "stdbuf", "flock", "pause"}
"""They wait for something else, or measure. An srun that runs a step is that step's; one that waits for its step to
begin runs nothing. Who copies data (cat, cp, rsync, tar) works."""


class Rests:
    """Since when a task's tree has held nothing else. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.known = False

    def see(self, procs: Sequence[ProcLook], now: float) -> None:
        """Take a look in."""
        alive = [p for p in procs if p.state not in "ZX"]
        if any(p.name not in RESTING and p.comm not in RESTING for p in alive):
            self.since = None
        elif self.since is None:
            self.since = now
        self.known = bool(alive)

    def seconds(self, now: float) -> float | None:
        """For how long; 0: it holds more. None: it was not looked at."""
        if not self.known:
            return None
        return 0.0 if self.since is None else now - self.since
