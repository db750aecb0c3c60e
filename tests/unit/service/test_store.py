"""History: migrations, keys, stages, budgets; two controllers; a newer database."""

import sqlite3
from pathlib import Path

import msgspec
import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.way import Stop
from astraeus_controller.history import evidence as store_evidence
from astraeus_controller.history.database import StoreFault
from astraeus_controller.history.migrations import HISTORY, MIGRATIONS
from astraeus_controller.history.stacks import Reading
from astraeus_controller.history.store import KEPT_S, Intent, Store
from astraeus_controller.running import only_one
from astraeus_controller.service import ServiceFault
from astraeus_controller.slurm.types import JobFacts
from astraeus_protocol.findings import Event, Incident, IncidentJob
from msgspec import structs
from service_kit import finding
from unit.judge import views


def intent(job: int = 123, progressed: float | None = 700) -> Intent:
    facts = JobFacts(job=job, state="RUNNING", start_time="x")
    return evidence.new_intent(finding(job=job, key=f"k{job}"), facts, number=1, budget=10, backoff_s=10,
                               progressed_s=progressed, stop=Stop("TERM", 8), now=1000.0)


def begun(store: Store, job: int = 123, progressed: float | None = 700, key: str = "k") -> Intent:
    store.put_finding(finding(key=key, job=job))
    row = store.finding_id(key)
    made = intent(job, progressed)
    assert row is not None
    assert store.begin(made, row)
    return made


def test_findings_open_once_and_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "history.db")
    one = finding()
    store.put_finding(one)
    store.put_finding(finding(said="known better"))
    assert [f.said for f in Store(tmp_path / "a" / "history.db").open_findings()] == ["known better"]
    first = store.finding_id(one.key)
    store.close_finding(one.key, "progress")
    assert (store.open_findings(), store.finding_id(one.key), store.keys(one.job)) == ([], None, [one.key])
    store.put_finding(one)
    assert store.finding_id(one.key) != first


def test_one_restart_per_finding() -> None:
    store = Store(":memory:")
    begun(store)
    row = store.finding_id("k")
    assert row is not None
    assert store.had_restart(row)
    assert not store.begin(intent(), row)


