"""A restart, from the decision to the next attempt.

The order: intent stored, cause in the comment, stop file on every node (acknowledged, or its wait is over), one
more look at Slurm, [our own signal and its grace (own_stop),] ``scontrol requeue incomplete``, read back, begin
time, [nodes to avoid] and closing piece once PENDING, and when the next attempt runs its Comment is the user's
again. Each stage is stored before it begins, so a controller that dies anywhere goes on from there; a command is
repeated only when Slurm's state shows that it did not happen. ``requeue incomplete`` raises the restart count at
once (22.05 to 26.05), so the count alone tells a requeue from an end.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from ..slurm.command import Away, Refused
from ..slurm.parse import ENDED
from ..slurm.types import JobFacts
from . import annotate
from .own_stop import OwnStop
from .revive import ended_on_ours, unix_time
from .under_way import COMMANDS_MAX, FIRST_REPORTS_S, LOOK_S, OBSERVE, SLOW_LOOK_S, STILL_S, log
from .writer import Outcome, Wanted

PENDING_LOOK_S = 60.0
"""Between two looks at a job that is PENDING in the queue, for days perhaps; its next attempt's first report is
heard at once."""
REPEAT_S = 5.0
"""A requeue that Slurm took but whose effect can't be seen is repeated after this time."""
BROKEN_S = 60.0
HELD = "held"
"""Outcome of a restart that was taken back."""
BEGUN_S = 1.0
"""Slurm's times are whole seconds: a begin time has come for certain after one more."""
STRAY_S = 120.0
"""The same where a signal of ours may not have reached a node: slurmctld tries again each minute, and a signal that
finds no job there is over. It is Slurm's own delay of a requeued job, too."""
REPORTED_S = 60.0
"""How long the next attempt's first report is waited for before its Comment is cleaned all the same."""


