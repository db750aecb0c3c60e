"""When the GPUs' driver is asked, and when it is let go: at once when a job with GPUs leaves."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..clock import Clock
from ..log import say_once
from ..probes.gpus import Child
from ..probes.nvml import NOT_ANSWERING
from ..probes.servant import Servant
from ..sources import gpu
from ..watch.job import JobWatch

MARK = "driver"
"""In the state directory while a child may have the driver open, with its PID: Epilog waits for its end."""
REST_S = 20.0
"""Once a job with GPUs left, the driver stays closed for so long: the site's Epilog may reset its GPUs. At most so
long in a row, or a node of many short jobs would never be looked at."""
AGAIN_S = 600.0
"""A GPU at which the driver hung is left out for so long."""
HANGS = ("does not answer", "did not answer and rests", "hangs in the kernel")


class Gpus:
    """Asks for all jobs at once and hands each its answer."""

    def __init__(self, selector: selectors.BaseSelector, clock: Clock, jobs: dict[int, JobWatch],
                 serve: Callable[[int, int], None] | None = None, state_dir: Path | None = None) -> None:
        self.clock, self.jobs = clock, jobs
        self.child = Child()
        self.driver = Servant("driver", serve or self.child.serve, selector, clock)
        self.mark = state_dir / MARK if state_dir else None
        self.rest_until = float("-inf")
        self.left_out: dict[int, float] = {}
        """Place of a GPU that hung to when it is asked again."""
        self._unmark()  # of a monitor that was killed

    def look(self) -> None:
        """Ask the driver, if any job here has GPUs; else let it go."""
        if not any(job.has_gpus() for job in self.jobs.values()):
            self.stop()
            return
        now = self.clock.boot()
        if self.driver.until is not None or now < self.rest_until:
            return
        self.left_out = {place: until for place, until in self.left_out.items() if until > now}
        fresh = not self.driver.pid
        if fresh:
            self._mark("")
        request = " ".join(["read", *([",".join(map(str, self.left_out))] if self.left_out else [])])
        why = self.driver.ask(request.encode(), self._seen)
        if why:
            self._unmark()
            self._tell(gpu.Answer(fault=words(why)))
        elif fresh:
            self._mark(str(self.driver.pid))

    def left(self, job: JobWatch) -> None:
        """The job is gone: the driver is closed at once, so that the site's Epilog can reset its GPUs."""
        if not job.gpus.indices:
            return
        now = self.clock.boot()
        if now >= self.rest_until:
            self.rest_until = now + REST_S
        self.stop()

    def sweep(self) -> None:
        """End what is late, and remember which GPU did not answer."""
        place, pid = self.child.asked(), self.driver.pid
        self.driver.sweep()
        if pid and not self.driver.pid and place is not None:
            self.left_out[place] = self.clock.boot() + AGAIN_S
            self.driver.not_before = self.clock.boot()  # the others are asked at the next look
            self.child.tell(0)

    def stop(self) -> None:
        """Close the driver."""
        if self.driver.pid:
            self.driver.stop()
        self._unmark()

    def _seen(self, lines: list[bytes], why: str) -> None:
        if not self.driver.pid:
            self._unmark()
        try:
            answer = gpu.DECODER.decode(lines[0]) if lines else gpu.Answer(fault=words(why))
        except msgspec.DecodeError as fault:
            answer = gpu.Answer(fault=f"the driver's child answered nonsense: {fault}")
        self._tell(answer)

    def _tell(self, answer: gpu.Answer) -> None:
        say_once("gpu", f"GPUs: {answer.fault}" if answer.fault else "")
        for job in self.jobs.values():
            job.see_gpus(answer, self.clock.boot())

    def _mark(self, text: str) -> None:
        if self.mark:
            with contextlib.suppress(OSError):
                self.mark.write_text(text + "\n" if text else "")

    def _unmark(self) -> None:
        if self.mark:
            with contextlib.suppress(OSError):
                self.mark.unlink(missing_ok=True)


def words(why: str) -> str:
    return NOT_ANSWERING if why in HANGS else f"the driver {why}"
