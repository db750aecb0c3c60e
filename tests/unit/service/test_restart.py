"""A restart over a fake Slurm: its order, every point at which the controller may die, and its users' will."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.annotate import Annotations
from astraeus_controller.actions.avoid import Avoidance
from astraeus_controller.actions.outside import Clocks
from astraeus_controller.actions.restart import Restart
from astraeus_controller.actions.way import Stop
from astraeus_controller.actions.writer import Pace, Writer
from astraeus_controller.history.store import Store
from astraeus_controller.slurm.command import Away
from astraeus_controller.slurm.jobs import Jobs
from fake_slurm import FakeSlurm, job
from service_kit import FakeCommands, VirtualTime, finding

CAUSE = "[astraeus: stalled since 14:02 UTC, rank 5 on c3, restarting 1/10, cause=stalled]"
CLOSING = "[astraeus: stalled 14:02-14:14, rank 5 on c3, restarted 1/10]"


class Died(BaseException):
    """The controller is killed here."""


class Mortal(FakeCommands):
    """Dies before or after its nth command."""

    def __init__(self, slurm: FakeSlurm, at: int = 0, *, after: bool = False) -> None:
        super().__init__(slurm)
        self.left, self.after = at, after

    async def run(self, *args: str, timeout_s: float | None = None) -> str:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Died
        text = await super().run(*args)
        if self.left == 0:
            raise Died
        return text


class MortalStore(Store):
    """Dies before or after its nth stage."""

    at, late = 0, False

    def reach(self, intent: Any, stage: str) -> None:
        self.at -= 1
        if self.at == 0 and not self.late:
            raise Died
        super().reach(intent, stage)
        if self.at == 0:
            raise Died


class Stops:
    """Monitors that answer at once, or never."""

    def __init__(self, slurm: FakeSlurm, *, answer: bool = True) -> None:
        self.slurm, self.answer = slurm, answer
        self.heard = True
        self.asked: list[dict[str, str]] = []
        self.ended = 0
        self.quiet = 0.0

    def begin(self, number: int, restarts: int, lines: dict[str, str]) -> None:
        assert (number, restarts) == (123, self.slurm.job(123)["restarts"])
        self.asked.append(lines)

    def end(self, number: int) -> None:
        self.ended += 1

    def known(self, number: int) -> bool:
        return self.heard

    def acknowledged(self, number: int) -> bool:
        return self.answer

    def quiet_s(self, number: int) -> float:
        return self.quiet

    def attempt_reported(self, number: int, restarts: int) -> bool:
        return bool(self.slurm.job(number)["state"] == "RUNNING")


class Bench:
    """One controller's life after another over one history and one Slurm."""

    def __init__(self, folder: Path, stop: Stop | None = None, *, avoid: bool = False, **values: Any) -> None:
        self.stop, self.begin_min_s = stop or Stop("TERM", 8), 3.0
        self.avoid, self.most, self.finding = avoid, 2, finding()
        self.slurm = FakeSlurm(job(123, **values))
        self.job = self.slurm.job(123)
        self.path = folder / "history.db"
        self.time = VirtualTime()
        self.slurm.clock = self.time.steady  # type: ignore[method-assign]
        self.stops = Stops(self.slurm)
        self.skipped: list[tuple[str, str]] = []
        with Store(self.path).together():
            pass
        self.store = self.open()
        self.store.put_finding(self.finding)

    def open(self, kind: type[Store] = Store) -> Store:
        return kind(self.path, self.time.wall)

    async def life(self, commands: FakeCommands | None = None, store: Store | None = None) -> None:
        """Begin or go on, to the end; then bring the comments in step, as the service's loop does."""
        store = store or self.open()
        jobs = Jobs(commands or FakeCommands(self.slurm))
        pace = Pace(0, self.time.steady, self.time.sleep)
        clocks = Clocks(self.time.wall, self.time.steady, self.time.sleep)
        avoidance = Avoidance(jobs=jobs, store=store, pace=pace, emit=store.add_event, most=self.most, clocks=clocks)
        annotations = Annotations(Writer(jobs, store, pace),
                                  lambda _, field, why: self.skipped.append((field, why)), self.time.steady)
        intents = store.open_intents()
        if not intents:
            row = store.finding_id(self.finding.key)
            shown = await jobs.show(123)
            if row is not None and not store.had_restart(row) and shown:
                components = await jobs.components(shown.facts.leader) if shown.facts.leader else ()
                intent = evidence.new_intent(
                    self.finding, shown.facts, components, number=shown.facts.restarts + 1, budget=10, backoff_s=10,
                    progressed_s=700, stop=self.stop, now=self.time.wall(), avoid=self.avoid)
                assert store.begin(intent, row)
                intents = [intent]
        for intent in intents:
            await Restart(intent, jobs=jobs, store=store, annotations=annotations, avoidance=avoidance,
                          stops=self.stops, emit=store.add_event, stop_file_wait_s=10, clocks=clocks,
                          begin_min_s=self.begin_min_s,
                          gone=lambda: bool(self.job["ranks_gone"])).run()
        for _ in range(20):
            for number, task in list(annotations._tasks.items()):
                await annotations._try(number, task)
        await avoidance.take_back()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events(job=123)]

    def outcome(self) -> str:
        row = self.store.db.execute("SELECT outcome, stage FROM intents").fetchone()
        assert row[1] == "done"
        return str(row[0])


