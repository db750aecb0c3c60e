"""Which process a program's own rank is. Pure."""

from __future__ import annotations

from .gang import Member
from .picture import StepView


def member_of(step: StepView, rank: int | None) -> Member | None:
    """The process of a program's own rank; a worker's rank where it has one process and no rank of its own."""
    for worker in step.workers:
        for process in worker.processes:
            if rank is not None and process.rank == str(rank):
                return Member(worker, process)
    return next((Member(worker, worker.processes[0]) for worker in step.workers if worker.rank == rank
                 and len(worker.processes) == 1 and not worker.processes[0].rank), None)
