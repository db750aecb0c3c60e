"""The database under the history: opened, brought to its newest shape, written in commits that are whole or nothing."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .migrations import MIGRATIONS

log = logging.getLogger(__name__)
LOCKED_S = 1.0
"""How long a write waits for somebody else's lock: the whole controller waits with it."""
CHECK_S = 2.0
"""So long a start looks for damage in the file: a database of 10 million events is never read whole for that."""


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
            try:
                self._open(path)
            except sqlite3.DatabaseError as fault:
                if isinstance(fault, sqlite3.OperationalError):  # locked, no room, no right: the file may be whole
                    raise
                aside = self._set_aside(Path(path))
                log.error("the history database %s is damaged (%s): it is kept as %s, and history begins anew", path,
                          fault, aside)
                self._open(path)
        except (OSError, sqlite3.Error) as fault:
            raise StoreFault(f"can't use the history database {path}: {fault}") from None

    def _open(self, path: str | Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self._look_for_damage()
        self._migrate()

    def _look_for_damage(self) -> None:
        """Raises sqlite3.DatabaseError where a page is torn; what takes longer than CHECK_S is left unread."""
        end = time.monotonic() + CHECK_S
        self.db.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        try:
            found = [row[0] for row in self.db.execute("PRAGMA quick_check(1)")]
        except sqlite3.OperationalError:
            return
        finally:
            self.db.set_progress_handler(None, 0)
        if found != ["ok"]:
            raise sqlite3.DatabaseError(str(found[0]).replace("\n", " "))

    def _set_aside(self, path: Path) -> Path:
        """A controller that does not start watches nothing: the damaged file makes room, for who wants to mend it."""
        self.db.close()
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self.wall()))}")
        for end in ("", "-wal", "-shm"):
            part = path.with_name(path.name + end)
            if part.exists():
                part.rename(aside.with_name(aside.name + end))
        return aside

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
