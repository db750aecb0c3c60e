"""When the node is looked at, and where what was seen goes: jobs' processes, sruns, GPUs, rails."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from ..clock import Clock
from ..config import Config
from ..host import survey
from ..host.procfs import Proc
from ..host.tree import Identity
from ..log import fenced
from ..probes import tail
from ..probes.children import BUSY, Probes
from ..probes.closer import DEADLINE_S, look_closer
from ..probes.look import Ask, look
from ..probes.looker import Looker
from ..probes.scrape import MetricAsk, scrape
from ..sources.process import ProcessWatch
from ..watch.job import YOUNG_S, JobWatch
from ..watch.step import StepWatch
from . import closers, metrics, tails
from .follower import Followers
from .gpus import Gpus
from .lines import sort_lines, waits_in
from .rails import SOON_S, Rails
from .ras import RasRound
from .stacks import Stacks

AT_ONCE = 4
"""Looks in children of their own that run at a time."""
TAILS_AT_ONCE = 2
"""Ends of outputs that are read at a time: a fork each, and seldom."""
SURVEY_EVERY_S, SURVEY_FIRST_S = 60.0, 20.0
"""Between two surveys of all processes; in a job's first minute."""


class Looks:
    """Starts probes and hands their answers to the job watches; ``seen`` is called after each look,
    ``soon`` where the controller is to hear at once."""

    def __init__(self, selector: selectors.BaseSelector, clock: Clock, proc: Proc, seen: Callable[[], None],
                 soon: Callable[[], None] | None = None,
                 serve_gpus: Callable[[int, int], None] | None = None, state_dir: Path | None = None) -> None:
        self.clock, self.proc, self.seen = clock, proc, seen
        self.probes = Probes(selector, clock)
        self.stacks = Stacks(self.probes, proc, clock, soon or seen)
        self.ras = RasRound(self.probes, proc, clock, soon or seen)
        self.jobs: dict[int, JobWatch] = {}
        self.gpus = Gpus(selector, clock, self.jobs, serve_gpus, state_dir)
        self.looker = Looker(proc, selector, clock, self.probes,
                             lambda: {number: job.memory for number, job in self.jobs.items()})
        self.rails = Rails(self.probes, self.looker, clock, seen)
        self.followers = Followers(proc, selector, clock, self.probes, seen)
        self.waiting: deque[JobWatch] = deque()
        self.last_all = float("-inf")
        self.next_survey = self.last_survey = 0.0

    def configure(self, config: Config) -> None:
        """The site's settings."""
        self.stacks.setting, self.rails.config = config.stacks, config
        self.ras.allow(config.ras, config.ras_min_version, config.ras_text)

    def due(self, now: float, interval_s: float, node: str) -> None:
        """Start what is due at this tick. Between two looks at everything, only what is not plainly well is gone into:
        on a node that sleeps 5 s, whatever is touched is read from memory anew, and that is most of what a tick costs.
        """
        everything = self.all_due(now, interval_s)
        if everything:
            self.last_all = now
        elif self.calm:
            self.stacks.next()
            self._follow_on()
            return
        for job in self.jobs.values():
            young = any(now - step.came < YOUNG_S for step in job.steps.values())
            soon = young or any(process.wait.unsettled(now) for process in processes_of(job))
            if job.running() and (everything or job.restless or soon) and job not in self.waiting:
                self.waiting.append(job)
        if everything or not self.gpus.driver.pid:
            self.gpus.look()
        if everything:
            self._read_metrics(now)
        self.rails.due(now, self.jobs.values(), node, close=interval_s < SOON_S)
        fresh = any(now - came < YOUNG_S for job in self.jobs.values()
                    for came in (job.came, *(step.came for step in job.steps.values())))
        if fresh:  # also where only a young job was not there yet when the survey before was made
            self.next_survey = min(self.next_survey, self.last_survey + SURVEY_FIRST_S)
        if now >= self.next_survey and any(job.wants_survey(node, now) for job in self.jobs.values()):
            self.last_survey, self.next_survey = now, now + (SURVEY_FIRST_S if fresh else SURVEY_EVERY_S)
            self._survey()
        self._next()
        self._look_closer(now)
        self.ras.due(self.jobs, now)
        self.stacks.next()
        self._read_tails(now)
        self._follow_on()
        if not any(job.running() for job in self.jobs.values()):
            self.looker.stop()

    @property
    def calm(self) -> bool:
        """All jobs' processes were plainly at work at the last samples."""
        return not any(job.uneasy for job in self.jobs.values())

    def all_due(self, now: float, interval_s: float) -> bool:
        """Whether everything is to be looked at."""
        return now >= self.last_all + interval_s - 0.5

    def sweep(self) -> None:
        """End what is late, and begin what waited for it."""
        if not (self.waiting or self.probes.children or self.next_deadline() is not None):
            return
        self.probes.sweep()
        self.looker.sweep()
        self.followers.sweep()
        self.gpus.sweep()
        self._next()

    def next_deadline(self) -> float | None:
        """When ``sweep`` has something to do."""
        times = [t for t in (self.probes.next_deadline(), self.looker.until, self.gpus.driver.until,
                              self.followers.next_deadline()) if t is not None]
        return min(times, default=None)

    def left(self, job: JobWatch) -> None:
        """The job is gone: the driver is closed first of all, for its Epilog waits for that."""
        self.gpus.left(job)
        self.stacks.left(job)
        if job in self.waiting:
            self.waiting.remove(job)
        self.followers.left(job.job)
        if not any(other.running() for other in self.jobs.values()):
            self.looker.stop()

    def stop(self) -> None:
        """End everything."""
        self.waiting.clear()
        self.probes.stop()
        self.looker.stop()
        self.followers.stop()
        self.gpus.stop()

    def _follow_on(self) -> None:
        for job in self.jobs.values():
            if job.logs.behind:
                self.followers.follow(job, looked=False)

    def _read_metrics(self, now: float) -> None:
        for job in self.jobs.values():
            asked = metrics.asks(job, now)
            if asked:
                why = self.probes.start(f"metric {job.job}", partial(scrape, self.proc, asked),
                                        partial(self._metrics_read, job, asked))
                if why and why != BUSY:
                    self._metrics_read(job, asked, [], why)

    def _metrics_read(self, job: JobWatch, asked: list[MetricAsk], lines: list[bytes], why: str) -> None:
        metrics.seen(job, asked, lines, why, self.clock.boot())
        if self.jobs.get(job.job) is job:
            self.seen()

    def _next(self) -> None:
        running = sum(kind.startswith("look ") for kind in self.probes.running)
        for job in list(self.waiting):
            # Who hung before gets a child of his own, so that nobody waits for him.
            alone = job.hung or any(worker.suspect for _, worker in job.running())
            kind = f"look {job.job}"
            if self.looker.kind == kind:
                self.waiting.remove(job)  # a look under way is as good: what changed since is for the next tick
                continue
            if running >= AT_ONCE if alone else self.looker.busy:
                continue
            self.waiting.remove(job)
            now = self.clock.boot()
            ask = job.ask(now)
            ask.waits = [process.id for process in processes_of(job) if process.wants_wait(now)]
            done = partial(self._seen, job, ask)
            why = (self.probes.start(kind, partial(look, self.proc, ask, job.memory), done) if alone
                   else self.looker.start(kind, ask, done))
            if not why:
                running += alone
            elif why != BUSY:
                job.miss_shared(why)
                for task in ask.tasks:
                    job.miss(task.step, task.rank, why)

    def _seen(self, job: JobWatch, ask: Ask, lines: list[bytes], why: str) -> None:
        if self.jobs.get(job.job) is not job:
            return
        tasks, sruns, began = sort_lines(lines)
        hung = "" if began or not ask.tasks else why or "the look ended early"
        see = partial(job.see, tasks, sruns, self.clock.boot(), hung=hung)
        if not fenced(f"job {job.job}: what a look saw", lambda: see() is None, otherwise=False):
            tasks, why = [], "what the look saw can't be used"
        if ask.waits and not why:  # a look that ended early tells nothing of those that it did not come to
            waits = waits_in(lines)
            for process in processes_of(job):
                if process.id in ask.waits:
                    process.wait.see(waits.get(process.id), self.clock.boot())
        have = {(seen.step, seen.rank) for seen in tasks}
        culprit = began[-1] if began and (began[-1].step, began[-1].rank) not in have else None
        for task in ask.tasks:
            if (task.step, task.rank) not in have:
                job.miss(task.step, task.rank,
                         f"/proc of rank {culprit.rank} does not answer" if culprit
                         else why or "the look ended early",
                         culprit=culprit is not None and (task.step, task.rank) == (culprit.step, culprit.rank))
        self.followers.follow(job)
        self._next()
        self.seen()

    def _look_closer(self, now: float) -> None:
        for job in self.jobs.values():
            if f"closer {job.job}" in self.probes.running:
                continue
            asked = closers.ask(job, now)
            if asked:
                why = self.probes.start(f"closer {job.job}", partial(look_closer, self.proc, asked),
                                        partial(self._looked_closer, job, asked), DEADLINE_S)
                if why:
                    closers.seen(job, asked, [], why, now)

    def _looked_closer(self, job: JobWatch, asked: list[Identity], lines: list[bytes], why: str) -> None:
        closers.seen(job, asked, lines, why, self.clock.boot())
        if self.jobs.get(job.job) is job:
            self.seen()

    def _read_tails(self, now: float) -> None:
        for job in self.jobs.values():
            kind = f"tail {job.job}"
            if sum(other.startswith("tail ") for other in self.probes.running) >= TAILS_AT_ONCE:
                return
            if job.dropped or kind in self.probes.running:
                continue
            for step in job.steps.values():
                asked = tails.ask(job, step, now)
                if asked is not None:
                    why = self.probes.start(kind, partial(tail.read, self.proc, asked),
                                            partial(self._tail_read, job, step))
                    if why:
                        tails.take(step, [], why)
                    break  # a job's next step is for the next tick

    def _tail_read(self, job: JobWatch, step: StepWatch, lines: list[bytes], why: str) -> None:
        tails.take(step, lines, why)
        self._read_tails(self.clock.boot())
        if self.jobs.get(job.job) is job:
            self.seen()

    def _survey(self) -> None:
        self.probes.start("survey", lambda: survey.survey(self.proc), self._surveyed)

    def _surveyed(self, lines: list[bytes], why: str) -> None:
        sruns: list[survey.Srun] = []
        stepds: list[survey.Stepd] = []
        for line in lines:
            try:
                found = survey.DECODER.decode(line)
            except msgspec.DecodeError:
                continue
            (sruns if isinstance(found, survey.Srun) else stepds).append(found)  # type: ignore[arg-type]
        for job in self.jobs.values():
            job.see_survey(sruns, stepds, self.clock.boot())
            if (job.restless or sruns) and job.running() and job not in self.waiting:
                self.waiting.append(job)
        self._next()


def processes_of(job: JobWatch) -> list[ProcessWatch]:
    """Worker processes of its running tasks."""
    return [process for _, worker in job.running() for process in worker.roster.processes]
