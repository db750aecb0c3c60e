"""History in SQLite (WAL): findings, events, restarts begun, pieces written. One writer: this process.

Every commit reaches the disk (synchronous=FULL): there are few, and a restart's stage has to be there before
the step that it announces. The database's user_version is the last migration applied (migrations).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from astraeus_protocol.findings import Event, Finding

from .database import Database
from .evidence import StoredEvidence
from .flags import StoredFlags
from .incidents import StoredIncidents
from .stacks import StoredStacks

KEPT_S = 90 * 86400
"""How long history is kept."""


class Intent(msgspec.Struct, kw_only=True):
    """A restart that was begun.

    ``stage``: decided, annotated, [freezing,] stopping, [signalling, waiting,] requeuing, [reviving,] requeued,
    scheduled, [guarding,] done. Freezing where the batch script can be (``way``), signalling and waiting where the
    stop is a signal of our own; reviving only where the job ended before the requeue reached it; guarding where
    somebody else requeued it while our STOP was on its way.
    """

    finding_key: str
    job: int
    target: int
    """Whom ``scontrol requeue`` names: the job, or a heterogeneous job's leader."""
    others: tuple[int, ...] = ()
    """A heterogeneous job's other components: stopped, requeued and told with it."""
    run: str
    worker: str
    restarts: int
    """Slurm's restart count of the attempt that is stopped."""
    start_time: str
    nodelist: str
    number: int
    """This is restart ``number`` of ``budget``."""
    budget: int
    since: float
    finding: Finding
    backoff_s: float
    stop_lines: dict[str, str] = {}
    progressed_s: float | None = None
    cause_by_reply: bool = False
    """The Comment is another tool's or could not be written: the first reply carries the cause."""
    commands: int = 0
    """How often ``requeue`` was sent: more than once only when Slurm's state showed that it did not happen."""
    partition: str = ""
    signal: str = "TERM"
    grace_s: float = 0
    way: str = ""
    """Who sends the signal: "" or ``hold`` Slurm itself, with the requeue (TERM, KillWait); ``steps`` or ``full`` we
    do, to the job's steps or to the batch step as well. The batch script is frozen meanwhile, but for ""."""
    told: bool = False
    """The stop file was written on every node that answered in time."""
    frozen: bool = False
    """The batch script was, or was about to be, frozen: the job's state STOPPED is ours."""
    signals: int = 0
    """How often our own signal was sent, or was about to be."""
    stray: bool = False
    """A signal of ours may not have reached a node: Slurm may deliver it to the next attempt."""
    heard: bool = False
    """Every node was heard for as long as Slurm tries to deliver a signal."""
    hit_at: float | None = None
    """Unix time right after the look that saw the job alive, right before the stop file, then of a signal or requeue
    that Slurm took."""
    revivals: int = 0
    """How often the plain requeue of a job that had ended on our signal was sent, or was about to be: more than once
    only when Slurm's state showed that it did not happen."""
    avoid: bool = False
    """The guilty rank's node is to be avoided."""
    avoid_note: str = ""
    """What the comments say of it: ``avoiding c3``."""
    nodes: int = 0
    """How many the attempt ran on."""
    id: int = 0
    stage: str = "decided"
    begun_at: float = 0
    stopped_at: float | None = None
    outcome: str = ""

    @property
    def jobs(self) -> tuple[int, ...]:
        """The job and the other components."""
        return self.job, *self.others


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _intent(number: int, text: str) -> Intent:
    intent = msgspec.json.decode(text, type=Intent)
    intent.id = number
    return intent


