"""Python stacks in the history database: what was read of a job, whole, as evidence of its findings."""

from __future__ import annotations

import sqlite3
import zlib

import msgspec
from astraeus_protocol.readings import Stacks
from msgspec import structs

PER_JOB = 8
"""So many readings of a job are kept, the newest."""
MAX_BYTES = 8 << 20
"""Of one reading, before it is deflated. A larger one is kept without its other threads, or not at all."""


class Reading(msgspec.Struct):
    """One asking, and what the nodes answered."""

    ask: str
    job: int
    run: str
    restarts: int
    step: str
    """"": all its steps."""
    native: bool
    finding: str
    """Key of the finding that it was asked for; "": a person asked."""
    at: float
    """Unix seconds of the asking."""
    nodes: list[str]
    """Nodes that were asked."""
    answers: dict[str, Stacks] = {}
    done: bool = False
    """Every node has answered, or none is waited for any more."""


class StoredStacks:
    """``db``: the store's connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def put(self, reading: Reading) -> bool:
        """A reading that is done; False where it is too large to be kept."""
        body = msgspec.json.encode(reading)
        if len(body) > MAX_BYTES:
            answers = {node: structs.replace(answer, taken=[structs.replace(s, threads=[]) for s in answer.taken])
                       for node, answer in reading.answers.items()}
            body = msgspec.json.encode(structs.replace(reading, answers=answers))
        if len(body) > MAX_BYTES:
            return False
        self.db.execute("INSERT INTO stacks (job, finding, at, body) VALUES (?, ?, ?, ?)",
                        (reading.job, reading.finding, reading.at, zlib.compress(body)))
        self.db.execute("DELETE FROM stacks WHERE job = ? AND id NOT IN "
                        "(SELECT id FROM stacks WHERE job = ? ORDER BY id DESC LIMIT ?)",
                        (reading.job, reading.job, PER_JOB))
        return True

    def last(self, job: int) -> Reading | None:
        """The newest reading of a job."""
        row = self.db.execute("SELECT body FROM stacks WHERE job = ? ORDER BY id DESC LIMIT 1", (job,)).fetchone()
        return msgspec.json.decode(zlib.decompress(row[0]), type=Reading) if row else None

    def forget(self, oldest: float) -> None:
        """Drop what is older than ``oldest`` (Unix seconds)."""
        self.db.execute("DELETE FROM stacks WHERE at < ?", (oldest,))