async def test_the_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, comment="mine")
    await bench.life()
    changes = [argv[1:] for argv in bench.slurm.state["log"] if argv[:2] in (["scontrol", "update"],
                                                                              ["scontrol", "requeue"])]
    closing = "stalled 14:02-14:14, rank 5 on c3, restarted 1/10"
    assert changes == [
        ["update", "jobid=123", f"Comment=mine {CAUSE}", f"AdminComment={CAUSE}"],
        ["requeue", "incomplete", "123"],
        ["update", "jobid=123", "StartTime=now+10", f"Comment=mine [astraeus: {closing}, cause=stalled]",
         f"AdminComment=[astraeus: {closing}]"],
        ["update", "jobid=123", "Comment=mine"],
    ]
    assert bench.stops.asked == [{
        "cause": "stalled", "reason": finding().said, "signal": "TERM", "grace_seconds": "8",
        "at": "2026-11-30T14:14:20Z", "finding": finding().key}]
    assert (bench.job["comment"], bench.job["admin_comment"], bench.job["requeued"]) == ("mine", CLOSING, 1)
    assert bench.kinds() == ["stopping", "requeued", "scheduled", "restarted"]
    assert [event.message for event in bench.store.events(job=123)[2:]] == [
        "Starts not before 14:14:30 UTC", "Restarted 1/10: it runs again on c[1-4], cause stalled"]
    assert bench.outcome() == "restarted"
    assert [intent.number for intent in bench.store.restarts_of(123)] == [1]


async def check_one_restart(bench: Bench, again: Callable[[], Awaitable[None]]) -> None:
    """Killed once; the next controller finishes it."""
    with pytest.raises(Died):
        await again()
    await bench.life()
    assert bench.job["requeued"] == 1
    assert (bench.job["comment"], bench.job["admin_comment"]) == ("mine", CLOSING)
    assert bench.kinds().count("restarted") == bench.kinds().count("requeued") == 1
    assert bench.outcome() == "restarted"
    await bench.life()
    assert bench.job["requeued"] == 1


LENGTH: list[int] = []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 21))
async def test_killed_at_a_command(tmp_path: Path, at: int, after: bool) -> None:
    if not LENGTH:  # of an undisturbed one, lived through once
        (tmp_path / "whole").mkdir()
        whole = Bench(tmp_path / "whole", comment="mine")
        await whole.life()
        LENGTH.append(len(whole.slurm.state["log"]))
    if at > LENGTH[0]:
        return
    bench = Bench(tmp_path, comment="mine")
    await check_one_restart(bench, lambda: bench.life(Mortal(bench.slurm, at, after=after)))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 8))