class Store(Database):
    """What is asked of history, and written into it. A write that fails raises sqlite3.Error (see Database)."""

    def __init__(self, path: str | Path, wall: Callable[[], float] = time.time, boot: str = "") -> None:
        super().__init__(path, wall, boot)
        self.incidents, self.stacks = StoredIncidents(self.db), StoredStacks(self.db)
        self.evidence, self.flags = StoredEvidence(self.db), StoredFlags(self.db)

    def forget(self) -> None:
        """Drop what is older than KEPT_S and over."""
        oldest = self.wall() - KEPT_S
        with self.together():
            self.db.execute("DELETE FROM events WHERE at < ?", (oldest,))
            self.db.execute("DELETE FROM findings WHERE closed_at < ?", (oldest,))
            self.db.execute("DELETE FROM intents WHERE done_at < ?", (oldest,))
            self.db.execute("DELETE FROM pieces WHERE at < ?", (oldest,))
            self.db.execute("DELETE FROM owners WHERE at < ?", (oldest,))
            self.db.execute("DELETE FROM attempts WHERE at < ?", (oldest,))
            for part in (self.incidents, self.stacks, self.evidence, self.flags):
                part.forget(oldest)

    # Findings

    def open_findings(self) -> list[Finding]:
        rows = self.db.execute("SELECT finding FROM findings WHERE closed_at IS NULL ORDER BY id")
        return [msgspec.json.decode(row[0], type=Finding) for row in rows]

    def keys(self, job: int) -> list[str]:
        """Keys of all findings of the job that history holds, open or closed: none is used twice."""
        return [row[0] for row in self.db.execute("SELECT DISTINCT key FROM findings WHERE job = ?", (job,))]

    def put_finding(self, finding: Finding, clock: float | None = None) -> None:
        """A finding that opened or changed. ``clock``: Unix time minus CLOCK_BOOTTIME when it opened."""
        self.db.execute(
            "INSERT INTO findings (key, job, kind, opened_at, finding, clock, boot) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (key) WHERE closed_at IS NULL DO UPDATE SET finding = excluded.finding",
            (finding.key, finding.job, finding.kind, self.wall(), _json(finding), clock, self.boot))

    def clocks(self) -> dict[str, float]:
        """``clock`` of each open finding, those from before this machine's boot left out: they tell nothing."""
        return dict(self.db.execute("SELECT key, clock FROM findings WHERE closed_at IS NULL AND boot = ? "
                                    "AND clock IS NOT NULL", (self.boot,)).fetchall())

    def close_finding(self, key: str, why: str) -> None:
        self.db.execute("UPDATE findings SET closed_at = ?, why = ? WHERE key = ? AND closed_at IS NULL",
                        (self.wall(), why, key))

    def finding_id(self, key: str) -> int | None:
        """Row of the open finding with this key."""
        row = self.db.execute("SELECT id FROM findings WHERE key = ? AND closed_at IS NULL", (key,)).fetchone()
        return row[0] if row else None

    def closed_why(self, key: str) -> str:
        """Why the last finding with this key was closed; "" where it is open."""
        row = self.db.execute("SELECT why FROM findings WHERE key = ? ORDER BY id DESC", (key,)).fetchone()
        return row[0] if row else ""

    # Events

    def add_event(self, event: Event) -> None:
        self.db.execute("INSERT INTO events (at, job, run, event) VALUES (?, ?, ?, ?)",
                        (event.at, event.job, event.run, _json(event)))

    def events(self, *, job: int | None = None, run: str = "", limit: int = 1000) -> list[Event]:
        """The newest events of a job, by id or by its name as Slurm shows it; oldest first."""
        where, value = ("job", job) if job is not None else ("run", run)
        rows = self.db.execute(f"SELECT event FROM events WHERE {where} = ? ORDER BY id DESC LIMIT ?",
                               (value, limit)).fetchall()
        return [msgspec.json.decode(row[0], type=Event) for row in reversed(rows)]

    def put_owner(self, job: int, run: str, uid: int) -> None:
        """Whose job it is. An id that Slurm gave anew, to another user, starts without a past: what was kept
        under it stays under its negative."""
        if self.owner(job) not in (None, uid):
            self.db.execute("UPDATE events SET job = -job WHERE job = ?", (job,))
            self.db.execute("UPDATE intents SET job = -job WHERE job = ? AND done_at IS NOT NULL", (job,))
            self.db.execute("DELETE FROM pieces WHERE job = ?", (job,))
            self.db.execute("DELETE FROM exclusions WHERE job = ?", (job,))
            self.db.execute("DELETE FROM attempts WHERE job = ?", (job,))
            self.db.execute("UPDATE stacks SET job = -job WHERE job = ?", (job,))
            self.db.execute("UPDATE flags SET job = -job WHERE job = ?", (job,))
            self.db.execute("UPDATE OR IGNORE incident_jobs SET job = -job WHERE job = ?", (job,))
        self.db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?)", (job, run, uid, self.wall()))

    def owner(self, job: int) -> int | None:
        """uid whose job it was; None when history holds nothing of it."""
        row = self.db.execute("SELECT uid FROM owners WHERE job = ?", (job,)).fetchone()
        return row[0] if row else None

    def job_of(self, run: str) -> int | None:
        """The newest job that was called so: 123_4."""
        row = self.db.execute("SELECT job FROM owners WHERE run = ? ORDER BY at DESC", (run,)).fetchone()
        return row[0] if row else None

    # Restarts

    def begin(self, intent: Intent, finding: int) -> bool:
        """Write the intent before anything is done; False when this finding has had its restart."""
        intent.begun_at = self.wall()
        row = self.db.execute(
            "INSERT INTO intents (finding, job, restarts, stage, begun_at, stopped_at, intent) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (finding) DO NOTHING RETURNING id",
            (finding, intent.job, intent.restarts, intent.stage, intent.begun_at, intent.stopped_at,
             _json(intent))).fetchone()
        if row is None:
            return False
        intent.id = row[0]
        return True

    def withdraw(self, intent: Intent) -> None:
        """A restart of which nothing has happened yet is not to be: the finding may have one later."""
        self.db.execute("DELETE FROM intents WHERE id = ? AND stage IN ('decided', 'annotated')", (intent.id,))

    def reach(self, intent: Intent, stage: str) -> None:
        """Write the stage that is about to begin. Where that fails ``intent`` is ahead of the store, and its
        holder reads it anew (``intent()``) before anything else."""
        intent.stage = stage
        done = self.wall() if stage == "done" else None
        self.db.execute(
            "UPDATE intents SET stage = ?, stopped_at = ?, done_at = ?, outcome = ?, intent = ? WHERE id = ?",
            (stage, intent.stopped_at, done, intent.outcome, _json(intent), intent.id))

    def open_intents(self) -> list[Intent]:
        rows = self.db.execute("SELECT id, intent FROM intents WHERE done_at IS NULL ORDER BY id").fetchall()
        return [_intent(*row) for row in rows]

    def intent(self, number: int) -> Intent:
        """The intent as it was last stored."""
        return _intent(*self.db.execute("SELECT id, intent FROM intents WHERE id = ?", (number,)).fetchone())

    def had_restart(self, finding: int) -> bool:
        return self.db.execute("SELECT 1 FROM intents WHERE finding = ?", (finding,)).fetchone() is not None

    def restarts_of(self, job: int, *others: int) -> list[Intent]:
        """Restarts of the job (``others``: or of its other components) that Slurm carried out, oldest first."""
        marks = ",".join("?" * (1 + len(others)))
        rows = self.db.execute(f"SELECT intent FROM intents WHERE job IN ({marks}) AND outcome IN ('restarted', '') "
                               "AND stage IN ('requeued', 'scheduled', 'done') ORDER BY id", (job, *others))
        return [msgspec.json.decode(row[0], type=Intent) for row in rows]

    def gave_back(self, job: int, restarts: int) -> None:
        """This attempt progressed for long enough to give the budget back."""
        self.db.execute("INSERT OR IGNORE INTO attempts VALUES (?, ?, ?)", (job, restarts, self.wall()))

    def last_that_gave_back(self, job: int) -> int | None:
        """Restart count of the last attempt that did."""
        return self.db.execute("SELECT MAX(restarts) FROM attempts WHERE job = ?", (job,)).fetchone()[0]

    def stops_between(self, first: float, last: float) -> tuple[int, float | None]:
        """(how many stops, Unix time of the last one). What lies after ``last`` was written before the time of
        day was set back: it would hold back every restart until then."""
        count, last = self.db.execute(
            "SELECT COUNT(*), MAX(stopped_at) FROM intents WHERE stopped_at BETWEEN ? AND ?",
            (first, last)).fetchone()
        return count, last

    # Pieces

    def pieces(self, job: int, field: str) -> tuple[str, str]:
        """(written, intended): what may stand in the field as ours."""
        row = self.db.execute("SELECT written, intended FROM pieces WHERE job = ? AND field = ?",
                              (job, field)).fetchone()
        return (row[0], row[1]) if row else ("", "")

    def put_piece(self, job: int, field: str, *, written: str, intended: str) -> None:
        self.db.execute("INSERT INTO pieces (job, field, written, intended, at) VALUES (?, ?, ?, ?, ?) "
                        "ON CONFLICT DO UPDATE SET written = excluded.written, intended = excluded.intended, "
                        "at = excluded.at", (job, field, written, intended, self.wall()))

    def skip_once(self, job: int, field: str, why: str) -> bool:
        """Remember that the field is left alone; True the first time for this reason."""
        row = self.db.execute("SELECT skipped FROM pieces WHERE job = ? AND field = ?", (job, field)).fetchone()
        if row and row[0] == why:
            return False
        self.db.execute("INSERT INTO pieces (job, field, skipped, at) VALUES (?, ?, ?, ?) "
                        "ON CONFLICT DO UPDATE SET skipped = excluded.skipped", (job, field, why, self.wall()))
        return True

    def has_pieces(self, job: int) -> bool:
        """Whether anything of ours stands, or may stand, in the job's comments."""
        return self.db.execute("SELECT 1 FROM pieces WHERE job = ? AND written || intended != ''",
                               (job,)).fetchone() is not None

    def put_wanted(self, job: int, comment: str, admin_comment: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO wanted VALUES (?, ?, ?, ?)",
                        (job, comment, admin_comment, self.wall()))

    def drop_wanted(self, job: int) -> None:
        self.db.execute("DELETE FROM wanted WHERE job = ?", (job,))

    def all_wanted(self) -> list[tuple[int, str, str]]:
        return self.db.execute("SELECT job, comment, admin_comment FROM wanted ORDER BY at").fetchall()
