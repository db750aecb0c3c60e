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

from ..slurm.command import Away, Refused
from ..slurm.parse import ENDED
from ..slurm.types import JobFacts
from . import annotate
from .revive import ended_on_ours
from .scheduling import Scheduling
from .under_way import COMMANDS_MAX, FIRST_REPORTS_S, LOOK_S, OBSERVE, SLOW_LOOK_S, STILL_S, log
from .way import SIGNALS
from .writer import Wanted

REPEAT_S = 5.0
"""A requeue that Slurm took but whose effect can't be seen is repeated after this time."""
BROKEN_S = 60.0
HELD = "held"
"""Outcome of a restart that was taken back."""


class Restart(Scheduling):
    """The stages and the way through them."""

    async def run(self) -> None:
        """Go on from the stored stage to the end; waits out a slurmctld that is away."""
        stages = {"decided": self._annotate, "annotated": self._announce, "stopping": self._stop_file,
                  "freezing": self._freeze, "signalling": self._signal, "waiting": self._wait,
                  "requeuing": self._requeue, "reviving": self._revive, "requeued": self._schedule,
                  "scheduled": self._running, "guarding": self._guard}
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
            # From here no progress ends the restart.
            self.store.reach(self.intent, "freezing" if self.intent.way else "stopping")

    async def _stop_file(self) -> None:
        intent = self.intent
        if await self._to_be_stopped() is None:
            return
        if intent.hit_at is None:  # who sees the file may leave: a signal like any other
            intent.hit_at = self.clocks.wall()
            self.store.reach(intent, "stopping")
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
            intent.told = True
            self.store.reach(intent, "signalling" if intent.way in SIGNALS else "requeuing")
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
        """The job ended all the same: a plain requeue. It raises the restart count, so a job that still shows the
        attempt that ended was not reached by it: sent once only, a controller's end or a slurmctld that was away in
        that moment left the job FAILED."""
        intent = self.intent
        if intent.revivals:
            await self.clocks.sleep(REPEAT_S)
        facts = await self._facts()
        if facts is not None and intent.revivals and facts.restarts > intent.restarts:
            self._requeued(f"Requeued {self._count()}: it had ended on our stop before the requeue reached it; jobs "
                           "that depend on it may have started")
        elif facts is not None and facts.state not in ENDED:
            self._another("the job was requeued by somebody else meanwhile")
        elif facts is None or not ended_on_ours(intent, facts) or intent.revivals >= COMMANDS_MAX:
            self._over_and_out(facts)
        else:
            intent.revivals += 1
            self.store.reach(intent, "reviving")
            self._log("scontrol requeue")
            try:
                await self.jobs.requeue_ended(facts.requeued_as)
            except Refused as refusal:
                self._log(f"refused: {refusal}")

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

    # Small things

    def _wanted(self, word: str, *, cause: bool) -> Wanted:
        note = f"{word} {self._count()}" + (", cause=stalled" if cause else "")
        return annotate.stalled([self.intent.finding], note)
