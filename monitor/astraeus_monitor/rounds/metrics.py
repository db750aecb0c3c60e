"""Which metrics of a job's workers are to be read, and where what was read goes."""

from __future__ import annotations

import msgspec
from astraeus_protocol.settings import Settings, settings_from

from ..probes.scrape import DECODER, MetricAsk
from ..sources.metric import MetricClock
from ..watch.job import JobWatch
from ..watch.step import StepWatch, integer, settings
from ..watch.worker import WorkerWatch

NO_PLACE = "where it is served is not known: --metrics-port and --metrics-file are not given"
PORT_MAX = 65535
RANK = "%t"
"""Stands for the rank in --metrics-file, as in Slurm's own file names."""


def asks(job: JobWatch, now: float) -> list[MetricAsk]:
    """The endpoints to ask for this job; workers that have none are told why."""
    of_job = settings_from(settings(job.facts))
    of_step: dict[str, Settings] = {}
    found = []
    for step, worker in job.running():
        own = of_step.get(step.step)
        if own is None:
            own = of_step[step.step] = settings_from(settings(step.facts)).over(of_job)
        # The progress metric first: where both can't be read for the same reason, it is said of that one.
        names = dict.fromkeys(filter(None, (own.progress_metric, own.straggler_metric)))
        clocks = [worker.metrics.setdefault(name, MetricClock(name, now)) for name in names]
        if clocks:
            ask = _ask(step, worker, own, clocks, integer(job.facts.get("uid"), -1))
            found += [ask] if ask else []
    return found


def _ask(step: StepWatch, worker: WorkerWatch, own: Settings, clocks: list[MetricClock],
         uid: int) -> MetricAsk | None:
    names = [clock.name for clock in clocks]
    if own.metrics_port is None and own.metrics_file:
        return MetricAsk(step.step, worker.rank, 0, [worker.pid], names,
                         own.metrics_file.replace(RANK, str(worker.rank)), uid)
    if own.metrics_port is None:
        return _none(clocks, NO_PLACE)
    port = own.metrics_port + worker.local
    if port > PORT_MAX:
        return _none(clocks, f"port {own.metrics_port} + local id {worker.local} is beyond {PORT_MAX}")
    pids = [worker.pid, *(pid for pid, _ in worker.tree if pid != worker.pid)]
    return MetricAsk(step.step, worker.rank, port, pids, names)


def _none(clocks: list[MetricClock], why: str) -> None:
    for clock in clocks:
        clock.miss(why)


def seen(job: JobWatch, asked: list[MetricAsk], lines: list[bytes], why: str, now: float) -> None:
    """Take the answers in; who is missing among them did not answer."""
    told = set()
    for line in lines:
        try:
            look = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        told.add((look.step, look.rank))
        for clock in _clocks(job, look.step, look.rank):
            if look.why:
                clock.miss(look.why)
            else:
                clock.see(look.found.get(clock.name, []), look.rank, look.holder, look.born, now)
    for ask in asked:
        if (ask.step, ask.rank) not in told:
            for clock in _clocks(job, ask.step, ask.rank):
                clock.miss(why or "the look ended early")


def _clocks(job: JobWatch, step: str, rank: int) -> list[MetricClock]:
    worker = job.steps[step].workers.get(rank) if step in job.steps else None
    return list(worker.metrics.values()) if worker else []
