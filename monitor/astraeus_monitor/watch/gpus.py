"""A job's GPUs on this node: their clocks, and which of them are a worker's. No I/O of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from astraeus_protocol import report

from ..sources.gpu import Answer, GpuClock
from ..sources.gpu_which import Place, Which, by_processes, of_worker

if TYPE_CHECKING:
    from .step import StepWatch
    from .worker import WorkerWatch

QUIET_S, GAPS = 30.0, 3
"""Output this young, or so many of the step's usual gaps, is progress where no pulse is known."""
WHICH = "the node's GPUs are divided (MIG), and which one is the worker's can't be told"
OPENED = "the driver names no process, and one of the task has a GPU open"
"""It opened it and made nothing there yet, or this driver tells of no process: nothing that is held for nothing."""
Tasks = list[tuple["StepWatch", "WorkerWatch"]]


class JobGpus:
    """GPUs of one job. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, indices: list[int], now: float) -> None:
        self.indices = indices
        """Slurm's, of the whole job here."""
        self.came = now
        self.clocks = {index: GpuClock(index, now) for index in indices}
        self.uuids: dict[str, Place] = {}
        """Of all GPUs of the node and their instances."""
        self.divided: set[int] = set()
        """Indices of GPUs of the node that are divided into instances."""
        self._known: dict[tuple[str, int], tuple[object, Which]] = {}

    def see(self, answer: Answer, tasks: Tasks, now: float) -> None:
        """Take the driver's answer in."""
        readings = {reading.index: reading for reading in answer.gpus}
        for reading in answer.gpus:
            if reading.slow:
                self._name(reading.index, reading.uuid, reading.slow.mig)
        works = {index for step, worker in tasks if progresses(step, worker, now)
                 for index, _ in self.which(step, worker).places}
        for index, clock in self.clocks.items():
            if index in readings:
                clock.see(readings[index], now, progresses=index in works)
            else:
                clock.miss(answer.fault or "the driver does not know this GPU")

    def which(self, step: StepWatch, worker: WorkerWatch) -> Which:
        """The worker's GPUs."""
        whole, told = step.gpus.get(worker.rank, (self.indices, None))
        visible = [p.visible for p in worker.roster.processes if p.visible is not None]
        visible = visible or ([told] if told is not None else [])
        pids = {index: clock.slow.pids for index, clock in self.clocks.items()}
        key = (whole, visible, len(self.uuids), len(worker.tree), pids)
        known = self._known.get((step.step, worker.rank))
        if known is not None and known[0] == key:
            return known[1]
        found = of_worker(whole, visible, self.uuids)
        if found.by == "all" and len(whole) > 1:
            there = by_processes(whole, {pid for pid, _ in worker.tree}, pids)
            found = Which(tuple((index, "") for index in there), "processes") if there else found
        self._known[step.step, worker.rank] = key, found
        return found

    def of(self, step: StepWatch, worker: WorkerWatch,
           now: float) -> tuple[list[report.Gpu], list[report.Unknown]]:
        """The worker's GPUs for the report."""
        records, unknown = [], []
        found = self.which(step, worker)
        for index, mig in found.places:
            clock = self.clocks.get(index)
            if clock is None:
                clock = self.clocks[index] = GpuClock(index, now)
            record, why = clock.record(now, mig), clock.fault
            # Slurm counts instances as GPUs: its number may be another GPU's than the driver's.
            if self.divided and found.by in ("number", "all") and index not in self.divided:
                record, why = report.Gpu(index=index, unknown={"busy": WHICH}), WHICH
            if record.pids == [] and any(worker.holds_gpu.values()):
                record.pids, record.unknown = None, {**record.unknown, "pids": OPENED}
            records.append(record)
            if why:
                unknown.append(report.Unknown("gpu", f"GPU {index}: {why}"))
        return records, unknown

    def _name(self, index: int, uuid: str, mig: list[str] | None) -> None:
        if mig is None:
            self.divided.discard(index)
        else:
            self.divided.add(index)
        self.uuids = {name: place for name, place in self.uuids.items() if place[0] != index}
        self.uuids.update({instance: (index, instance) for instance in mig or ()})
        if uuid:
            self.uuids[uuid] = index, ""

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {str(index): clock.save() for index, clock in self.clocks.items()}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        for index, clock in saved.items():
            self.clocks.setdefault(int(index), GpuClock(int(index), self.came)).load(clock)
        for index, known in self.clocks.items():
            if known.uuid:
                self.uuids.setdefault(known.uuid, (index, ""))


def progresses(step: StepWatch, worker: WorkerWatch, now: float) -> bool:
    """Whether the worker is known to progress: by its pulse, else, where that is not known, by young output."""
    gone = [p.pulse.gone_s(now) for p in worker.roster.processes if not p.gone]
    if any(age is not None for age in gone):
        return 0 in gone
    ages = [now - worker.growth.last] if worker.has_file else []
    ages += [now - step.growth.last] if step.shared_seen else []
    return bool(ages) and min(ages) <= max(QUIET_S, GAPS * (step.gaps.median() or 0.0))
