"""The monitor's loop: what wakes it, what it does then, when it reports and when it leaves."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from astraeus_protocol import report

from .clock import Clock, boot_id
from .config import Config
from .host.procfs import Proc
from .lock import Lock
from .log import fenced, say
from .registry import JobEntry, Registry, may_leave
from .rounds.looks import Looks
from .sampler import Sampler
from .talk import build
from .talk.obey import obey
from .talk.sender import Made, Sender
from .talk.session import Session
from .wake import Wake
from .watch import clocks
from .watch.job import JobWatch
from .watch.step import StepWatch

IDLE_WAKE_S = 60.0
RETRY_FILES_S = 30.0
"""Between two tries to read a config that could not be read."""
NEXT_MIN_S, NEXT_MAX_S, NEXT_DEFAULT_S = 1.0, 60.0, 15.0
FAREWELL_S = 300.0
"""For so long the report that the last job is gone is tried."""
RECHECK_S = 3.2
LOOK_JITTER_S = 2.0
"""A look comes at its time to so much. A regular report goes with a look, so that no wake-up is for it alone."""
GATHER_S = 0.2
"""A decisive change waits so long for what comes with it: one report instead of three."""


class Monitor:
    """One per node. ``run`` returns when it is time to leave."""

    def __init__(self, config: Config, *, proc: Proc | None = None, clock: Clock | None = None,
                 reload: Callable[[], Config | None] | None = None,
                 printer: Callable[[bytes], None] | None = None, stays: bool = False) -> None:
        self.config, self.reload, self.printer, self.stays = config, reload, printer, stays
        self.clock, self.proc = clock or Clock(), proc or Proc()
        self.state_dir = Path(config.state_dir)
        self.selector = selectors.DefaultSelector()
        self.registry = Registry(self.state_dir)
        self.looks = Looks(self.selector, self.clock, self.proc, self._judge, self._soon, state_dir=self.state_dir)
        self.sampler = Sampler(self.proc, self.selector, self.wake)
        self.sender = self._make_sender()
        self.boot = boot_id()
        self.session, self.seq, self.reports = os.urandom(8).hex(), 0, 0
        self.node, self.cluster = config.node or socket.gethostname().partition(".")[0], ""
        self.leaving = self.wake_now = False
        now = self.clock.boot()
        self.next_tick, self.idle_since, self.retry_at, self.farewell_until = now, now, now + RETRY_FILES_S, 0.0
        self.recheck_at: float | None = None
        self.report_at: float | None = None
        self.told: dict[int, list[object]] = {}
        self.ended_sent: list[StepWatch] = []
        self.force_at, self.last_sent = 0.0, -1.0
        self.print_every_s = self.next_s = NEXT_DEFAULT_S

    @property
    def jobs(self) -> dict[int, JobWatch]:
        """Watched jobs by id."""
        return self.looks.jobs

    @property
    def watching(self) -> bool:
        """Any job that the controller did not have us let go of."""
        return any(not job.dropped for job in self.jobs.values())

    # -- running

    def open(self) -> None:
        """Make the state directory and the FIFO that wakes us. Raises OSError."""
        (self.state_dir / "jobs").mkdir(mode=0o711, parents=True, exist_ok=True)
        Wake(self.state_dir / "wake", self.selector, self.wake)

    def run(self, lock: Lock | None = None, until: Callable[[], bool] = lambda: False) -> None:
        """Work until told to stop, or until nothing has been there to do for ``leave_after_s``."""
        self.tick()
        while not self.leaving and not until():
            self.turn()
            if not self.jobs and not self.stays and lock and not self.registry.jobs:
                idle = self.clock.boot() - self.idle_since
                if idle >= self.config.leave_after_s and may_leave(self.state_dir, lock):
                    say(f"nothing to watch for {idle:.0f}s: the monitor leaves")
                    break
        self.close()

    def turn(self) -> None:
        """Sleep until something happens, and do it."""
        wait = max(0.0, self._next_time() - self.clock.boot())
        for key, _ in self.selector.select(wait):
            if self.selector.get_map().get(key.fd) is key:
                key.data()
        self.looks.sweep()
        self.sender.sweep()
        now = self.clock.boot()
        if self.watching and now >= self.next_tick:
            self.tick()
        elif self.wake_now or (self.recheck_at is not None and now >= self.recheck_at) or (
                not self.watching and now >= self.next_tick):
            self.tick(regular=False)
        if now >= self.retry_at:
            self._reload(now)
        self._report()

    def tick(self, *, regular: bool = True) -> None:
        """Read what is new and sample what is watched; a regular tick ends a window of the pulse."""
        now = self.clock.boot()
        force = self.wake_now or not regular or now >= self.force_at
        # A controller that wants to hear soon is about to judge: what it hears is to be as fresh.
        interval_s = self.config.pulse_s if self.next_s <= self.config.pulse_s else self.config.interval_s
        # Who comes or leaves wakes us: between two looks at everything, files are read where something stirs.
        if force or not self.looks.calm or self.looks.all_due(now, interval_s):
            self._scan(now, force=force)
        self.wake_now, self.recheck_at = False, None
        self.force_at = now + IDLE_WAKE_S if force else self.force_at
        if regular or not self.watching:
            step = self.config.pulse_s
            self.next_tick = self.next_tick + step if self.next_tick + step > now else now + step
        for job in self.sampler.sample(self.jobs.values(), now, pulse=regular):
            self._feed(job, now)  # the plugin's line may have come meanwhile
            self.recheck_at = now + RECHECK_S
        for job in self.jobs.values():
            job.tidy(now)
        if self.watching:
            self.looks.due(now, interval_s, self.node)
        else:
            self.next_tick = now + IDLE_WAKE_S
        if not self.looks.calm:
            self._judge(looked=False)

    def close(self) -> None:
        """Save the clocks and end every child."""
        for job in self.jobs.values():
            clocks.save(job, self.boot)
        self.looks.stop()
        self.sender.close()

    def stop(self) -> None:
        """Leave at the next turn."""
        self.leaving = True

    # -- what is there

    def _scan(self, now: float, *, force: bool) -> None:
        came, left = self.registry.scan(force=force)
        for entry in left:
            job = self.jobs.pop(entry.job, None)
            if job:
                say(f"job {job.job}: gone from this node")
                self.looks.left(job)
                self.told.pop(job.job, None)
                self._report_by(now)
                self.farewell_until = now + FAREWELL_S
        for entry in came:
            self._begin(entry, now)
        if not self.jobs and (came or left):
            self.idle_since = now
        for job in self.jobs.values():
            self._feed(job, now, force=force)

    def _begin(self, entry: JobEntry, now: float) -> None:
        job = JobWatch(entry.job, entry.facts, entry.path, now, self.config.pulse_s, self.config.ignore_output)
        if not self.watching:
            self.next_tick = now + self.config.pulse_s
        self.jobs[entry.job] = job
        self.node = self.config.node or entry.facts.get("node") or self.node
        self.cluster = entry.facts.get("cluster", self.cluster)
        self._feed(job, now)
        say(f"job {entry.job}: {'watched on' if clocks.load(job, self.boot) else 'watched'}")

    def _feed(self, job: JobWatch, now: float, *, force: bool = True) -> None:
        entry = self.registry.jobs.get(job.job)
        if entry is None or job.dropped:
            return
        for step, lines in entry.news(force=force):
            fenced(f"job {job.job}: step {step}'s file", partial(job.feed, step, lines, now), None)
        if entry.too_much and not job.too_much:
            job.too_much = True
            say(f"job {job.job}: its step files are over their limit; what came later is not watched")

    # -- reports

    def _judge(self, *, looked: bool = True) -> None:
        """Report at once if something decisive changed; keep the clocks then and after looks."""
        now = self.clock.boot()
        for job in [job for job in self.jobs.values() if not job.dropped]:
            decisive = job.marks(now) != self.told.get(job.job)
            if decisive:
                self._report_by(now + GATHER_S)
            if decisive or looked:
                clocks.keep(job, self.boot, now, decisive=decisive)
        room = self.config.interval_s - LOOK_JITTER_S
        near = self.report_at is not None and self.report_at - now < room
        if looked and near and self.next_s > room < now - self.last_sent:
            self.report_at = now

    def _report_by(self, at: float) -> None:
        self.report_at = at if self.report_at is None else min(at, self.report_at)

    def _report(self) -> None:
        now = self.clock.boot()
        if not self.watching and now >= self.farewell_until:
            self.report_at = None
        if self.report_at is None or now < self.report_at:
            return
        if self.printer:
            made = self._make()
            self.printer(made[2])
            self._replied(report.Reply(nonce=made[1], next_s=self.print_every_s))
        elif self.sender.ready():
            self.sender.send()

    def _make(self) -> Made:
        now = self.clock.boot()
        self.seq += 1
        self.last_sent, self.report_at = now, None
        self.told = {job.job: job.marks(now) for job in self.jobs.values()}
        made = report.Report(
            node=self.node, boot=self.boot, session=self.session, seq=self.seq, nonce=os.urandom(16).hex(),
            at=round(self.clock.wall(), 3), cluster=self.cluster,
            jobs=build.jobs(self.jobs.values(), now, self.node, self.looks.stacks))
        self.ended_sent = [s for job in self.jobs.values() for s in job.steps.values() if not s.running]
        return self.node, made.nonce, build.encode(made)

    def _soon(self) -> None:
        self._report_by(self.clock.boot())

    def _replied(self, reply: report.Reply) -> None:
        self.reports += 1
        for step in self.ended_sent:
            step.end_told = True
        if not self.watching:
            self.farewell_until = 0.0
        wait = reply.next_s if reply.next_s == reply.next_s else NEXT_DEFAULT_S
        self.next_s = min(max(wait, NEXT_MIN_S), NEXT_MAX_S)
        self._report_by(self.last_sent + self.next_s)
        if obey(reply, self.looks):
            self._judge(looked=False)
            self._report_by(self.clock.boot())
            self.farewell_until = self.clock.boot() + FAREWELL_S

    # -- what wakes us

    def wake(self) -> None:
        """Look for news at the next turn."""
        self.wake_now = True

    def _next_time(self) -> float:
        now = self.clock.boot()
        if self.wake_now:
            return now
        times = [self.next_tick, now + IDLE_WAKE_S]
        for deadline in (self.recheck_at, self.looks.next_deadline(), self.sender.next_deadline()):
            if deadline is not None:
                times.append(deadline)
        if self.report_at is not None and not self.sender.busy:
            times.append(max(self.report_at, self.sender.not_before))
        if self.jobs and self.reload is not None:
            times.append(self.retry_at)
        if not self.jobs and not self.stays:
            times.append(self.idle_since + self.config.leave_after_s)
        return min(times)

    # -- files of the site

    def _make_sender(self) -> Sender:
        self.looks.configure(self.config)
        return Sender(self.config.controller, self.selector, self.looks.probes, self.clock,
                      session=Session(self.config, self.looks.probes, self.clock), node=lambda: self.node,
                      make=self._make, replied=self._replied, failed=self._soon)

    def _reload(self, now: float) -> None:
        self.retry_at = now + RETRY_FILES_S
        config = self.reload() if self.reload else None
        if config is not None:
            self.config, self.reload = config, None
            self.sender.close()
            self.sender = self._make_sender()
            self._report_by(now)
