"""From a requeue to the next attempt: its begin time, the nodes that it avoids, what its comments say."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ..slurm.command import Refused
from ..slurm.parse import ENDED
from ..slurm.types import JobFacts
from . import annotate
from .own_stop import QUIET_S, STRAY_S, OwnStop
from .revive import unix_time
from .under_way import LOOK_S, SLOW_LOOK_S
from .writer import Outcome, Wanted

PENDING_LOOK_S = 60.0
"""Between two looks at a job that is PENDING in the queue, for days perhaps; its next attempt's first report is
heard at once."""
BEGUN_S = 1.0
"""Slurm's times are whole seconds: a begin time has come for certain after one more."""
REPORTED_S = 60.0
"""How long the next attempt's first report is waited for before its Comment is cleaned all the same."""


class Scheduling(OwnStop):
    """Stages requeued and scheduled."""

    _begins: float | None = None
    """When the begin time that we set has come, by the steady clock; None where none is awaited."""

    async def _schedule(self) -> None:
        """Begin time, nodes to avoid and closing piece: one update, once the old attempt is gone from its nodes
        (PENDING)."""
        intent = self.intent
        facts = await self._facts()
        if facts is None or facts.state in ENDED:
            self._ended_later(facts)
            return
        if facts.state == "COMPLETING":
            if QUIET_S < max(map(self.stops.quiet_s, intent.jobs)) < math.inf:  # infinite: no node holds it any more
                self._went_astray("TERM")
            return await self.clocks.sleep(LOOK_S)
        also: dict[str, str] = {}
        said: list[str] = []
        self._begins = None
        if facts.state == "PENDING" and not facts.held:
            left = (intent.stopped_at or intent.begun_at) + intent.backoff_s - self.clocks.wall()
            # Bounded on both sides: whatever the time of day was set to, and never before its nodes can take it.
            least = max(self.begin_min_s, STRAY_S) if intent.stray else self.begin_min_s
            wait_s = round(max(min(left, intent.backoff_s), least))
            also["start_time"] = f"now+{wait_s}"
            self._begins = self.clocks.steady() + wait_s + BEGUN_S
            said.append(f"starts not before {_second(self.clocks.wall() + wait_s)} UTC")
        elif facts.state == "PENDING":
            said.append("it is held, and starts once it is released")
        plan = await self.avoidance.plan(intent, facts)
        intent.avoid_note = plan.note
        if plan.excluded is not None:
            also["excluded"] = plan.excluded
        if facts.leader and "start_time" in also:
            await self._begin_all(facts, also.pop("start_time"))
        outcome = await self._write_schedule(also)
        if outcome.state == "completing":
            return await self.clocks.sleep(LOOK_S)
        with self.store.together():
            refused = self.avoidance.done(intent.job, outcome.skipped.get("excluded", ""))
            said += filter(None, [refused or plan.said])
            if said:
                message = "; ".join(said)
                self._say("scheduled", message[0].upper() + message[1:])
            self.store.reach(intent, "scheduled")

    async def _begin_all(self, facts: JobFacts, start_time: str) -> None:
        """Of a heterogeneous job, by its leader: the begin time of one component would leave the others, and so
        all of it, at Slurm's two minutes."""
        await self.annotations.writer.pace.turn()
        try:
            await self.jobs.update(facts.requeued_as, start_time=start_time)
        except Refused as refusal:
            self._log(f"its begin time was refused: {refusal}")

    async def _write_schedule(self, also: dict[str, str]) -> Outcome:
        wanted = Wanted(self._closing(cause=True).admin_comment, self._closing().admin_comment)
        outcome = await self.annotations.settle(self.intent.job, wanted, also)
        others = [await self.annotations.settle(job, wanted) for job in self.intent.others]
        if any("comment" in one.skipped for one in (outcome, *others)):
            self.intent.cause_by_reply = True
        outcome = next((one for one in others if one.state == "completing"), outcome)
        if "excluded" in outcome.skipped and self.intent.avoid_note:  # what the comments say is not so
            self.intent.avoid_note = "no node avoided: Slurm refused it"
            await self._write_schedule({})
        if "start_time" in outcome.skipped:
            self._begins = None
        return outcome

    async def _running(self) -> None:
        """Wait for the next attempt; its Prolog has read the cause when its first report is here."""
        facts = await self._facts()
        if facts is None or facts.state in ENDED:
            self._ended_later(facts)
            return
        if facts.restarts > self.intent.restarts + 1:  # the next attempt was, and is no more
            said = "it was requeued again since"
        elif facts.state == "STOPPED" and self.intent.stray:
            await self._thaw(facts)  # our STOP, late all the same
            return await self.clocks.sleep(SLOW_LOOK_S)
        elif facts.state == "RUNNING":
            await self._wait_for_report(REPORTED_S)
            said = f"it runs again on {facts.nodelist}, cause stalled"
        elif facts.state == "PENDING" and self._begins is not None:
            return await self._try_now(facts)
        else:
            if await self._wait_for_report(PENDING_LOOK_S):  # Prolog still runs on another node; or it is suspended
                await self.clocks.sleep(LOOK_S if facts.state == "CONFIGURING" else SLOW_LOOK_S)
            return
        self._done("restarted", self._closing(), "restarted", f"Restarted {self._count()}: {said}")

    async def _try_now(self, facts: JobFacts) -> None:
        """Slurm's scheduler looks at a job whose begin time has come in its next round, half a minute later at its
        defaults; any update of a job makes it look at once. So the begin time that has passed is set again, once."""
        begins = self._begins or 0
        if self.clocks.steady() < begins:
            await self._wait_for_report(min(begins - self.clocks.steady(), PENDING_LOOK_S))
            return
        self._begins = None
        at = unix_time(facts.start_time)
        if facts.held or facts.reason != "BeginTime" or (at is not None and at > self.clocks.wall()):
            return  # it waits for something else, or for a time that its user has set since
        try:
            await self.annotations.writer.pace.turn()
            await self.jobs.update(facts.requeued_as, start_time="now")
        except Refused as refusal:
            self._log(f"its begin time, which has come, could not be set again: {refusal}")

    def _ended_later(self, facts: JobFacts | None) -> None:
        self._done("restarted", self._closing(), "restarted",
                   f"Requeued {self._count()}; the job is {facts.state if facts else 'gone'} since")

    async def _wait_for_report(self, seconds: float) -> bool:
        until = self.clocks.steady() + seconds
        while self.clocks.steady() < until:
            if all(self.stops.attempt_reported(job, self.intent.restarts + 1) for job in self.intent.jobs):
                return True
            await self.clocks.sleep(0.5)
        return False

    def _closing(self, *, cause: bool = False) -> Wanted:
        note = f"restarted {self._count()}" + (", cause=stalled" if cause else "")
        if self.intent.avoid_note:
            note += f", {self.intent.avoid_note}"
        return annotate.over(self.intent.finding, self.intent.stopped_at or self.intent.begun_at, note)


def _second(at: float) -> str:
    """``14:05:10``"""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
