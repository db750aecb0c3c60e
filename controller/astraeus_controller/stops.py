"""Commands to the monitors travel in the replies to their reports: the stop file of a job that is restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from astraeus_protocol.report import Command, Job, StopFile

from .fleet import Fleet


class StopFiles:
    """``fleet``: who has written it, and which attempt a node speaks of. ``now``: the fleet's time."""

    def __init__(self, fleet: Fleet, now: Callable[[], float]) -> None:
        self.fleet, self.now = fleet, now
        self._asked: dict[int, tuple[int, dict[str, str]]] = {}

    @property
    def jobs(self) -> set[int]:
        """Jobs that are being stopped: their nodes report every 2 s."""
        return set(self._asked)

    def begin(self, job: int, restarts: int, lines: dict[str, str]) -> None:
        """Ask every node of this attempt to write the stop file."""
        self._asked[job] = restarts, lines

    def end(self, job: int) -> None:
        """Ask no more."""
        self._asked.pop(job, None)

    def known(self, job: int) -> bool:
        """A node of the job has reported."""
        return bool(self.fleet.nodes_of(job))

    def acknowledged(self, job: int) -> bool:
        """Every node of the job has written it; False while no node is known."""
        written, every = self.fleet.stop_file_acks(job)
        return bool(every) and written >= every

    def quiet_s(self, job: int) -> float:
        """Seconds for which a node of the job has not been heard."""
        return self.fleet.quiet_s(job, self.now())

    def attempt_reported(self, job: int, restarts: int) -> bool:
        """A node has reported an attempt with at least this restart count."""
        held = self.fleet.jobs.get(job)
        return held is not None and held.restarts >= restarts

    def commands(self, jobs: Iterable[Job]) -> list[Command]:
        """For the reply to a report of these jobs."""
        found: list[Command] = []
        for job in jobs:
            asked = self._asked.get(job.job)
            if asked and asked[0] == job.restarts and not job.stop_file:
                found.append(StopFile(job=job.job, nonce=job.nonce, lines=asked[1]))
        return found
