"""Brings a node's Comment in step with what is flagged, drains it and takes that back.

As with jobs' comments: read just before, what is about to be written is stored first, read again after; what others
wrote stays byte for byte, another tool's text is left alone. A reason that is not ours is never touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ..history.store import Store
from ..slurm.command import Refused, to_bytes
from ..slurm.jobs import COMMENT_MAX
from ..slurm.nodes import Nodes, NodeText
from . import piece
from .writer import Pace

TRIES = 3
MARK = "astraeus: "
"""How a reason of ours begins."""


class Declined(Exception):
    """It is not done; the text is a sentence that says why."""


class NodeWriter:
    """``nodes``: Slurm; ``store``: remembers what of ours stands there; ``pace``: between two writes."""

    def __init__(self, nodes: Nodes, store: Store, pace: Pace, wall: Callable[[], float] = time.time) -> None:
        self.nodes, self.store, self.pace, self.wall = nodes, store, pace, wall

    async def comment(self, node: str, text: str) -> str:
        """Make its Comment carry exactly this piece of ours ("" for none); why it is left alone, "" where it is not.
        Raises Away."""
        mine = piece.piece(text) if text else ""
        for _ in range(TRIES):
            now = await self.nodes.show(node)
            if now is None:
                return f"Slurm knows no node {node}"
            mark = self.store.flags.mark(node)
            others, standing = piece.split(now.comment, (mark.written, mark.intended))
            if mine and piece.anothers(others):
                return f"its Comment is another tool's (it starts with {others[:1]})"
            new = piece.with_piece(others, mine)
            if new == now.comment:
                if (mark.written, mark.intended) != (mine, ""):
                    self.store.flags.put_mark(msgspec.structs.replace(mark, written=mine, intended=""))
                return ""
            if len(to_bytes(new)) > COMMENT_MAX:
                return "its Comment is too long to be written again whole"
            self.store.flags.put_mark(msgspec.structs.replace(mark, written=standing, intended=mine))
            await self.pace.turn()
            try:
                await self.nodes.comment(node, new)
            except Refused as refusal:
                return f"Slurm refused: {refusal}"
        return "somebody else writes its Comment at the same time"

    async def drain(self, node: str, sentence: str, by: str, for_flag: float) -> str:
        """Drain it with our sentence as its reason, which is given back. Raises Declined or Away."""
        now = await self._known(node)
        if now.out:
            whose = " already, by Astraeus" if self._ours(now) else ""
            raise Declined(f"node {node} is {now.state}{whose}: {now.reason or 'no reason is given'}; left as it is")
        reason = plain(MARK + sentence)
        mark = self.store.flags.mark(node)
        self.store.flags.put_mark(msgspec.structs.replace(mark, reason=reason, by=by, drained_at=self.wall(),
                                                            for_flag=for_flag))
        await self.pace.turn()
        try:
            await self.nodes.drain(node, reason)
        except Refused as refusal:
            self._forget(node)
            raise Declined(f"Slurm refused to drain {node}: {refusal}") from None
        now = await self._known(node)
        if not self._ours(now):
            self._forget(node)
            raise Declined(f"node {node} is {now.state} by now, with somebody else's reason: {now.reason}")
        return reason

    async def resume(self, node: str) -> tuple[bool, str]:
        """Back into service where the drain is still ours: (whether it was, what there is to say). Raises Declined or
        Away."""
        now = await self._known(node)
        if not self._ours(now):
            self._forget(node)
            if not now.out:
                return False, f"node {node} is {now.state}"
            return False, f"node {node} stays {now.state}, its reason is not ours: {now.reason or 'none'}"
        await self.pace.turn()
        try:
            await self.nodes.resume(node)
        except Refused as refusal:
            raise Declined(f"Slurm refused to resume {node}: {refusal}") from None
        self._forget(node)
        return True, f"node {node} is back in service"

    async def drained(self) -> list[str]:
        """Nodes that stand drained by us; of what somebody else has changed since, the mark goes. Raises Away."""
        found = []
        for mark in self.store.flags.marks():
            if not mark.reason:
                continue
            now = await self.nodes.show(mark.node)
            if now is not None and self._ours(now):
                found.append(mark.node)
            else:
                self._forget(mark.node)
        return found

    async def _known(self, node: str) -> NodeText:
        now = await self.nodes.show(node)
        if now is None:
            raise Declined(f"Slurm knows no node {node}")
        return now

    def _ours(self, now: NodeText) -> bool:
        """Drained, by the very text that we wrote."""
        reason = self.store.flags.mark(now.name).reason
        return bool(reason) and now.drained and now.reason == reason

    def _forget(self, node: str) -> None:
        mark = self.store.flags.mark(node)
        self.store.flags.put_mark(msgspec.structs.replace(mark, reason="", by="", drained_at=None))


def plain(text: str) -> str:
    """One line of printable ASCII, 400 bytes at most, as pieces of comments are."""
    return piece.piece(text)[len(piece.START):-len(piece.END)]
