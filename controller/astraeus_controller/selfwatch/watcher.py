"""Keeps what is known of the watcher itself, and tells it: health, metrics, systemd, a dead man's switch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..config import Config
from ..fleet import Fleet
from ..judging.loop import Judging
from ..slurm.command import Away, Refused
from ..slurm.jobs import Jobs
from ..slurm.types import Snapshot
from . import heartbeat, metrics, notify
from .coverage import Coverage, Covering
from .health import Seen, faults, passes_run

log = logging.getLogger(__name__)
GPU_JOBS_S, AGAIN_S = 300.0, 60.0
"""Between two questions to Slurm which jobs have GPUs: those that reach no monitor can't be told otherwise."""


class SelfWatch:
    """``now``: CLOCK_BOOTTIME in seconds."""

    def __init__(self, config: Config, fleet: Fleet, judging: Judging, jobs: Jobs, now: Callable[[], float]) -> None:
        self.config, self.fleet, self.judging, self.jobs, self.now = config, fleet, judging, jobs, now
        self.seen = Seen(now())
        self.reports = 0
        self.covering = Covering(fleet, lambda: judging.watches, now)

    def report(self) -> None:
        """One was taken."""
        self.reports += 1
        self.seen.reported = self.now()

    def polled(self, snapshot: Snapshot) -> None:
        """Slurm said what runs."""
        self.seen.polled = self.now()
        self.covering.polled(snapshot)

    def coverage(self, may_see: Callable[[int], bool] = lambda job: True) -> Coverage:
        return self.covering.of(may_see)

    def faults(self) -> list[str]:
        """Sentences; [] where the watcher is well."""
        return faults(self._now_seen(), self.fleet, self.coverage(), self.config.slurm.poll_s, self.now())

    def metrics(self) -> str:
        return metrics.text(self._now_seen(), self.coverage(), self.faults(), self.reports, self.now(),
                            self.fleet.wall_offset)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs while the controller does."""
        return [self._gpu_jobs(), notify.watchdog(lambda: passes_run(self._now_seen(), self.now())),
                heartbeat.beat(self.config.controller.heartbeat_url, self.faults)]

    def _now_seen(self) -> Seen:
        self.seen.swept, self.seen.stores = self.judging.swept_at, self.judging.stores
        return self.seen

    async def _gpu_jobs(self) -> None:
        well = True
        while True:
            try:
                self.covering.gpu_jobs, well = await self.jobs.with_gpus(), True
            except (Away, Refused) as fault:
                if well:
                    log.info("which jobs have GPUs can't be read now: %s", fault)
                well = False
            await asyncio.sleep(GPU_JOBS_S if well else AGAIN_S)