class Restart(OwnStop):
    """The stages and the way through them."""

    _begins: float | None = None
    """When the begin time that we set has come, by the steady clock; None where none is awaited."""

    async def run(self) -> None:
        """Go on from the stored stage to the end; waits out a slurmctld that is away."""
        stages = {"decided": self._annotate, "annotated": self._announce, "stopping": self._stop_file,
                  "freezing": self._freeze, "signalling": self._signal, "waiting": self._wait,
                  "requeuing": self._requeue, "reviving": self._revive, "requeued": self._schedule,
                  "scheduled": self._running}
        wait_s = LOOK_S
        stored = True
        while self.intent.stage != "done" or not stored:
            try:
                if not stored:
                    self._as_stored()
                    stored = True
                    continue
                await stages[self.intent.stage]()
                wait_s = LOOK_S
            except Away as fault:
                log.warning("job %d: restart waits at %s: %s", self.intent.job, self.intent.stage, fault)
                await self.clocks.sleep(wait_s)
                wait_s = min(wait_s * 2, SLOW_LOOK_S)
            except sqlite3.Error as fault:
                stored = False
                log.error("job %d: restart waits until history can be used: %s", self.intent.job, fault)
                await self.clocks.sleep(wait_s)
                wait_s = min(wait_s * 2, SLOW_LOOK_S)
            except Exception:
                stored = False
                log.exception("job %d: restart broke off at %s; it goes on in a minute", self.intent.job,
                              self.intent.stage)
                await self.clocks.sleep(BROKEN_S)

    def _as_stored(self) -> None:
        """Go on from what was stored, as the next controller would: a stage, or a command, that is only in memory
        was never announced."""
        self.intent = self.store.intent(self.intent.id)
        self._may_have_woken = True

    # Stages

    async def _annotate(self) -> None:
        if self._healed():
            return
        if not self.acts(self.intent.partition):
            return self._decline("observe", OBSERVE, write=False)
        if self._taken_back():
            return
        wanted = self._wanted("restarting", cause=True)
        outcomes = [await self.annotations.settle(job, wanted) for job in self.intent.jobs]
        self.intent.cause_by_reply = any("comment" in outcome.skipped for outcome in outcomes)
        self.store.reach(self.intent, "annotated")

    async def _announce(self) -> None:
        if self._healed():
            return
        facts = await self._facts()
        if facts is None or not self._runs(facts):
            await self._not_ours(facts)
            return
        if not self.acts(facts.partition):
            return self._decline("observe", OBSERVE)
        if self._healed() or self._taken_back():
            return
        with self.store.together():
            self._say("stopping", f"Stopping to restart ({self._count()}): {self.intent.finding.said}")
            self.store.reach(self.intent, "stopping")  # from here no progress ends the restart

    async def _stop_file(self) -> None:
        intent = self.intent
        for job in intent.jobs:
            self.stops.begin(job, intent.restarts, intent.stop_lines)
        try:
            now = self.clocks.steady()
            until, known_by = now + self.stop_file_wait_s, now + FIRST_REPORTS_S
            while not all(map(self.stops.acknowledged, intent.jobs)) and now < until:
                await self.clocks.sleep(0.2)
                now = self.clocks.steady()
                if now < known_by and not self.stops.known(intent.job):
                    until = now + self.stop_file_wait_s
            self.store.reach(intent, "freezing" if intent.way else "requeuing")
        finally:
            for job in intent.jobs:
                self.stops.end(job)

    async def _requeue(self) -> None:
        intent = self.intent
        facts = await self._to_be_stopped()
        if facts is not None and facts.state == "STOPPED":  # only a second look tells whether it is suspended, too
            await self.clocks.sleep(STILL_S)
            facts = await self._to_be_stopped()
        if facts is None:
            return
        if intent.commands >= COMMANDS_MAX:
            await self._give_up(facts, "Slurm took the requeue but did not carry it out")
        else:
            await self._send(facts)

    async def _send(self, facts: JobFacts) -> None:
        intent = self.intent
        if intent.commands:
            await self.clocks.sleep(REPEAT_S)
            again = await self._facts()
            if again is None or not self._runs(again):
                return  # it shows an effect now
            facts = again
        intent.commands += 1
        self.store.reach(intent, "requeuing")
        self._log("scontrol requeue incomplete")
        seen = self.clocks.wall()
        try:
            await self.jobs.requeue(facts.requeued_as)
        except Refused as refusal:
            return await self._give_up(facts, f"Slurm refused: {refusal}")
        if intent.hit_at is None:
            intent.hit_at = seen
            self.store.reach(intent, "requeuing")

    async def _revive(self) -> None:
        """The job ended all the same: one plain requeue, and it is sent once only, whatever comes of it."""
        intent = self.intent
        if intent.revived:
            await self.clocks.sleep(REPEAT_S)
        facts = await self._facts()
        if facts is not None and intent.revived and facts.state not in ENDED:
            self._requeued(f"Requeued {self._count()}: it had ended on our stop before the requeue reached it; jobs "
                           "that depend on it may have started")
        elif facts is not None and facts.state not in ENDED:
            self._decline("another", "the job was requeued by somebody else meanwhile")
        elif facts is None or not ended_on_ours(intent, facts):
            self._over_and_out(facts)
        else:
            intent.revived = True
            self.store.reach(intent, "reviving")
            self._log("scontrol requeue")
            try:
                await self.jobs.requeue_ended(facts.requeued_as)
            except Refused as refusal:
                self._log(f"refused: {refusal}")

    async def _schedule(self) -> None:
        """Begin time, nodes to avoid and closing piece: one update, once the old attempt is gone from its nodes
        (PENDING)."""
        intent = self.intent
        facts = await self._facts()
        if facts is None or facts.state in ENDED:
            self._ended_later(facts)
            return
        if facts.state == "COMPLETING":
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

    # Ways out

    def _healed(self) -> bool:
        """Until the stop file is written a finding that closed ends the restart."""
        if self.store.finding_id(self.intent.finding_key) is not None:
            return False
        why = self.store.closed_why(self.intent.finding_key)
        self._done("healed", self._over("progress again" if why == "progress" else why or "no longer stalled"))
        return True

    def _taken_back(self) -> bool:
        """Until the stop file is written nothing has happened to the job: an incident that opened takes the restart
        back whole, so that its finding may have one when the incident is over."""
        held = self.held()
        if held is None:
            return False
        intent, (why, note) = self.intent, held
        self._log(f"restart taken back: {why}")
        with self.store.together():
            self._say("restart_declined", f"restart declined: {why}")
            for job in intent.jobs:
                self.annotations.want(job, annotate.stalled([intent.finding], note))
            self.store.withdraw(intent)
        intent.stage, intent.outcome = "done", HELD
        return True

    async def _not_ours(self, facts: JobFacts | None) -> None:
        """Before the stop: the job is no longer what was decided on."""
        state = facts.state if facts else "gone"
        if facts is not None and facts.state in ("SUSPENDED", "STOPPED", "SIGNALING") and self._same(facts):
            return await self.clocks.sleep(SLOW_LOOK_S)
        if facts is not None and facts.state == "COMPLETING" and self._same(facts):
            return await self.clocks.sleep(LOOK_S)  # history is to say how it ended
        self._decline("another", f"the job is {state} by now" if facts is None or self._same(facts)
                      else "the job was requeued meanwhile")

    def _ended_later(self, facts: JobFacts | None) -> None:
        self._done("restarted", self._closing(), "restarted",
                   f"Requeued {self._count()}; the job is {facts.state if facts else 'gone'} since")

    # Small things

    async def _wait_for_report(self, seconds: float) -> bool:
        until = self.clocks.steady() + seconds
        while self.clocks.steady() < until:
            if all(self.stops.attempt_reported(job, self.intent.restarts + 1) for job in self.intent.jobs):
                return True
            await self.clocks.sleep(0.5)
        return False

    def _wanted(self, word: str, *, cause: bool) -> Wanted:
        note = f"{word} {self._count()}" + (", cause=stalled" if cause else "")
        return annotate.stalled([self.intent.finding], note)

    def _closing(self, *, cause: bool = False) -> Wanted:
        note = f"restarted {self._count()}" + (", cause=stalled" if cause else "")
        if self.intent.avoid_note:
            note += f", {self.intent.avoid_note}"
        return annotate.over(self.intent.finding, self.intent.stopped_at or self.intent.begun_at, note)


def _second(at: float) -> str:
    """``14:05:10``"""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