def test_stages_outlive_the_process(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.db")
    made = begun(store)
    made.commands = 1
    store.reach(made, "requeuing")
    (again,) = Store(tmp_path / "history.db").open_intents()
    assert (again.id, again.stage, again.commands, again.finding.key) == (made.id, "requeuing", 1, "k123")
    made.outcome = "restarted"
    store.reach(made, "done")
    assert store.open_intents() == []


def test_budget_comes_back_after_an_attempt_that_progressed() -> None:
    history = []
    for restarts, progressed in enumerate((5.0, 5.0, 700.0, 5.0, None)):
        history.append(intent(progressed=progressed))
        history[-1].restarts = restarts
    assert [evidence.spent(history[:n], 5) for n in range(6)] == [0, 1, 2, 1, 2, 3]
    assert evidence.spent(history, 600) == 0
    assert [evidence.spent(history, 5, gave_back) for gave_back in (0, 1, 3, 4, 5)] == [3, 3, 2, 1, 0]


def test_attempts_that_gave_the_budget_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.db")
    assert store.last_that_gave_back(123) is None
    for restarts in (2, 7, 7, 4):
        store.gave_back(123, restarts)
    assert Store(tmp_path / "history.db").last_that_gave_back(123) == 7
    store.put_owner(123, "123", 1001)
    store.put_owner(123, "123", 1002)
    assert store.last_that_gave_back(123) is None, "the id was given anew, to somebody else"


def test_clocks_of_findings_hold_for_this_boot_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.db", boot="one")
    store.put_finding(finding(), 1000.5)
    store.put_finding(finding(said="known better"), 2000.0)
    store.put_finding(finding(key="suspect"))
    assert Store(tmp_path / "history.db", boot="one").clocks() == {finding().key: 1000.5}
    assert Store(tmp_path / "history.db", boot="two").clocks() == {}


def test_a_history_of_the_first_shape_is_brought_on(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "history.db")
    old.executescript(f"{MIGRATIONS[0]}; PRAGMA user_version=1")
    old.execute("INSERT INTO findings (key, job, kind, opened_at, finding) VALUES ('k', 1, 'stalled', 0, ?)",
                (msgspec.json.encode(finding()).decode(),))
    old.commit()
    old.close()
    store = Store(tmp_path / "history.db", boot="one")
    assert (store.open_findings(), store.clocks()) == ([finding()], {})
    plan = store.db.execute("EXPLAIN QUERY PLAN DELETE FROM events WHERE at < 5").fetchall()
    assert "events_at" in plan[0][3]


def test_only_what_slurm_carried_out_counts() -> None:
    store = Store(":memory:")
    for number, (stage, outcome) in enumerate([("done", "restarted"), ("done", "healed"), ("done", "refused"),
                                               ("scheduled", ""), ("requeuing", "")]):
        made = begun(store, key=f"k{number}")
        made.outcome = outcome
        store.reach(made, stage)
    assert len(store.restarts_of(123)) == 2
    assert store.stops_between(900, 1000) == (5, 1000.0)
    assert store.stops_between(1001, 2000) == (0, None)
    assert store.stops_between(0, 999) == (0, None), "the time of day was set back since"


def test_together_is_one_commit() -> None:
    store = Store(":memory:")

    def broken() -> None:
        with store.together():
            store.add_event(Event(at=1, run="123", job=123, worker="", state="", kind="x", message="m"))
            raise RuntimeError
    with pytest.raises(RuntimeError):
        broken()
    assert store.events(job=123) == []


def test_old_history_goes() -> None:
    now = [KEPT_S * 2.0]
    store = Store(":memory:", lambda: now[0])
    store.add_event(Event(at=1, run="1", job=1, worker="", state="", kind="x", message="old"))
    store.add_event(Event(at=now[0], run="1", job=1, worker="", state="", kind="x", message="new"))
    store.put_finding(finding())
    now[0] *= 2
    store.forget()
    assert [e.message for e in store.events(job=1)] == []
    assert store.open_findings() == [finding()]


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreFault, match="newer release"):
        Store(path)
    with pytest.raises(StoreFault, match="can't use the history database"):
        Store("/proc/nowhere/history.db")