async def test_killed_at_a_stage(tmp_path: Path, at: int, after: bool) -> None:
    bench = Bench(tmp_path, comment="mine")
    store = bench.open(MortalStore)
    store.at, store.late = at, after  # type: ignore[attr-defined]
    await check_one_restart(bench, lambda: bench.life(store=store))


async def test_no_answer_from_monitors(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.stops.answer = False
    began = bench.time.now
    await bench.life()
    assert bench.job["requeued"] == 1
    assert bench.time.now - began >= 10
    assert bench.stops.ended == 1


async def test_monitors_that_are_not_back_yet(tmp_path: Path) -> None:
    """Right after the controller's start no node is known: their stop files are waited for longer."""
    bench = Bench(tmp_path)
    bench.stops.answer = bench.stops.heard = False
    began = bench.time.now
    await bench.life()
    assert bench.job["requeued"] == 1
    assert 29 <= bench.time.now - began < 40


async def test_healed_before_the_stop_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path, comment="mine")
    commands = Mortal(bench.slurm, 3)
    with pytest.raises(Died):
        await bench.life(commands)
    bench.store.close_finding(finding().key, "progress")
    await bench.life()
    assert (bench.job["requeued"], bench.outcome(), bench.kinds()) == (0, "healed", [])
    assert bench.job["comment"] == "mine"
    assert bench.job["admin_comment"] == "[astraeus: stalled 14:02-14:14, rank 5 on c3, progress again]"


async def test_ended_before_the_stop_file(tmp_path: Path) -> None:
    """Its finding was closed by its end: that is no progress."""
    bench = Bench(tmp_path, comment="mine")
    with pytest.raises(Died):
        await bench.life(Mortal(bench.slurm, 3))
    bench.store.close_finding(finding().key, "the job ended")
    bench.job.update(state="CANCELLED", end="2026-11-30T14:15:00")
    await bench.life()
    assert (bench.job["requeued"], bench.outcome()) == (0, "healed")
    assert bench.job["recorded"]["AdminComment"] == (
        "[astraeus: stalled 14:02-14:14, rank 5 on c3, the job ended]")


@pytest.mark.parametrize("look", [3, 4, 5])
async def test_its_user_cancels(tmp_path: Path, look: int) -> None:
    """Before the requeue: nothing is revived."""
    bench = Bench(tmp_path, comment="mine")
    bench.slurm.state["at_look"] = {str(look): {"state": "COMPLETING", "then": "CANCELLED"}}
    await bench.life()
    assert bench.job["state"] == "CANCELLED"
    assert bench.slurm.called("scontrol", "requeue") == []
    assert bench.job["recorded"]["Comment"] == "mine"


async def test_ends_during_the_stop(tmp_path: Path) -> None:
    bench = Bench(tmp_path, comment="mine")
    looks = _looks_before_requeue(await _whole(tmp_path))
    bench.slurm.state["at_look"] = {str(looks): {"state": "COMPLETED", "end": "2026-11-30T14:15:00"}}
    bench.slurm.state["at_look"][str(looks)]["state"] = "CANCELLED"
    await bench.life()
    assert bench.slurm.called("scontrol", "requeue") == []
    assert bench.outcome() == "ended"
    assert bench.kinds() == ["stopping", "ended_during_stop"]
    assert bench.job["recorded"]["AdminComment"].startswith("[astraeus: stalled 14:02-14:14, rank 5 on c3, ended")


async def test_requeued_by_its_user_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, comment="mine")
    looks = _looks_before_requeue(await _whole(tmp_path))
    bench.slurm.state["at_look"] = {str(looks): {"restarts": 1, "state": "PENDING", "start": "N/A"}}
    await bench.life()
    assert bench.slurm.called("scontrol", "requeue") == []
    assert (bench.outcome(), bench.job["comment"]) == ("another", "mine")


