"""A history database whose file was torn: the controller starts all the same, and the file is kept."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from astraeus_controller.history.store import Store
from astraeus_protocol.findings import Event

AT = 1_700_000_000.0
ASIDE = "history.db.damaged-20231114T221320Z"


def filled(path: Path, events: int = 400) -> None:
    """A history of so many events, all of them in the file itself."""
    store = Store(path, wall=lambda: AT)
    for number in range(events):
        store.add_event(Event(at=AT, run="7", job=7, worker="7-5", state="Running", kind="stalled",
                              message=f"event {number} " + "x" * 100))
    store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()


def tear(path: Path, at: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(os.urandom(count))


@pytest.mark.parametrize(("at", "count"), [(0, 64), (8192, 4096), (12288, 16384)])
def test_a_torn_file_is_kept_aside_and_history_begins_anew(tmp_path: Path, at: int, count: int,
                                                           caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    filled(path)
    tear(path, at, count)
    torn = path.read_bytes()
    with caplog.at_level(logging.ERROR):
        store = Store(path, wall=lambda: AT)
    assert store.events(run="7") == []
    store.add_event(Event(at=AT, run="7", job=7, worker="7", state="Running", kind="stalled", message="again"))
    assert [event.message for event in store.events(run="7")] == ["again"]
    assert (tmp_path / ASIDE).read_bytes() == torn
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"the history database {path} is damaged (")
    assert said.endswith(f"): it is kept as {tmp_path / ASIDE}, and history begins anew")


def test_an_empty_file_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "history.db").touch()
    Store(tmp_path / "history.db").close()
    assert [path.name for path in tmp_path.iterdir() if "damaged" in path.name] == []
    assert not caplog.records


def test_a_torn_end_of_the_journal_loses_the_last_commits_only(tmp_path: Path,
                                                              caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    store = Store(path, wall=lambda: AT)
    store.db.execute("PRAGMA wal_autocheckpoint=0")
    for number in range(20):
        store.add_event(Event(at=AT, run="7", job=7, worker="7", state="Running", kind="stalled",
                              message=f"event {number}"))
    copy = tmp_path / "killed"
    copy.mkdir()
    for end in ("", "-wal"):  # as a kill leaves them
        (copy / f"history.db{end}").write_bytes((tmp_path / f"history.db{end}").read_bytes())
    journal = copy / "history.db-wal"
    os.truncate(journal, journal.stat().st_size - 5000)
    kept = [event.message for event in Store(copy / "history.db", wall=lambda: AT).events(run="7")]
    assert kept == [f"event {number}" for number in range(len(kept))]
    assert 15 <= len(kept) < 20
    assert not caplog.records
