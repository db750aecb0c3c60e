"""NCCL RAS of steps that the controller asks about, each 30 s; nothing is done and nothing is kept for others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from astraeus_protocol.devices import Ras

from ..clock import Clock
from ..host.nccl import Stamp, parse
from ..host.procfs import Proc
from ..log import say_once
from ..probes.children import BUSY, Probes
from ..probes.ras import DEADLINE_S, DECODER, Policy, RasLook, look_at_ras
from ..watch.job import JobWatch
from ..watch.step import StepWatch

EVERY_S = 30.0
AT_ONCE = 2
KNOWN_MAX = 64
OFF = "the site has switched it off on this node (ras in [monitor])"


class RasRound:
    """``seen()`` is called after each answer."""

    def __init__(self, probes: Probes, proc: Proc, clock: Clock, seen: Callable[[], None]) -> None:
        self.probes, self.proc, self.clock, self.seen = probes, proc, clock, seen
        self.on, self.policy = True, Policy()
        self.known: dict[Stamp, str] = {}
        """Libraries whose version was read, by how their file stands."""

    def allow(self, on: bool, least: str, text: bool) -> None:
        """The site's settings."""
        self.on, self.policy = on, Policy(parse(least) or Policy().least, text)

    def due(self, jobs: dict[int, JobWatch], now: float) -> None:
        """Ask where it is time."""
        for job in jobs.values():
            for step in job.steps.values():
                if job.dropped or not step.running or not step.ras_asked:
                    step.ras.clear()
                elif now >= step.ras.asked_at + EVERY_S:
                    self._ask(job, step, now)

    def _ask(self, job: JobWatch, step: StepWatch, now: float) -> None:
        kind = f"ras {job.job}.{step.step}"
        if kind in self.probes.running or sum(one.startswith("ras ") for one in self.probes.running) >= AT_ONCE:
            return
        step.ras.asked_at = now
        processes = [process.id for process in step.processes() if not process.gone]
        look = partial(look_at_ras, self.proc, processes, self.policy, self.known)
        why = self.probes.start(kind, look, partial(self._heard, job, step), DEADLINE_S) if self.on else OFF
        if why and why != BUSY:
            step.ras.see(Ras(unknown=why), now)

    def _heard(self, job: JobWatch, step: StepWatch, lines: list[bytes], why: str) -> None:
        try:
            look = DECODER.decode(lines[0]) if lines else RasLook(Ras(unknown=why or "its child ended early"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            look = RasLook(Ras(unknown="its child answered nonsense"))
        if look.stamp:
            self.known[look.stamp] = look.said.version
            if len(self.known) > KNOWN_MAX:
                del self.known[next(iter(self.known))]
        if step.ras_asked:
            step.ras.see(look.said, self.clock.boot())
        said = look.said.unknown
        say_once(f"ras {job.job}.{step.step}", f"job {job.job}: NCCL RAS: {said}" if said else "")
        self.seen()
