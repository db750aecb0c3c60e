"""The database under the history: opened, brought to its newest shape, written in commits that are whole or nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .migrations import MIGRATIONS

LOCKED_S = 1.0
"""How long a write waits for somebody else's lock: the whole controller waits with it."""


class StoreFault(Exception):
    """The database can't be used; the text is one sentence."""


class Database:
    """``path``: its file, or ``:memory:``. ``wall``: Unix seconds. ``boot``: this machine's boot id.

    A write that fails (the disk is full, an I/O error, somebody's lock) raises sqlite3.Error and leaves nothing
    behind. What is kept in memory follows what is stored: by ``after``, and by reading it anew. Once findings that
    a full disk had kept out of history stayed open in memory, and none of them was ever restarted.
    """

    def __init__(self, path: str | Path, wall: Callable[[], float] = time.time, boot: str = "") -> None:
        self.wall, self.boot = wall, boot
        self._after: list[Callable[[], None]] = []
        try:
            if str(path) != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            self.db = sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            self._migrate()
        except (OSError, sqlite3.Error) as fault:
            raise StoreFault(f"can't use the history database {path}: {fault}") from None

    def _migrate(self) -> None:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreFault(f"the history database is of a newer release (version {version}, this one knows "
                             f"{len(MIGRATIONS)}); install that release again, or move the database away")
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            self.db.executescript(f"BEGIN;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything inside is one commit; where that fails nothing of it was, ``after`` included."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            self._after.clear()
            if self.db.in_transaction:  # a full disk ends it by itself; a COMMIT that a lock held up leaves it open
                self.db.execute("ROLLBACK")
            raise
        after, self._after = self._after, []
        for do in after:
            do()

    def after(self, do: Callable[[], None]) -> None:
        """Do it once what is being written is committed, at once where nothing is; never where that fails."""
        if self.db.in_transaction:
            self._after.append(do)
        else:
            do()

    def close(self) -> None:
        self.db.close()
