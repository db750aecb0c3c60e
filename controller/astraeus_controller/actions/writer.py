"""Writes our pieces into a job's Comment and AdminComment.

Read just before, one ``scontrol update`` for both and only when a text changes, read again after. What is
about to be written is stored first, so that a controller that dies in between still knows its own piece.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ..history.store import Store
from ..slurm.command import Refused, to_bytes
from ..slurm.jobs import COMMENT_MAX, FINISHED, Jobs, Texts
from ..slurm.parse import ENDED
from . import piece

TRIES = 3
"""How often a write is repeated when somebody else wrote in between."""
FIELDS = ("comment", "admin_comment")
NAMES = {"comment": "Comment", "admin_comment": "AdminComment", "start_time": "StartTime", "excluded": "ExcNodeList"}


class Wanted(msgspec.Struct, frozen=True):
    """The texts that should stand in our pieces; "" for no piece."""

    comment: str = ""
    admin_comment: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """``state``: done, completing (neither field can be written now), gone (Slurm no longer knows the job).

    ``skipped``: field to reason, for those that are left alone.
    """

    state: str
    skipped: dict[str, str] = {}


class Pace:
    """At most one write per ``interval_s``; callers wait their turn."""

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.interval_s, self.clock, self.sleep = interval_s, clock, sleep
        self._next = 0.0

    async def turn(self) -> None:
        now = self.clock()
        at = max(now, self._next)
        self._next = at + self.interval_s
        if at > now:
            await self.sleep(at - now)


class Writer:
    """``jobs``: Slurm; ``store``: remembers our pieces; ``pace``: between two writes."""

    def __init__(self, jobs: Jobs, store: Store, pace: Pace) -> None:
        self.jobs, self.store, self.pace = jobs, store, pace
        self._locks: dict[int, asyncio.Lock] = {}

    async def write(self, job: int, wanted: Wanted, also: Mapping[str, str] | None = None) -> Outcome:
        """Make the job's comments carry exactly ``wanted``. Raises Away when Slurm can't be asked.

        ``also`` (``start_time``, ``excluded``) goes into the same update and is set whatever the comments are.
        """
        lock = self._locks.setdefault(job, asyncio.Lock())
        try:
            async with lock:
                return await self._write(job, wanted, dict(also or {}))
        finally:
            if not lock.locked():
                self._locks.pop(job, None)

    async def _write(self, job: int, wanted: Wanted, also: dict[str, str]) -> Outcome:
        skipped: dict[str, str] = {}
        for _ in range(TRIES):
            now = await self.jobs.show(job)
            if now is None:
                return Outcome("gone", skipped)
            changes = self._changes(job, now, wanted, skipped)
            state = now.facts.state
            if state in ENDED:
                return await self._record(job, now.facts.named, changes, skipped)
            if not changes and not also:
                return Outcome("done", skipped)
            if state == "COMPLETING":
                return Outcome("completing", skipped)
            self._intend(job, now, changes, wanted)
            try:
                await self._update(now.facts.named, changes, also, skipped)
            except Refused:  # it finished meanwhile: look again
                continue
            also = {}
        return Outcome("done", skipped)

    def _changes(self, job: int, now: Texts, wanted: Wanted, skipped: dict[str, str]) -> dict[str, str]:
        """Field to its new whole text, for fields that differ; settles the pieces of those that don't."""
        changes = {}
        for field in FIELDS:
            if field in skipped:
                continue
            text, mine = getattr(now, field), _piece(wanted, field)
            others, _ = piece.split(text, self.store.pieces(job, field))
            new = piece.with_piece(others, mine)
            if mine and piece.anothers(others):
                skipped[field] = f"{NAMES[field]} is another tool's (it starts with {others[:1]})"
            elif new == text:
                if self.store.pieces(job, field) != (mine, ""):
                    self.store.put_piece(job, field, written=mine, intended="")
            elif len(to_bytes(new)) > COMMENT_MAX:
                skipped[field] = f"{NAMES[field]} is too long to be written again whole"
            else:
                changes[field] = new
        return changes

    def _intend(self, job: int, now: Texts, changes: dict[str, str], wanted: Wanted) -> None:
        """Store both what stands there and what will, so that either is known as ours after a crash."""
        with self.store.together():
            for field in changes:
                _, standing = piece.split(getattr(now, field), self.store.pieces(job, field))
                self.store.put_piece(job, field, written=standing, intended=_piece(wanted, field))

    async def _update(self, job: str, changes: dict[str, str], also: dict[str, str],
                      skipped: dict[str, str]) -> None:
        """One update for all; where Slurm refuses it, each by itself, so that one long text stops no other.

        Raises Refused only where the job has finished.
        """
        await self.pace.turn()
        try:
            await self.jobs.update(job, **also, **changes)
            return
        except Refused as refusal:
            if FINISHED in str(refusal):
                raise
            if len(changes) + len(also) == 1:
                _refuse(skipped, next(iter(changes | also)), refusal)
                return
        for field, text in (also | changes).items():
            await self.pace.turn()
            try:
                await self.jobs.update(job, **{field: text})
            except Refused as refusal:
                if FINISHED in str(refusal):
                    raise
                _refuse(skipped, field, refusal)

    async def _record(self, job: int, named: str, changes: dict[str, str], skipped: dict[str, str]) -> Outcome:
        """After a job's end only accounting can be written, once it has the end (its record comes with it)."""
        if not changes:
            return Outcome("done", skipped)
        try:
            ended, recorded = await self.jobs.recorded(named)
        except Refused as refusal:  # a site without accounting
            for field in changes:
                _refuse(skipped, field, refusal)
            return Outcome("done", skipped)
        if not ended:
            return Outcome("completing", skipped)
        if piece.START not in recorded:
            changes.pop("comment", None)  # a site that keeps no Comment in accounting
        for field in [name for name, text in changes.items() if "'" in text or '"' in text]:
            skipped[field] = f"{NAMES[field]} holds quotes, which sacctmgr would change"
            del changes[field]
        if changes:
            await self.pace.turn()
            try:
                await self.jobs.record(job, **changes)
            except Refused as refusal:
                for field in changes:
                    _refuse(skipped, field, refusal)
        return Outcome("done", skipped)


def _piece(wanted: Wanted, field: str) -> str:
    text = getattr(wanted, field)
    return piece.piece(text) if text else ""


def _refuse(skipped: dict[str, str], field: str, refusal: Refused) -> None:
    skipped[field] = f"Slurm refused {NAMES.get(field, field)}: {refusal}"
