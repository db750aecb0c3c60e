"""Flagged nodes in the history database: what was found on which node, and what of ours stands in Slurm's fields."""

from __future__ import annotations

import sqlite3

import msgspec

PER_NODE = 64
"""So many flags of a node are kept, the newest."""


class Flag(msgspec.Struct, frozen=True):
    """One finding that speaks of a node."""

    key: str
    """Of the finding: one flag each."""
    node: str
    at: float
    """Unix seconds."""
    kind: str
    """gpu, link: the node's own fault, by its hardware's word; stall: a guilty rank ran there."""
    job: int
    run: str
    worker: str
    words: str
    act: bool
    """The job's partition lets things be written into Slurm."""
    gpu: int | None = None
    uuid: str = ""
    over_at: float | None = None


class Mark(msgspec.Struct, frozen=True):
    """What of ours stands, or may stand, in a node's fields."""

    node: str
    written: str = ""
    """Our piece in its Comment, and the one that was about to be written."""
    intended: str = ""
    reason: str = ""
    """Ours, by which it was drained, or was about to be; "" where it was not by us."""
    by: str = ""
    """Who had it drained: a user's name, or ``policy``."""
    drained_at: float | None = None
    for_flag: float = 0.0
    """Unix time of the youngest flag that it was drained for: nobody who resumes it by hand sees it drained for that
    again."""


class StoredFlags:
    """``db``: the store's connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def put(self, flag: Flag) -> str:
        """A flag that is new, or known better; the node that it stood at before, "" for none."""
        row = self.db.execute("SELECT node FROM flags WHERE key = ?", (flag.key,)).fetchone()
        self.db.execute(
            "INSERT INTO flags (key, node, at, job, flag) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
            "node = excluded.node, flag = excluded.flag", (flag.key, flag.node, flag.at, flag.job, _json(flag)))
        self.db.execute("DELETE FROM flags WHERE node = ? AND id NOT IN (SELECT id FROM flags WHERE node = ? "
                        "ORDER BY id DESC LIMIT ?)", (flag.node, flag.node, PER_NODE))
        return row[0] if row else ""

    def drop(self, key: str) -> str:
        """The finding says nothing of a node any more; the node that it was flagged for, "" for none."""
        row = self.db.execute("DELETE FROM flags WHERE key = ? RETURNING node", (key,)).fetchone()
        return row[0] if row else ""

    def over(self, key: str, at: float) -> None:
        """The finding is closed."""
        row = self.db.execute("SELECT flag FROM flags WHERE key = ?", (key,)).fetchone()
        if row:
            flag = msgspec.structs.replace(msgspec.json.decode(row[0], type=Flag), over_at=at)
            self.db.execute("UPDATE flags SET flag = ? WHERE key = ?", (_json(flag), key))

    def since(self, at: float, node: str = "") -> list[Flag]:
        """Flags since then that nobody has cleared, of all nodes or of one; oldest first."""
        where, values = (" AND node = ?", (at, node)) if node else ("", (at,))
        rows = self.db.execute(f"SELECT flag FROM flags WHERE at >= ? AND cleared_at IS NULL{where} ORDER BY at, id",
                               values)
        return [msgspec.json.decode(row[0], type=Flag) for row in rows]

    def clear(self, node: str, at: float) -> int:
        """A person has dealt with the node; how many flags that ends."""
        return self.db.execute("UPDATE flags SET cleared_at = ? WHERE node = ? AND cleared_at IS NULL",
                               (at, node)).rowcount

    def mark(self, node: str) -> Mark:
        row = self.db.execute("SELECT mark FROM node_marks WHERE node = ?", (node,)).fetchone()
        return msgspec.json.decode(row[0], type=Mark) if row else Mark(node)

    def put_mark(self, mark: Mark) -> None:
        if mark == Mark(mark.node):
            self.db.execute("DELETE FROM node_marks WHERE node = ?", (mark.node,))
            return
        self.db.execute("INSERT OR REPLACE INTO node_marks VALUES (?, ?)", (mark.node, _json(mark)))

    def marks(self) -> list[Mark]:
        rows = self.db.execute("SELECT mark FROM node_marks ORDER BY node")
        return [msgspec.json.decode(row[0], type=Mark) for row in rows]

    def forget(self, oldest: float) -> None:
        """Drop what is older than ``oldest`` (Unix seconds)."""
        self.db.execute("DELETE FROM flags WHERE at < ?", (oldest,))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
