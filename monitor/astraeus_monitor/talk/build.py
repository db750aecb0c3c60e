"""A report from the watches, of 1 MiB at most."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from astraeus_protocol import report

from ..log import fenced
from ..rounds.stacks import Stacks
from ..watch.job import JobWatch

UNTOLD = report.Unknown("registry", "the monitor can't tell; its log says why")


TOO_MUCH = "too much to report at once"


def jobs(watches: Iterable[JobWatch], now: float, node: str, stacks: Stacks | None = None) -> list[report.Job]:
    """Each job's part; durations are ages at ``now``."""
    found = []
    for watch in watches:
        if not watch.dropped:
            job = fenced(f"job {watch.job}: its report", partial(watch.record, now, node),
                         report.Job(watch.job, watch.nonce, unknown=[UNTOLD]))
            watch.rails.tell(job, now)
            job.stacks = stacks.record(watch, now) if stacks else None
            found.append(job)
    return found


def encode(made: report.Report, limit: int = report.MAX_BYTES) -> bytes:
    """The report's bytes. Over the limit, stacks of threads beside the main ones go first, then all stacks, ties, the
    processes that are well, all processes, workers; what was left out is said.
    """
    data = report.ENCODER.encode(made)
    for trim in (_no_threads, _no_stacks):
        if len(data) > limit:
            for job in made.jobs:
                job.stacks = job.stacks and trim(job.stacks)
            data = report.ENCODER.encode(made)
    for shorten in (_no_ties, _no_well_processes, _no_processes, _no_workers):
        if len(data) <= limit:
            break
        for job in made.jobs:
            for step in job.steps:
                shorten(step)
        data = report.ENCODER.encode(made)
    return data


def _no_threads(stacks: report.Stacks) -> report.Stacks:
    return msgspec.structs.replace(stacks, taken=[msgspec.structs.replace(s, threads=[]) for s in stacks.taken])


def _no_stacks(stacks: report.Stacks) -> report.Stacks:
    return report.Stacks(stacks.ask, stacks.native, unknown=TOO_MUCH)


def _no_ties(step: report.Step) -> None:
    for worker in step.workers:
        for process in worker.processes:
            process.ties, process.edges = [], []


def _no_well_processes(step: report.Step) -> None:
    for worker in step.workers:
        _drop(worker, [p for p in worker.processes if p.state in "TtZDX" or p.pulse_gone_s])


def _no_processes(step: report.Step) -> None:
    for worker in step.workers:
        _drop(worker, [])


def _no_workers(step: report.Step) -> None:
    if step.workers:
        step.workers = []
        step.unknown = [*step.unknown, report.Unknown("process", "too many tasks")]


def _drop(worker: report.Worker, kept: list[report.Process]) -> None:
    if len(kept) < len(worker.processes):
        worker.processes = kept
        if all(u.reason != "too many tasks" for u in worker.unknown):
            worker.unknown = [*worker.unknown, report.Unknown("process", "too many tasks")]
