"""Ties between worker processes: who shares a connection with whom, remembered for the attempt."""

from __future__ import annotations

from astraeus_protocol import report as wire
from msgspec import structs

from .state import Key, StepMemory

ENDS_PER_PROCESS = 64
"""Connections remembered by process; beyond it, all are forgotten and learnt anew. Of tied processes the same
number: beyond it, those that are gone are forgotten."""


def key_of(worker: wire.Worker, process: wire.Process) -> Key:
    return (worker.rank, process.pid, process.start)


def learn(memory: StepMemory, workers: list[wire.Worker]) -> None:
    """Take a report's ties and processes into a step's memory."""
    for worker in workers:
        if worker.state == "running" and worker.processes:
            memory.processes[worker.rank] = worker.processes
        for process in worker.processes:
            key = key_of(worker, process)
            for tie in process.ties:
                other = memory.ends.setdefault(tie, key)
                if other != key:
                    memory.tied.update((key, other))
    if len(memory.ends) > ENDS_PER_PROCESS * max(64, len(memory.processes)):
        memory.ends.clear()
    if len(memory.tied) > ENDS_PER_PROCESS * max(64, len(memory.processes)):
        memory.tied &= {(rank, p.pid, p.start) for rank, held in memory.processes.items() for p in held}


def processes_of(memory: StepMemory, worker: wire.Worker) -> list[wire.Process]:
    """The worker's processes as they count now.

    One that another took the place of (the same rank, or without ranks the same place, started later) is no
    longer looked at. Of a worker that is gone, its last known processes are gone with its exit status.
    """
    found = worker.processes
    if worker.state == "running":
        return _without_replaced(found)
    if not found:
        found = [structs.replace(p, state="X", state_s=worker.exit_s, exit_status=worker.exit_status,
                                 pulse=None, pulse_gone_s=None, cpu=None, traced=False)
                 for p in _without_replaced(memory.processes.get(worker.rank, []))]
    return [structs.replace(p, exit_status=worker.exit_status) if p.state == "X" and p.exit_status is None else p
            for p in found]


def _without_replaced(processes: list[wire.Process]) -> list[wire.Process]:
    dead = [p for p in processes if p.state in ("X", "Z")]
    if not dead:
        return processes
    return [p for p in processes if p.state not in ("X", "Z") or not any(_replaces(q, p) for q in processes)]


def _replaces(new: wire.Process, old: wire.Process) -> bool:
    if new is old or (new.start, new.pid) <= (old.start, old.pid) or new.state in ("X", "Z"):
        return False
    return new.rank == old.rank if new.rank or old.rank else new.local == old.local


def all_tied(memory: StepMemory, workers: list[wire.Worker]) -> bool:
    """Every running worker process of these workers is known to be tied (and there is one)."""
    keys = [key_of(w, p) for w in workers if w.state == "running" for p in w.processes if p.state != "X"]
    return bool(keys) and all(key in memory.tied for key in keys)
