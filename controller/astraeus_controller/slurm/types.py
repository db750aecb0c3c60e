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


class Snapshot(msgspec.Struct, frozen=True):
    """One successful poll of all jobs. A failed poll makes no snapshot."""

    jobs: tuple[JobRow, ...]
