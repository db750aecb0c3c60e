"""The batch script frozen while a job is stopped, and the second way of stopping: our own signal, or a longer grace.

``scancel --batch --signal=STOP`` freezes the batch script, which then can't end the job, not when its ranks leave on
the stop file, which is written next, either. Then CONT (a stopped rank never sees the signal otherwise) and the signal
go to the steps; once all ranks are gone, or the grace is over, the
job is requeued, which wakes the script only to end it. Where the work runs in the batch step itself the signal
goes there (``--full``: the batch script and its process group), and CONT has to come before the script is frozen:
after it, it would wake it, and the signal would end it.

The job shows SIGNALING until the nodes have answered to a STOP or CONT (Slurm takes no other before), then STOPPED,
and after a CONT to its steps RUNNING again, with its script still frozen. Each stage may be done twice: a controller
that dies goes on, and no way out leaves the script frozen.
"""

from __future__ import annotations

import math

from astraeus_protocol.durations import say_seconds

from ..slurm.command import Refused
from ..slurm.parse import ENDED
from ..slurm.types import JobFacts
from .under_way import COMMANDS_MAX, FIRST_REPORTS_S, LOOK_S, OBSERVE, SLOW_LOOK_S, UnderWay
from .way import HOLD

QUIET_S = 8.0
"""A node that is to report every 2 s and was not heard for so long may not be reached by Slurm either."""
TRIES_S = 12.0
"""For so long slurmctld tries to reach a node (MessageTimeout, 10 s) before it keeps a signal for later."""
STRAY_S = 120.0
"""A signal of ours that may not have reached a node: slurmctld tries again each minute, and one that finds no job there
is over. It is Slurm's own delay of a requeued job, too."""
ANSWER_LOOKS = 10
"""Seconds that a node's answer to a STOP or CONT is waited for; scancel itself repeats what comes too early."""


