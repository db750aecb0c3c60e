"""A history that can't be written for a while: memory follows it, nothing is done that was not stored, and all is
made up for once it can be written again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from astraeus_controller.history.store import Store
from service_kit import finding
from virtual_world import JOB, VirtualWorld

HOUR_S = 3600.0
KINDS = ["stalled", "restart_intended", "stopping", "requeued", "scheduled", "stalled_over", "restarted"]
WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "BEGIN")


class Flaky:
    """A connection whose statements fail where ``fails(sql)`` says so."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.fails: Callable[[str], bool] = lambda sql: False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if self.fails(sql):
            raise sqlite3.OperationalError("database or disk is full")
        return self.db.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)


def flaky() -> tuple[Store, Flaky]:
    store = Store(":memory:")
    store.db = Flaky(store.db)  # type: ignore[assignment]
    return store, store.db  # type: ignore[return-value]


def stored(world: VirtualWorld) -> list[str]:
    return [event.kind for event in world.store.events(job=JOB)]


def in_step(world: VirtualWorld) -> None:
    """Memory is what the store holds."""
    assert world.passes.memory == world.store.open_findings()
    assert world.kinds() == stored(world)


@pytest.mark.parametrize("words", [("COMMIT",), ("INSERT INTO findings",), WRITES])
async def test_nothing_is_said_or_done_while_it_can_not_be_stored(words: tuple[str, ...]) -> None:
    store, db = flaky()
    world = VirtualWorld(lambda restarts: 300 if restarts == 0 else 1e9, store)
    db.fails = lambda sql: sql.startswith(words)
    await world.until(lambda: world.now > 2000, HOUR_S)
    assert (world.passes.memory, world.restarts._candidates, world.kinds(), stored(world)) == ([], {}, [], [])
    assert [argv for argv in world.slurm.state["log"] if argv[0] != "squeue"] == []
    db.fails = lambda sql: False
    await world.until(lambda: "restarted" in world.kinds() and not world.passes.memory, 300)
    assert sorted(stored(world)) == sorted(KINDS)
    assert world.slurm.job(JOB)["requeued"] == 1
    in_step(world)


OWN_SIGNAL = {"step": "0", "stop_signal": "USR1", "stop_grace": "60"}


@pytest.mark.parametrize("how", [{}, OWN_SIGNAL], ids=["TERM", "USR1"])
@pytest.mark.parametrize("nth", range(1, 31))
async def test_any_write_that_fails_once_is_made_up_for(nth: int, how: dict[str, str]) -> None:
    """The nth write (a whole commit, or a single statement) fails, from the stall to the next attempt."""
    store, db = flaky()
    world = VirtualWorld(lambda restarts: 300 if restarts == 0 else 1e9, store, **how)
    seen = 0

    def fails(sql: str) -> bool:
        nonlocal seen
        if not sql.startswith("COMMIT" if db.in_transaction else WRITES):
            return False
        seen += not sql.startswith("BEGIN")
        return seen == nth and not sql.startswith("BEGIN")

    db.fails = fails
    await world.until(lambda: "restarted" in world.kinds() and not world.passes.memory, HOUR_S)
    told = stored(world)
    if "scheduled" not in told:  # its own write failed, and by the next try the attempt had begun
        told.append("scheduled")
    assert sorted(told) == sorted([*KINDS, "signalled"] if how else KINDS)
    assert (world.slurm.job(JOB)["requeued"], world.counts(), store.open_intents()) == (1, ["1/10"], [])
    assert world.slurm.job(JOB)["script"] == "CONT", "nothing is left frozen"
    assert seen >= nth or nth > 18, "what this test holds is no longer the whole way"
    in_step(world)


@pytest.mark.parametrize("stage", ["restart_intended", "stopping", "requeued"])
async def test_a_history_that_fails_for_a_while_at_a_stage(stage: str) -> None:
    store, db = flaky()
    world = VirtualWorld(lambda restarts: 300 if restarts == 0 else 1e9, store)
    await world.until(lambda: stage in world.kinds(), HOUR_S)
    db.fails = lambda sql: sql.startswith(WRITES)
    called, began = len(world.slurm.called("scontrol")), world.now
    await world.until(lambda: world.now - began > 600, HOUR_S)
    assert len(world.slurm.called("scontrol")) - called <= 1, "what was announced before"
    db.fails = lambda sql: False
    await world.until(lambda: "restarted" in world.kinds() and not world.passes.memory, HOUR_S)
    assert (world.slurm.job(JOB)["requeued"], sorted(stored(world))) == (1, sorted(KINDS))
    in_step(world)


async def test_a_closing_that_can_not_be_stored_is_made_up_for() -> None:
    store, db = flaky()
    world = VirtualWorld(lambda restarts: 300, store, "[restart]\nmax_restarts_total = 0\n")
    await world.until(lambda: "restart_declined" in world.kinds(), HOUR_S)
    world.progress_s = lambda restarts: 1e9
    db.fails = lambda sql: sql.startswith("COMMIT")
    began = world.now
    await world.until(lambda: world.now - began > 120, HOUR_S)
    assert len(world.passes.memory) == 1
    in_step(world)
    db.fails = lambda sql: False
    await world.until(lambda: "progress" in world.kinds(), 60)
    in_step(world)
    assert world.passes.memory == []


def test_a_commit_that_failed_leaves_nothing_open() -> None:
    """A COMMIT that a lock holds up leaves the transaction open: what came after it was never committed at all."""
    store, db = flaky()
    done: list[str] = []
    db.fails = lambda sql: sql == "COMMIT"

    def write(word: str) -> None:
        with store.together():
            store.put_finding(finding())
            store.after(lambda: done.append(word))
            assert done == []

    with pytest.raises(sqlite3.OperationalError):
        write("first")
    assert (store.open_findings(), db.in_transaction, done) == ([], False, [])
    db.fails = lambda sql: False
    write("second")
    assert (len(store.open_findings()), done) == (1, ["second"])


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The real thing: SQLite ends the transaction by itself."""
    store = Store(tmp_path / "history.db")
    (pages,) = store.db.execute("PRAGMA page_count").fetchone()
    store.db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        with store.together():
            for number in range(1000):
                store.put_finding(finding(key=f"k{number}"))

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    assert store.open_findings() == []
    store.db.execute("PRAGMA max_page_count = 100000")
    with store.together():
        store.put_finding(finding())
    assert len(Store(tmp_path / "history.db").open_findings()) == 1