async def test_suspended_after_the_stop_file_waits(tmp_path: Path) -> None:
    """requeue would end a suspension; it is its user's, or gang scheduling's."""
    bench = Bench(tmp_path)
    looks = _looks_before_requeue(await _whole(tmp_path))
    bench.slurm.state["at_look"] = {str(looks): {"state": "SUSPENDED"}, str(looks + 3): {"state": "RUNNING"}}
    await bench.life()
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


@pytest.mark.parametrize("state", ["SUSPENDED", "STOPPED", "SIGNALING"])
async def test_stopped_by_its_user_before_the_stop_file_waits(tmp_path: Path, state: str) -> None:
    bench = Bench(tmp_path)
    first = {"state": state} | ({"answer": "STOPPED"} if state == "SIGNALING" else {})
    bench.slurm.state["at_look"] = {"4": first, "9": {"state": "RUNNING"}}
    await bench.life()
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


async def test_held_by_its_user_stays_held(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.slurm.state["at_look"] = {"2": {"priority": 0}, "14": {"priority": 1000, "waiting": 1}}
    await bench.life()
    updates = bench.slurm.called("scontrol", "update")
    assert not any("StartTime" in pair for argv in updates for pair in argv)
    assert bench.outcome() == "restarted"


async def test_refused_by_slurm(tmp_path: Path) -> None:
    bench = Bench(tmp_path, comment="mine", requeue=0)
    await bench.life()
    assert bench.outcome() == "refused"
    assert "presently disabled" in bench.store.events(job=123)[-1].message
    assert bench.job["comment"].startswith("mine [astraeus: stalled since 14:02 UTC, rank 5 on c3, not restarted: ")


async def test_taken_without_effect_is_repeated_a_few_times(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.slurm.state["requeue_does_nothing"] = 1
    await bench.life()
    assert (len(bench.slurm.called("scontrol", "requeue")), bench.job["requeued"]) == (2, 1)
    (tmp_path / "never").mkdir()
    never = Bench(tmp_path / "never")
    never.slurm.state["requeue_does_nothing"] = 99
    await never.life()
    assert (len(never.slurm.called("scontrol", "requeue")), never.outcome()) == (3, "refused")


async def test_slurmctld_away_in_between(tmp_path: Path) -> None:
    """The answer to the requeue is lost: the state tells, and nothing is repeated."""
    bench = Bench(tmp_path, comment="mine")

    class Deaf(FakeCommands):
        gone = 0

        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            if self.gone:
                self.gone -= 1
                raise Away("Unable to contact slurm controller")
            text = await super().run(*args)
            if args[:2] == ("scontrol", "requeue"):
                self.gone = 4
                raise Away("scontrol gave no answer within 15 s")
            return text

    await bench.life(Deaf(bench.slurm))
    assert (bench.job["requeued"], bench.job["comment"], bench.outcome()) == (1, "mine", "restarted")
    assert len(bench.slurm.called("scontrol", "requeue")) == 1


async def test_a_comment_of_another_tool(tmp_path: Path) -> None:
    """The cause travels in the reply, and the text stays."""
    bench = Bench(tmp_path, comment='{"tool": 1}')
    await bench.life()
    assert bench.job["comment"] == '{"tool": 1}'
    assert bench.store.db.execute("SELECT json_extract(intent, '$.cause_by_reply') FROM intents").fetchone()[0] == 1
    assert [field for field, _ in bench.skipped] == ["Comment"]


async def _whole(folder: Path) -> FakeSlurm:
    (folder / "whole").mkdir(exist_ok=True)
    bench = Bench(folder / "whole", comment="mine")
    await bench.life()
    return bench.slurm


def _looks_before_requeue(slurm: FakeSlurm) -> int:
    """The number of the look right before the requeue, in an undisturbed restart."""
    looks = 0
    for argv in slurm.state["log"]:
        if argv[:2] == ["scontrol", "requeue"]:
            return looks
        looks += argv[0] == "squeue"
    raise AssertionError("no requeue")


async def test_an_arrays_element_that_has_the_arrays_own_id(tmp_path: Path) -> None:
    """The bare id would stop, requeue and annotate all elements (the fake raises on it)."""
    bench = Bench(tmp_path, comment="mine", array_job=123, array_task=7)
    await bench.life()
    assert bench.slurm.called("scontrol", "requeue") == [["scontrol", "requeue", "incomplete", "123_7"]]
    assert {argv[2] for argv in bench.slurm.called("scontrol", "update")} == {"jobid=123_7"}
    assert (bench.job["comment"], bench.job["admin_comment"], bench.outcome()) == ("mine", CLOSING, "restarted")


async def test_next_attempt_reported_and_not_running_is_looked_at_slowly(tmp_path: Path) -> None:
    """It began, was suspended, and is requeued once more by somebody: no look after look without a pause."""
    bench = Bench(tmp_path, comment="mine")
    bench.stops.attempt_reported = lambda *_: True  # type: ignore[method-assign]
    shown = len([argv for argv in (await _whole(tmp_path)).state["log"] if argv[0] == "squeue"])
    last = shown - 2  # the look that found it running; two more clean its comment
    bench.slurm.state["at_look"] = {str(last): {"state": "SUSPENDED"},
                                    str(last + 3): {"state": "PENDING", "restarts": 2, "priority": 0}}
    began = bench.time.now
    await bench.life()
    assert bench.time.now - began >= 30
    assert bench.store.events(job=123)[-1].message == "Restarted 1/10: it was requeued again since"
    assert bench.outcome() == "restarted"


@pytest.mark.parametrize(("set_by", "begins"), [(-86400, "now+10"), (86400, "now+3")])
async def test_begin_time_whatever_the_time_of_day_was_set_to(tmp_path: Path, set_by: int, begins: str) -> None:
    bench = Bench(tmp_path)
    true = bench.time.wall
    with pytest.raises(Died):
        await bench.life(Mortal(bench.slurm, 5))
    bench.time.wall = lambda: true() + set_by  # type: ignore[method-assign]
    await bench.life()
    starts = [pair for argv in bench.slurm.called("scontrol", "update") for pair in argv if "StartTime" in pair]
    assert starts == [f"StartTime={begins}"]


def begin_times(bench: Bench) -> list[str]:
    return [pair.partition("=")[2] for argv in bench.slurm.called("scontrol", "update") for pair in argv
            if pair.startswith("StartTime=")]


async def test_a_scheduler_that_sleeps_is_woken_once_the_begin_time_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.slurm.state["scheduler_sleeps"] = True
    began, run = bench.time.now, bench.slurm.run
    at: list[tuple[float, str]] = []

    def logged(argv: list[str]) -> str:
        at.append((bench.time.now - began, argv[-1]))
        return run(argv)

    bench.slurm.run = logged  # type: ignore[method-assign]
    await bench.life()
    assert begin_times(bench) == ["now+10", "now"]
    assert (11, "StartTime=now") in at
    assert bench.outcome() == "restarted"


@pytest.mark.parametrize("values", [
    {"start": "2027-01-01T00:00:00"}, {"reason": "Resources"}, {"priority": 0, "reason": "JobHeldUser"}])
async def test_a_job_that_waits_for_something_else_is_left_alone(tmp_path: Path, values: dict[str, object]) -> None:
    bench = Bench(tmp_path)
    bench.slurm.state["scheduler_sleeps"] = True
    await bench.life()
    last = bench.job["looks"] - 4
    """The look before the begin time was set again."""
    again = Bench(tmp_path / "again")
    again.slurm.state |= {"scheduler_sleeps": True, "at_look": {
        str(last): values, str(last + 3): {"state": "RUNNING", "priority": 1000}}}
    await again.life()
    assert begin_times(again) == ["now+10"]
    assert again.outcome() == "restarted"


async def test_an_old_slurm_is_not_hurried(tmp_path: Path) -> None:
    """Within the life of its last credential a job's batch script runs beside its Prolog there."""
    bench = Bench(tmp_path)
    bench.begin_min_s = 122.0
    await bench.life()
    starts = [pair for argv in bench.slurm.called("scontrol", "update") for pair in argv if "StartTime" in pair]
    assert starts == ["StartTime=now+122"]