class OwnStop(UnderWay):
    """Stages freezing, signalling and waiting."""

    _until: float | None = None
    """When the grace is over, by the steady clock."""

    _guarded: float | None = None
    """Until when an attempt that is not ours is looked at, by the steady clock."""

    _freezes = 0
    """How often the script was to be frozen in this controller's life."""

    async def _freeze(self) -> None:
        intent = self.intent
        facts = await self._to_be_stopped()
        if facts is None:
            return
        if facts.state == "STOPPED":
            self._may_have_woken = False
            return self.store.reach(intent, "signalling" if intent.told else "stopping")
        if not self.acts(facts.partition) and not intent.signals:
            await self._thaw(facts)
            return self._decline("observe", OBSERVE)
        if self._freezes >= COMMANDS_MAX:
            return await self._not_frozen(facts, "Slurm did not freeze its batch script")
        if intent.frozen and not intent.signals:
            self._went_astray("STOP")
        self._freezes += 1
        intent.frozen = True
        self.store.reach(intent, "freezing")
        self._log("scancel --batch --signal=STOP")
        try:
            if intent.way == "full":
                await self.jobs.signal(facts.requeued_as, "CONT", full=True)
                await self._answered()
            await self.jobs.signal(facts.named, "STOP", batch=True)
        except Refused as refusal:
            again = await self._facts()
            if again is not None and self._runs(again):
                await self._not_frozen(again, f"Slurm refused: {refusal}")

    async def _not_frozen(self, facts: JobFacts, why: str) -> None:
        """A job whose ranks may be saving already is requeued all the same, and so is one that waits for TERM alone."""
        if self.intent.signals or self.intent.told:
            return self.store.reach(self.intent, "requeuing")
        if self.intent.way == HOLD:
            self._log(f"its batch script is not frozen: {why}")
            await self._thaw(facts)
            self.intent.way = ""
            return self.store.reach(self.intent, "stopping")
        await self._give_up(facts, why)

    async def _answered(self) -> None:
        """Until the nodes have answered to a STOP or CONT."""
        for _ in range(ANSWER_LOOKS):
            facts = await self._facts()
            if facts is None or facts.state != "SIGNALING":
                return
            await self.clocks.sleep(LOOK_S)

    async def _signal(self) -> None:
        """Sent once more only where nobody knows whether it was."""
        intent = self.intent
        facts = await self._to_be_stopped()
        if facts is None:
            return
        if intent.signals >= COMMANDS_MAX:
            return self.store.reach(intent, "waiting")
        if facts.state != "STOPPED":  # somebody woke it, or a controller before this one died between CONT and signal
            return self.store.reach(intent, "freezing")
        intent.signals += 1
        self.store.reach(intent, "signalling")
        seen = self.clocks.wall()
        self._log(f"scancel {'--full ' if intent.way == 'full' else ''}--signal={intent.signal}")
        try:
            if intent.way == "steps":
                await self.jobs.signal(facts.requeued_as, "CONT")
            await self.jobs.signal(facts.requeued_as, intent.signal, full=intent.way == "full")
        except Refused as refusal:
            again = await self._facts()
            if again is None or again.state in (*ENDED, "COMPLETING") or not self._same(again):
                return  # that is why: the next look carries out what became of it
            self._say("signal_refused", f"Slurm refused to send {intent.signal}: {refusal}; it is requeued at once")
            return self.store.reach(intent, "requeuing")
        self._may_have_woken = intent.signal == "CONT"
        intent.hit_at = seen
        with self.store.together():
            self._say("signalled", f"Sent {intent.signal} to its ranks, which have {say_seconds(intent.grace_s)} to "
                                   "save; its batch script is frozen meanwhile")
            self.store.reach(intent, "waiting")

    async def _wait(self) -> None:
        """Until the ranks are gone or the grace is over; time for which the job is suspended does not count."""
        intent, began = self.intent, self.clocks.steady()
        if self._until is None:
            past = 0.0 if intent.hit_at is None else self.clocks.wall() - intent.hit_at
            self._until = began + intent.grace_s - min(max(past, 0.0), intent.grace_s)
        facts = await self._to_be_stopped()
        if facts is None:
            if intent.stage == "waiting":
                self._until += self.clocks.steady() - began
            return
        await self._freeze_again(facts.named)
        look = self.clocks.steady() + SLOW_LOOK_S
        self._listen()
        while not (gone := self.gone()) and self.clocks.steady() < min(self._until, look):
            await self.clocks.sleep(LOOK_S)
            self._listen()
        if gone or self.clocks.steady() >= self._until:
            self._log("all ranks are gone" if gone else "the grace is over")
            self.store.reach(intent, "requeuing")

    def _listen(self) -> None:
        """Whether every node is heard while Slurm delivers the signal: the two have the same way."""
        intent = self.intent
        if intent.heard or intent.stray:
            return
        quiet_s = max(map(self.stops.quiet_s, intent.jobs))
        if quiet_s == math.inf and self.clocks.steady() - self._began < FIRST_REPORTS_S:
            return  # a controller that has just started
        if quiet_s > QUIET_S:
            self._went_astray(intent.signal)
        elif intent.hit_at is None or self.clocks.wall() - intent.hit_at >= TRIES_S:
            intent.heard = True
        else:
            return
        self.store.reach(intent, intent.stage)

    def _went_astray(self, signal: str) -> None:
        """A signal that Slurm could not deliver it keeps for the node, and delivers it a minute later to the job's
        next attempt: one was stopped so for ever, in others the ranks saved and left, and where the node was cut off
        as Slurm ended the job the next attempt's step was killed. So that one begins later."""
        if not self.intent.stray:
            self.intent.stray = True
            self._say("signal_late", f"{signal} may not have reached every node of it; Slurm would deliver it to the "
                                     "next attempt, which therefore begins two minutes after the stop")

    async def _guard(self) -> None:
        """An attempt that is not ours: a STOP of ours that hits it is taken back."""
        if self._guarded is None:
            self._guarded = self.clocks.steady() + STRAY_S
        facts = await self._facts()
        if facts is None or facts.state in ENDED or self.clocks.steady() >= self._guarded:
            return self.store.reach(self.intent, "done")
        if facts.state == "STOPPED":
            await self._thaw(facts)
            self._say("woken", "Woke its batch script, which our STOP had reached after the job was requeued")
        await self.clocks.sleep(LOOK_S)

    async def _freeze_again(self, named: str) -> None:
        """Freezing what is frozen does nothing."""
        if self._may_have_woken:
            try:
                await self.jobs.signal(named, "STOP", batch=True)
            except Refused as refusal:
                self._log(f"could not be frozen again: {refusal}")
            self._may_have_woken = False