def test_one_controller_at_a_time(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(ServiceFault, match="another controller runs"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


def test_every_field_of_an_intent_is_kept() -> None:
    made = intent()
    assert msgspec.json.decode(msgspec.json.encode(made), type=Intent) == made


def test_an_id_given_anew_starts_without_a_past() -> None:
    store = Store(":memory:")
    store.put_owner(123, "123", 1001)
    store.add_event(Event(at=1, run="123", job=123, worker="123-0", state="Running", kind="stalled", message="old"))
    store.put_piece(123, "comment", written="[astraeus: x]", intended="")
    store.put_owner(123, "123", 1001)
    store.incidents.put(Incident(id=1, key="k", cause="nodes", subject="c1", opened_at=1, closed_at=2,
                                 jobs=(IncidentJob(job=123, run="123", at=1, by="nodes"),)))
    assert (len(store.events(job=123)), len(store.incidents.of(123))) == (1, 1)
    store.put_owner(123, "123", 1002)
    assert store.incidents.of(123) == []
    assert (store.events(job=123), len(store.events(job=-123)), store.has_pieces(123)) == ([], 1, False)


def test_incidents_outlive_the_process(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.db", lambda: 1000.0)
    first = Incident(id=1, key="lab/incident/1", cause="breaker", subject="many jobs", opened_at=100, jobs=(
        IncidentJob(job=7, run="7", at=100, by="breaker"), IncidentJob(job=5, run="4_1", at=100, by="breaker")))
    store.incidents.put(first)
    grown = msgspec.structs.replace(first, cause="storage", subject="store1:/export", jobs=(
        msgspec.structs.replace(first.jobs[0], by="storage"), first.jobs[1],
        IncidentJob(job=9, run="9", at=120, by="storage")))
    store.incidents.put(grown)
    store.close()
    store = Store(tmp_path / "history.db", lambda: 1000.0)
    assert (store.incidents.since(900), store.incidents.last()) == ([grown], 1)
    closed = msgspec.structs.replace(grown, closed_at=500)
    store.incidents.put(closed)
    assert (store.incidents.since(501), store.incidents.since(500), store.incidents.all()) == ([], [closed], [closed])
    assert (store.incidents.of(9), store.incidents.of(8)) == ([closed], [])


def test_old_incidents_go_but_no_id_is_given_twice() -> None:
    now = [1000.0]
    store = Store(":memory:", lambda: now[0])
    for number in (1, 2):
        store.incidents.put(Incident(id=number, key=f"k{number}", cause="nodes", subject="c1", opened_at=1, closed_at=2,
                                     jobs=(IncidentJob(job=number, run="1", at=1, by="nodes"),)))
    now[0] = KEPT_S * 2.0
    store.forget()
    assert ([one.id for one in store.incidents.all()], store.incidents.last(), store.incidents.of(1)) == ([2], 2, [])


def test_a_database_of_the_first_release_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    old = sqlite3.connect(path)
    old.executescript(f"BEGIN;{HISTORY}PRAGMA user_version=1;COMMIT;")
    old.close()
    assert Store(path).incidents.all() == []


def test_withdrawn_before_anything_happened() -> None:
    store = Store(":memory:", lambda: 1000.0)
    made = begun(store)
    store.withdraw(made)
    row = store.finding_id("k") or 0
    assert (store.open_intents(), store.had_restart(row), store.stops_between(0, 2000)) == ([], False, (0, None))
    assert store.begin(intent(), row)
    store.reach(again := store.open_intents()[0], "stopping")
    store.withdraw(again)
    assert len(store.open_intents()) == 1


def kept(store: Store, number: int, *, job: int = 123, ranks: int = 8, at: float = 1000.0) -> int | None:
    one = finding(key=f"k{job}/{number}", job=job)
    store.put_finding(one)
    workers = [views.odd(rank, "T") if rank == 200 else views.worker(rank) for rank in range(ranks)]
    shown = views.picture(*workers, job=job)
    [step] = shown.job.steps
    return store.evidence.put(one, 1001, structs.replace(shown, now=at, job=structs.replace(
        shown.job, steps=(step, structs.replace(step, step="1")))))


def test_evidence_is_bounded() -> None:
    now = [1000.0]
    store = Store(":memory:", wall=lambda: now[0])
    number = kept(store, 0, ranks=300)
    assert number is not None
    found = store.evidence.get(number)
    assert found is not None
    assert (found.uid, found.finding.key, found.at, len(found.job["steps"])) == (1001, "k123/0", 1000.0, 1)
    ranks = [worker["rank"] for worker in found.job["steps"][0]["workers"]]
    assert (len(ranks), ranks[:3], ranks[-1]) == (store_evidence.RANKS, [0, 1, 2], 200), "who is odd is among them"
    for n in range(1, store_evidence.PER_JOB + 1):
        kept(store, n)
    assert store.evidence.get(number) is None, "a job keeps the newest"
    other = kept(store, 0, job=124)
    assert other is not None
    assert len(store.evidence.ids()) == store_evidence.PER_JOB + 2
    now[0] += KEPT_S + 1
    store.forget()
    assert store.evidence.get(other) is None


def test_evidence_shows_the_stacks_of_its_own_time() -> None:
    store = Store(":memory:", wall=lambda: 1000.0)
    number = kept(store, 0)
    assert number is not None
    found = store.evidence.get(number)
    assert found is not None
    assert store.evidence.stacks(found) is None
    for ask, at, restarts, step in (("early", 700.0, 0, ""), ("now", 950.0, 0, "0"), ("other", 960.0, 0, "1"),
                                    ("next", 970.0, 1, "")):
        store.stacks.put(Reading(ask, 123, "123", restarts, step, False, "", at, []))
    stacks = store.evidence.stacks(found)
    assert stacks is not None
    assert stacks.ask == "now"
