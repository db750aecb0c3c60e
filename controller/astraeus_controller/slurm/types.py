"""Slurm's own word, parsed: what the command line says of jobs."""

from __future__ import annotations

import msgspec


class JobRow(msgspec.Struct, frozen=True):
    """One job of the poll of all jobs (squeue)."""

    job: int
    state: str
    """RUNNING, SUSPENDED, STOPPED, COMPLETING."""
    array_job: int = 0
    array_task: int | None = None
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    nodelist: str = ""
    name: str = ""


class JobFacts(msgspec.Struct, frozen=True):
    """One job, whole: ``scontrol show job -o`` (and, for the comments, squeue)."""

    job: int
    state: str
    name: str = ""
    array_job: int = 0
    array_task: int | None = None
    leader: int = 0
    component: int | None = None
    user: str = ""
    uid: int = -1
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    restarts: int = 0
    requeue: bool = False
    batch: bool = False
    start_time: str = ""
    """As Slurm prints it: compared, never computed with."""
    end_time: str = ""
    run_time_s: float | None = None
    time_limit_s: float | None = None
    """None: unlimited or not known."""
    suspend_time: str = ""
    nodelist: str = ""
    nodes: int = 0
    held: bool = False
    exit_code: str = ""
    std_out: str = ""

    @property
    def named(self) -> str:
        """What a command calls this very job: ``98_7``, ``100+1``, ``123``. One element of an array has the
        array's own id and one component of a heterogeneous job its leader's: the bare id would mean all."""
        if self.array_task is not None:
            return f"{self.array_job}_{self.array_task}"
        return f"{self.leader}+{self.component}" if self.leader else str(self.job)

    @property
    def requeued_as(self) -> str:
        """What ``scontrol requeue`` calls it: Slurm requeues a heterogeneous job by its leader only."""
        return str(self.leader) if self.leader else self.named


class Snapshot(msgspec.Struct, frozen=True):
    """One successful poll of all jobs. A failed poll makes no snapshot."""

    jobs: tuple[JobRow, ...]
