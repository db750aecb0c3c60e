"""Jobs whose excluded nodes (ExcNodeList) we have added to: what their user had, kept until it is so again."""

from __future__ import annotations

import msgspec

from .history.store import Store


class Exclusion(msgspec.Struct, frozen=True):
    """One job's. Tuples hold the names of nodes, sorted where nothing else is said."""

    job: int
    run: str
    worker: str
    restarts: int
    """Restart count of the attempt that it was made for."""
    partition: str
    need: int
    """Nodes that the job needs."""
    own: str
    """What its user had, as the user wrote it; "" for none."""
    own_nodes: tuple[str, ...]
    """The same, name by name."""
    ours: tuple[tuple[str, ...], ...]
    """What may stand there as ours: written, or about to be."""
    nodes: tuple[str, ...]
    """Those added, the oldest first; none: what was added is being taken back."""


class Exclusions:
    """They live in the history database: a controller that dies in between still knows what to take back."""

    def __init__(self, store: Store) -> None:
        self.db = store.db

    def put(self, exclusion: Exclusion) -> None:
        self.db.execute("INSERT OR REPLACE INTO exclusions VALUES (?, ?)",
                        (exclusion.job, msgspec.json.encode(exclusion).decode()))

    def get(self, job: int) -> Exclusion | None:
        row = self.db.execute("SELECT exclusion FROM exclusions WHERE job = ?", (job,)).fetchone()
        return msgspec.json.decode(row[0], type=Exclusion) if row else None

    def drop(self, job: int) -> None:
        self.db.execute("DELETE FROM exclusions WHERE job = ?", (job,))

    def all(self) -> list[Exclusion]:
        rows = self.db.execute("SELECT exclusion FROM exclusions ORDER BY job").fetchall()
        return [msgspec.json.decode(row[0], type=Exclusion) for row in rows]
