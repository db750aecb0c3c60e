"""What every stage of a restart needs: Slurm's word on the job, the ways out, and what is said of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import msgspec
from astraeus_protocol.findings import Event

from ..history.store import Intent, Store
from ..slurm.command import Refused
from ..slurm.jobs import BEGIN_MIN_S, Jobs
from ..slurm.parse import ENDED
from ..slurm.types import JobFacts
from . import annotate
from .annotate import Annotations
from .avoid import Avoidance
from .outside import Clocks, Stops
from .revive import ended_on_ours, seems_over
from .writer import Wanted

log = logging.getLogger(__name__)
LOOK_S = 1.0
"""Between two looks at a job that is changing its state."""
SLOW_LOOK_S = 15.0
"""Between two looks at a job that is suspended."""
FROZEN_LOOK_S = 3.0
"""The same where its batch script was frozen: a resume wakes that, and it has to stand still again before its ranks
have saved, or it ends the job."""
STILL_S = 2.5
"""A job whose run time does not grow within this time is suspended."""
FIRST_REPORTS_S = 20.0
"""A controller that has just started hears of the job's nodes within this time: monitors try every 15 s at least."""
COMMANDS_MAX = 3
"""So often at most a command is sent whose effect can't be seen."""
OBSERVE = "the partition is in observe mode by now, where nothing is stopped"


