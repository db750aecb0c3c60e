"""What a finding rests on, in the history database: the readings of the moment it opened, or was last known better.

Bounded in every way: ranks and processes of one finding, its bytes, findings of a job, findings in all, and age.
"""

from __future__ import annotations

import sqlite3
import zlib
from typing import Any

import msgspec
from astraeus_protocol.findings import Finding
from msgspec import structs

from ..rules.picture import Picture, StepView, WorkerView
from .stacks import Reading

RANKS, PROCESSES = 64, 16
"""Of one finding: the guilty rank's, then those in an odd state, then the others in order; processes of each rank. As
many words of a collective, and rails of their nodes."""
PER_JOB, IN_ALL = 16, 20_000
"""Findings of one job, and of all, whose evidence is kept: the newest."""
MAX_BYTES = 1 << 20
"""Of one finding, before it is deflated; a larger one is kept with a quarter of the ranks, or not at all."""
STACKS_BEFORE_S = 120.0
"""Stacks that were read so long before a finding opened belong to it: they are asked for at the first suspicion."""


class Kept(msgspec.Struct):
    """One finding's row in history with what is kept of it."""

    id: int
    uid: int
    """Whose job it is."""
    finding: Finding
    opened_at: float
    closed_at: float | None
    why: str
    at: float
    """Unix seconds at which the readings were taken."""
    job: dict[str, Any]
    """The picture's job with this one step, as ``rules.picture`` has it."""


class StoredEvidence:
    """``db``: the store's connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def ids(self) -> dict[str, int]:
        """Key to number of every open finding."""
        return dict(self.db.execute("SELECT key, id FROM findings WHERE closed_at IS NULL").fetchall())

    def put(self, finding: Finding, uid: int, picture: Picture) -> int | None:
        """Keep what an open finding rests on; its number, None where history does not hold it."""
        row = self.db.execute("SELECT id FROM findings WHERE key = ? AND closed_at IS NULL", (finding.key,)).fetchone()
        if row is None:
            return None
        body = next((body for ranks in (RANKS, RANKS // 4) if len(body := _body(finding, picture, ranks)) <= MAX_BYTES),
                    b"")
        if body:
            self.db.execute("INSERT OR REPLACE INTO evidence (id, job, uid, at, body) VALUES (?, ?, ?, ?, ?)",
                            (row[0], finding.job, uid, picture.now, zlib.compress(body)))
            self.db.execute("DELETE FROM evidence WHERE job = ? AND id NOT IN (SELECT id FROM evidence WHERE job = ? "
                            "ORDER BY id DESC LIMIT ?)", (finding.job, finding.job, PER_JOB))
        return int(row[0])

    def get(self, number: int) -> Kept | None:
        """What is kept of a finding."""
        row = self.db.execute(
            "SELECT f.finding, f.opened_at, f.closed_at, f.why, e.uid, e.at, e.body FROM evidence e "
            "JOIN findings f ON f.id = e.id WHERE e.id = ?", (number,)).fetchone()
        if row is None:
            return None
        text, opened, closed, why, uid, at, body = row
        return Kept(number, uid, msgspec.json.decode(text, type=Finding), opened, closed, why, at,
                    msgspec.json.decode(zlib.decompress(body)))

    def stacks(self, kept: Kept) -> Reading | None:
        """The Python stacks that were read last while the finding was open, or right before; those with native frames
        only where there are no others."""
        until = kept.closed_at if kept.closed_at is not None else float("inf")
        rows = self.db.execute("SELECT body FROM stacks WHERE job = ? AND at BETWEEN ? AND ? ORDER BY id DESC",
                               (kept.finding.job, kept.opened_at - STACKS_BEFORE_S, min(until, 1e12)))
        found = None
        for (body,) in rows:
            reading = msgspec.json.decode(zlib.decompress(body), type=Reading)
            if reading.restarts == kept.finding.restarts and reading.step in ("", kept.finding.step):
                if not reading.native:
                    return reading
                found = found or reading
        return found

    def forget(self, oldest: float) -> None:
        """Drop what is older than ``oldest`` (Unix seconds), what history no longer holds, and what is too much."""
        self.db.execute("DELETE FROM evidence WHERE at < ? OR id NOT IN (SELECT id FROM findings)", (oldest,))
        self.db.execute("DELETE FROM evidence WHERE id <= (SELECT id FROM evidence ORDER BY id DESC LIMIT 1 OFFSET ?)",
                        (IN_ALL,))


def _body(finding: Finding, picture: Picture, ranks: int) -> bytes:
    steps = tuple(_cut(step, finding, ranks) for step in picture.job.steps if step.step == finding.step)
    nodes = {worker.node for step in steps for worker in step.workers}
    rails = tuple(one for one in picture.job.rails if one.node in nodes)[:ranks]
    return msgspec.json.encode(structs.replace(picture.job, steps=steps, rails=rails))


def _cut(step: StepView, finding: Finding, ranks: int) -> StepView:
    def place(worker: WorkerView) -> tuple[bool, bool, int]:
        odd = worker.state != "running" or any(p.state in "TtZDX" or p.wait for p in worker.processes)
        return worker.rank != finding.rank, not odd, worker.rank

    chosen = sorted(step.workers, key=place)[:ranks]
    whole = [structs.replace(worker, processes=_first(worker, finding.pid)) for worker in chosen]
    return structs.replace(step, said=step.said[:ranks], workers=tuple(sorted(whole, key=lambda worker: worker.rank)))


def _first(worker: WorkerView, pid: int | None) -> tuple[Any, ...]:
    """The guilty process among them."""
    return tuple(sorted(worker.processes, key=lambda p: (p.pid != pid, p.local))[:PROCESSES])
