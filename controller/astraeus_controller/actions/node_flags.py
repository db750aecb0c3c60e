"""Flagged nodes: what findings say of them is kept, brought into their Comments, and by policy they are drained."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from functools import partial

from astraeus_protocol.findings import Event, Finding

from ..config import Config
from ..history.flags import Flag
from ..history.store import Store
from ..slurm.command import Away
from .flag import FLAGGED_S, NODES_FAULT, Flagged, flagged, of_finding, sentence
from .node_writer import Declined, NodeWriter

log = logging.getLogger(__name__)
SOON_S = 5.0
"""A restart's own writes come first."""
RETRY_S, RETRY_MAX_S = 15.0, 600.0
AGAIN_S = 3600.0
"""Pieces of what has grown old are taken away."""


class NodeFlags:
    """``emit`` stores and logs an event; ``wall``: Unix seconds, ``clock``: steady ones."""

    def __init__(self, config: Config, writer: NodeWriter, store: Store, emit: Callable[[Event], None],
                 wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.writer, self.store, self.emit = config, writer, store, emit
        self.wall, self.clock = wall, clock
        self._wake = asyncio.Event()
        self._due: dict[str, float] = {}
        self._wait: dict[str, float] = {}
        self._told: dict[str, str] = {}
        """Node to why its comment, or it itself, was left alone: said once."""
        self._lock = asyncio.Lock()

    # What findings say

    def note(self, finding: Finding, act: bool) -> None:
        """A finding opened or is known better; part of the commit that stores it."""
        flag = of_finding(finding, act)
        if flag is None:  # also of what is known better by now, and is no node's doing
            if before := self.store.flags.drop(finding.key):
                self.store.after(partial(self._soon, before))
            return
        new = not any(one.key == flag.key and one.node == flag.node and one.kind == flag.kind
                      for one in self.of(flag.node))
        before = self.store.flags.put(flag)
        if new and flag.kind in NODES_FAULT:
            self.emit(Event(at=flag.at, run=flag.run, job=flag.job, worker=flag.worker, state="Running",
                            kind="node_flagged", message=f"Node {flag.node} flagged: {flag.words}",
                            details={"flag": {"node": flag.node, "kind": flag.kind, "gpu": flag.gpu,
                                              "uuid": flag.uuid, "key": flag.key}}))
        for node in {flag.node, before} - {""}:
            self.store.after(partial(self._soon, node))

    def over(self, key: str) -> None:
        """A finding is closed; its node stays flagged."""
        self.store.flags.over(key, self.wall())

    def of(self, node: str = "") -> list[Flag]:
        """Flags that count, of all nodes or of one."""
        return self.store.flags.since(self.wall() - FLAGGED_S, node)

    def all(self) -> list[Flagged]:
        """Every node of which something counts."""
        return flagged(self.of())

    def one(self, node: str) -> Flagged | None:
        return next(iter(flagged(self.of(node))), None)

    # What a person asks for

    async def drain(self, node: str, by: str) -> str:
        """Drain a flagged node, its reason is given back. Raises Declined or Away."""
        self._may_write(f"scontrol update nodename={node} state=drain reason=...")
        of = self.one(node)
        if of is None:
            raise Declined(f"nothing is known against node {node}: drain it with scontrol, and a reason of your own")
        async with self._lock:
            reason = await self.writer.drain(node, sentence(of), by, of.last.at)
        self._tell("node_drained", node, f"Node {node} drained by {by}: {reason}")
        return reason

    async def clear(self, node: str, by: str) -> tuple[bool, str]:
        """Its flags are dealt with: our piece goes, and a drain that is still ours; (whether that was, what there is
        to say). Raises Declined or Away."""
        mark = self.store.flags.mark(node)
        if mark.reason or mark.written or mark.intended:
            self._may_write(f"scontrol update nodename={node} state=resume")
        elif self.one(node) is None:
            raise Declined(f"node {node} is not flagged")
        async with self._lock:
            resumed, said = False, f"node {node} was not drained by Astraeus"
            if mark.reason:
                resumed, said = await self.writer.resume(node)
            self.store.flags.clear(node, self.wall())
            left = await self.writer.comment(node, "") if mark.written or mark.intended else ""
        self._told.pop(node, None)
        self._due.pop(node, None)
        text = f"its flags are cleared; {said}" + (f"; Comment left as it is: {left}" if left else "")
        self._tell("node_cleared", node, f"Node {node} cleared by {by}: {text}")
        return resumed, text

    def _may_write(self, instead: str) -> None:
        if not self.config.acts:
            raise Declined(f'mode is observe: nothing is written into Slurm; run {instead}, or set mode = "act"')

    # The loop

    async def run(self) -> None:
        """Ends when cancelled."""
        looked = -AGAIN_S
        while True:
            now = self.clock()
            if now - looked >= AGAIN_S:
                looked = now
                for node in {*(of.node for of in self.all()), *(mark.node for mark in self.store.flags.marks())}:
                    self._due.setdefault(node, now)
            for node in [node for node, at in self._due.items() if at <= now]:
                await self._try(node)
            self._wake.clear()
            until = min([looked + AGAIN_S, *self._due.values()])
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.01, until - self.clock()))
            except TimeoutError:
                continue

    def _soon(self, node: str) -> None:
        self._due[node] = self.clock() + SOON_S
        self._wake.set()

    async def _try(self, node: str) -> None:
        due = self._due[node]
        try:
            async with self._lock:
                await self._bring(node)
        except (Away, sqlite3.Error) as fault:
            self._wait[node] = min(2 * self._wait.get(node, RETRY_S / 2), RETRY_MAX_S)
            log.warning("node %s: not written yet: %s", node, fault)
            if self._due.get(node) == due:
                self._due[node] = self.clock() + self._wait[node]
            return
        except Exception:
            log.exception("node %s: what is known of it was not written", node)
        self._wait.pop(node, None)
        if self._due.get(node) == due:
            del self._due[node]

    async def _bring(self, node: str) -> None:
        """The node's Comment, and by policy its drain, as they should be."""
        of, action = self.one(node), self.config.nodes.node_action
        says = of is not None and of.flagged and of.acts and action != "none"
        mark = self.store.flags.mark(node)
        if says or mark.written or mark.intended:
            self._once(node, "its Comment is left as it is", await self.writer.comment(
                node, sentence(of) if of is not None and says else ""))
        now = [flag for flag in of.faults if flag.act and flag.over_at is None] if of is not None else []
        if of is not None and action == "drain" and now and not mark.reason and now[-1].at > mark.for_flag:
            await self._drain_by_policy(of)

    async def _drain_by_policy(self, of: Flagged) -> None:
        """A node's own fault that holds a job back now, as many as the site lets it, and never twice for one."""
        most = self.config.nodes.max_drained
        if len(drained := await self.writer.drained()) >= most:
            return self._once(of.node, "not drained", f"{', '.join(drained) or 'none'} drained already, max_drained is "
                              f"{most}")
        try:
            reason = await self.writer.drain(of.node, sentence(of), "policy", of.last.at)
        except Declined as why:
            return self._once(of.node, "not drained", str(why))
        self._tell("node_drained", of.node, f"Node {of.node} drained by policy: {reason}")

    def _once(self, node: str, what: str, why: str) -> None:
        if why and self._told.get(node) != why:
            self._told[node] = why
            self._tell("node_left", node, f"Node {node}: {what}: {why}")

    def _tell(self, kind: str, node: str, message: str) -> None:
        self.emit(Event(at=self.wall(), run=f"node {node}", job=0, worker="", state="", kind=kind, message=message,
                        details={"node": node}))