class UnderWay:
    """One intent on its way. ``emit`` stores an event; ``acts(partition)`` tells whether its mode is act now;
    ``gone()`` whether every worker of the attempt that is stopped has ended; ``held()`` (why, note for the comment)
    while the job is part of an incident; ``begin_min_s``: see slurm.jobs."""

    def __init__(self, intent: Intent, *, jobs: Jobs, store: Store, annotations: Annotations,
                 avoidance: Avoidance, stops: Stops, emit: Callable[[Event], None], stop_file_wait_s: float,
                 clocks: Clocks | None = None, acts: Callable[[str], bool] = lambda _: True,
                 gone: Callable[[], bool] = lambda: False, begin_min_s: float = BEGIN_MIN_S,
                 held: Callable[[], tuple[str, str] | None] = lambda: None) -> None:
        self.intent = intent
        self.jobs, self.store, self.annotations, self.stops, self.emit = jobs, store, annotations, stops, emit
        self.avoidance, self.stop_file_wait_s, self.begin_min_s = avoidance, stop_file_wait_s, begin_min_s
        self.clocks, self.acts, self.gone, self.held = clocks or Clocks(), acts, gone, held
        self._began = self.clocks.steady()
        self._may_have_woken = True
        """The batch script may run although it was frozen: somebody suspended and resumed the job, or may have
        while no controller ran."""
        self._ran: tuple[float, float] | None = None
        """(steady time, run time) of the look before at a frozen job."""

    # The job

    async def _facts(self) -> JobFacts | None:
        shown = await self.jobs.show(self.intent.target)
        if shown is None or not seems_over(shown.facts, self.clocks.wall()):
            return shown.facts if shown else None
        state = await self.jobs.accounted(shown.facts.named)
        return msgspec.structs.replace(shown.facts, state=state) if state in ENDED else shown.facts

    def _same(self, facts: JobFacts) -> bool:
        return facts.restarts == self.intent.restarts and facts.start_time == self.intent.start_time

    def _runs(self, facts: JobFacts) -> bool:
        """It runs, or stands still by our own hand."""
        return self._same(facts) and (
            facts.state == "RUNNING" or (facts.state == "STOPPED" and self.intent.frozen))

    async def _to_be_stopped(self) -> JobFacts | None:
        """From the stop file to the requeue: the job where it still runs, else what became of it is carried out."""
        intent = self.intent
        facts = await self._facts()
        if facts is None or facts.state in ENDED or (
                facts.state == "COMPLETING" and facts.restarts == intent.restarts):
            await self._ended(facts)
        elif facts.restarts > intent.restarts and not intent.commands:
            self._another("the job was requeued by somebody else meanwhile")
        elif facts.restarts > intent.restarts:
            self._requeued(f"Requeued {self._count()}: Slurm has stopped it and will start it again")
        elif facts.start_time != intent.start_time or facts.state == "PENDING":
            self._another("the job is another attempt than the one that stalled")
        elif facts.state == "SIGNALING":  # its nodes have not yet answered to a STOP or CONT
            await self.clocks.sleep(LOOK_S)
        elif not self._runs(facts) or self._stands(facts):  # requeue would end a suspension, so it waits
            self._may_have_woken = True  # a resume wakes the batch script, too
            await self.clocks.sleep(FROZEN_LOOK_S if intent.frozen else SLOW_LOOK_S)
        elif not intent.commands and not intent.frozen and not self.acts(facts.partition):
            self._decline("observe", OBSERVE)
        else:
            return facts
        return None

    def _stands(self, facts: JobFacts) -> bool:
        """Whether a frozen job is suspended, too: Slurm shows STOPPED over SUSPENDED, but its run time stands."""
        if facts.state != "STOPPED" or facts.run_time_s is None:
            self._ran = None
            return False
        now, before = self.clocks.steady(), self._ran
        if before is not None and now - before[0] < STILL_S:
            return False
        self._ran = now, facts.run_time_s
        return before is not None and facts.run_time_s <= before[1]

    # Ways out

    async def _ended(self, facts: JobFacts | None) -> None:
        """After the stop file: its user, or its own script, ended the job before the requeue."""
        if facts is not None and facts.state == "COMPLETING":
            return await self.clocks.sleep(LOOK_S)
        if facts is not None and ended_on_ours(self.intent, facts):
            return self.store.reach(self.intent, "reviving")
        self._over_and_out(facts)

    def _over_and_out(self, facts: JobFacts | None) -> None:
        state = facts.state if facts else "gone"
        self._done("ended", self._over(f"ended during the stop, {state}"), "ended_during_stop",
                   f"Ended during our stop: the job is {state}, so it is not requeued")

    def _requeued(self, message: str) -> None:
        with self.store.together():
            self._say("requeued", message)
            self.store.reach(self.intent, "requeued")

    async def _thaw(self, facts: JobFacts) -> None:
        """Where the job stays as it is, nothing of it may stay frozen."""
        if self.intent.frozen:
            with contextlib.suppress(Refused):
                await self.jobs.signal(facts.named, "CONT", batch=True)

    async def _give_up(self, facts: JobFacts, why: str) -> None:
        await self._thaw(facts)
        wanted = self._over(f"not restarted: {why}")
        if self.store.finding_id(self.intent.finding_key) is not None:
            wanted = annotate.stalled([self.intent.finding], f"not restarted: {why}")
        self._done("refused", wanted, "restart_declined", f"restart declined: {why}")

    def _decline(self, outcome: str, why: str, *, write: bool = True) -> None:
        self._done(outcome, self._over(why) if write else None, "restart_declined", f"restart declined: {why}")

    def _another(self, why: str) -> None:
        """The attempt that was to be stopped is no more. A STOP that was on its way to it may hit the next one: it did
        where the job's user requeued it in that moment, and that attempt stood STOPPED for good."""
        if not self.intent.frozen:
            return self._decline("another", why)
        self._done("another", self._over(why), "restart_declined", f"restart declined: {why}", then="guarding")

    def _done(self, outcome: str, wanted: Wanted | None, kind: str = "", message: str = "",
              then: str = "done") -> None:
        """The end, what is said of it, and what is to stand in the comments (None: untouched): one commit."""
        self.intent.outcome = outcome
        self._log(f"restart over: {outcome}")
        with self.store.together():
            if kind:
                self._say(kind, message)
            for job in self.intent.jobs if wanted is not None else ():
                self.annotations.want(job, wanted)
            self.store.reach(self.intent, then)

    # Small things

    def _over(self, note: str) -> Wanted:
        return annotate.over(self.intent.finding, self.clocks.wall(), note)

    def _count(self) -> str:
        return f"{self.intent.number}/{self.intent.budget}"

    def _log(self, what: str) -> None:
        log.info("job %d (%s): %s", self.intent.job, self.intent.run, what)

    def _say(self, kind: str, message: str) -> None:
        self.emit(Event(at=self.clocks.wall(), run=self.intent.run, job=self.intent.job,
                        worker=self.intent.worker, state="Running", kind=kind, message=message,
                        details={"finding": self.intent.finding_key}))
