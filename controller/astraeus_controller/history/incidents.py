"""Incidents in the history database: which there were, and which jobs were part of them."""

from __future__ import annotations

import sqlite3

import msgspec
from astraeus_protocol.findings import Event, Finding, Incident, IncidentJob

LISTED_MAX = 1000
"""So many at most are listed, the newest."""


class StoredIncidents:
    """``db``: the store's connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def put(self, incident: Incident) -> None:
        """It opened, grew or closed."""
        self.db.execute(
            "INSERT INTO incidents (id, key, cause, subject, opened_at, closed_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET cause = excluded.cause, subject = excluded.subject, "
            "closed_at = excluded.closed_at",
            (incident.id, incident.key, incident.cause, incident.subject, incident.opened_at, incident.closed_at))
        self.db.executemany(
            "INSERT INTO incident_jobs (incident, job, run, at, by) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (incident, job) DO UPDATE SET by = excluded.by",
            [(incident.id, one.job, one.run, one.at, one.by) for one in incident.jobs])

    def tell_again(self, event: Event) -> None:
        """The newest event of this run and kind says something else now; its time stays."""
        self.db.execute(
            "UPDATE events SET event = ? WHERE id = (SELECT MAX(id) FROM events WHERE run = ? "
            "AND json_extract(event, '$.kind') = ?)", (msgspec.json.encode(event).decode(), event.run, event.kind))

    def stalled_since(self, at: float) -> list[tuple[Finding, float]]:
        """(finding, Unix time at which it opened) of those that were opened since then, open or closed."""
        rows = self.db.execute("SELECT finding, opened_at FROM findings WHERE kind = 'stalled' AND opened_at >= ? "
                               "ORDER BY id", (at,))
        return [(msgspec.json.decode(text, type=Finding), opened) for text, opened in rows]

    def last(self) -> int:
        """The highest id that was given. No id is given twice, also when old incidents were forgotten."""
        return int(self.db.execute("SELECT COALESCE(MAX(id), 0) FROM incidents").fetchone()[0])

    def since(self, at: float) -> list[Incident]:
        """Those that are open, or were closed since then."""
        return self._read("closed_at IS NULL OR closed_at >= ?", at)

    def all(self) -> list[Incident]:
        return self._read("1")

    def of(self, job: int) -> list[Incident]:
        """Those that the job was part of, oldest first."""
        return self._read("id IN (SELECT incident FROM incident_jobs WHERE job = ?)", job)

    def forget(self, oldest: float) -> None:
        """Drop those that were closed before then; never the last one, whose id is where the next one counts on."""
        self.db.execute("DELETE FROM incidents WHERE closed_at < ? AND id < (SELECT MAX(id) FROM incidents)", (oldest,))
        self.db.execute("DELETE FROM incident_jobs WHERE incident NOT IN (SELECT id FROM incidents)")

    def _read(self, where: str, *values: float) -> list[Incident]:
        rows = self.db.execute(
            f"SELECT id, key, cause, subject, opened_at, closed_at FROM incidents WHERE {where} "
            "ORDER BY id DESC LIMIT ?", (*values, LISTED_MAX)).fetchall()
        return [Incident(id=number, key=key, cause=cause, subject=subject, opened_at=opened, closed_at=closed,
                         jobs=self._jobs(number))
                for number, key, cause, subject, opened, closed in reversed(rows)]

    def _jobs(self, incident: int) -> tuple[IncidentJob, ...]:
        rows = self.db.execute("SELECT job, run, at, by FROM incident_jobs WHERE incident = ? ORDER BY at, rowid",
                               (incident,))
        return tuple(IncidentJob(job=job, run=run, at=at, by=by) for job, run, at, by in rows)
