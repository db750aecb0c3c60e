"""The second way of stopping: the batch script frozen, our own signal, its grace; never left frozen."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from astraeus_controller.actions.may_restart import may_restart
from astraeus_controller.actions.revive import unix_time
from astraeus_controller.actions.way import Stop, choose, ranks_gone
from astraeus_controller.rules.picture import Policy, StepView, WorkerView
from astraeus_controller.slurm.command import Away
from astraeus_controller.slurm.types import JobFacts
from fake_slurm import FakeSlurm
from service_kit import FakeCommands
from test_may_restart import gather, picture, process, step, worker
from test_restart import CLOSING, Bench, Died, Mortal, MortalStore, check_one_restart

STEPS = Stop("USR1", 40, "steps")
FULL = Stop("USR1", 40, "full")
HELD = Stop("TERM", 8, "hold")
STOPS = ["stopping", "signalled", "requeued", "scheduled", "restarted"]


def orders(slurm: FakeSlurm) -> list[list[str]]:
    """What changed the job itself: signals and requeues."""
    return [argv for argv in slurm.state["log"] if argv[0] == "scancel" or argv[:2] == ["scontrol", "requeue"]]


async def whole(folder: Path, stop: Stop = STEPS) -> Bench:
    """An undisturbed one."""
    (folder / "whole").mkdir(exist_ok=True)
    bench = Bench(folder / "whole", stop, comment="mine")
    await bench.life()
    return bench


LENGTHS: dict[Stop, int] = {}


async def commands_of(folder: Path, stop: Stop) -> int:
    """How many commands an undisturbed one takes; lived through once for each way of stopping."""
    if stop not in LENGTHS:
        LENGTHS[stop] = len((await whole(folder, stop)).slurm.state["log"])
    return LENGTHS[stop]


def at_command(bench: Bench, word: str) -> int:
    """The first command with this word is the nth of all (counted from 0)."""
    return next(n for n, argv in enumerate(bench.slurm.state["log"]) if word in argv)


def look_before(slurm: FakeSlurm, *words: str) -> int:
    """The number of the look right before the first command with these words."""
    looks = 0
    for argv in slurm.state["log"]:
        if all(word in argv for word in words):
            return looks
        looks += argv[0] == "squeue"
    raise AssertionError(f"no {words}")


async def test_the_order_with_steps(tmp_path: Path) -> None:
    bench = await whole(tmp_path)
    assert orders(bench.slurm) == [
        ["scancel", "--batch", "--signal=STOP", "123"], ["scancel", "--signal=CONT", "123"],
        ["scancel", "--signal=USR1", "123"], ["scontrol", "requeue", "incomplete", "123"]]
    assert (bench.stops.asked[0]["signal"], bench.stops.asked[0]["grace_seconds"]) == ("USR1", "40")
    assert (bench.kinds(), bench.outcome(), bench.job["revived"]) == (STOPS, "restarted", 0)
    assert (bench.job["comment"], bench.job["admin_comment"]) == ("mine", CLOSING)
    assert bench.store.events(job=123)[1].message == (
        "Sent USR1 to its ranks, which have 40s to save; its batch script is frozen meanwhile")


async def test_the_order_in_the_batch_step(tmp_path: Path) -> None:
    """CONT to all of it before the freeze: after it, it would wake the script, and the signal would end it."""
    bench = await whole(tmp_path, FULL)
    assert orders(bench.slurm) == [
        ["scancel", "--full", "--signal=CONT", "123"], ["scancel", "--batch", "--signal=STOP", "123"],
        ["scancel", "--full", "--signal=USR1", "123"], ["scontrol", "requeue", "incomplete", "123"]]
    assert (bench.kinds(), bench.outcome(), bench.job["revived"]) == (STOPS, "restarted", 0)


async def test_the_order_with_slurms_own_term(tmp_path: Path) -> None:
    """Frozen before the stop file, on which its ranks may leave; woken by the requeue."""
    bench = await whole(tmp_path, HELD)
    assert orders(bench.slurm) == [
        ["scancel", "--batch", "--signal=STOP", "123"], ["scontrol", "requeue", "incomplete", "123"]]
    assert (bench.kinds(), bench.outcome(), bench.job["script"], bench.job["revived"]) == (
        ["stopping", "requeued", "scheduled", "restarted"], "restarted", "CONT", 0)
    assert bench.stops.asked[0]["signal"] == "TERM"


async def test_one_that_can_not_be_frozen_is_requeued_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HELD, comment="mine")
    bench.slurm.state["refused_signals"] = ["STOP"]
    await bench.life()
    assert (bench.job["requeued"], bench.outcome(), bench.job["script"]) == (1, "restarted", "CONT")


async def test_a_run_that_saves_on_cont(tmp_path: Path) -> None:
    """That wakes its script, which is frozen again at once."""
    bench = Bench(tmp_path, Stop("CONT", 40, "full"))
    await bench.life()
    assert bench.job["signals"] == [["full", "CONT"], ["batch", "STOP"], ["full", "CONT"], ["batch", "STOP"]]
    assert (bench.job["requeued"], bench.job["revived"], bench.outcome()) == (1, 0, "restarted")


@pytest.mark.parametrize(("values", "names"), [
    ({"array_job": 123, "array_task": 7}, ["123_7"] * 4),
    ({"het": "123", "het_offset": "0"}, ["123+0", "123", "123", "123"])])
async def test_an_array_element_and_a_heterogeneous_job(tmp_path: Path, values: dict[str, Any],
                                                        names: list[str]) -> None:
    bench = Bench(tmp_path, STEPS, comment="mine", **values)
    await bench.life()
    assert [argv[-1] for argv in orders(bench.slurm)] == names
    assert bench.outcome() == "restarted"


async def test_ranks_that_stay_have_the_whole_grace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, STEPS)
    bench.slurm.state["ranks_end"] = False
    began = bench.time.now
    await bench.life()
    assert 40 <= bench.time.now - began < 60
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


async def test_the_grace_is_not_given_twice(tmp_path: Path) -> None:
    """A controller that was away for most of it goes on with what is left."""
    bench = Bench(tmp_path, STEPS)
    bench.slurm.state["ranks_end"] = False
    commands = Mortal(bench.slurm, 2 + at_command(await whole(tmp_path), "--signal=USR1"))
    with pytest.raises(Died):
        await bench.life(commands)
    assert bench.store.open_intents()[0].stage == "waiting"
    bench.time.now += 35
    began = bench.time.now
    await bench.life()
    assert 5 <= bench.time.now - began < 20
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 40))
@pytest.mark.parametrize("stop", [STEPS, FULL, HELD])
async def test_killed_at_a_command(tmp_path: Path, stop: Stop, at: int, after: bool) -> None:
    if at > await commands_of(tmp_path, stop):
        return
    bench = Bench(tmp_path, stop, comment="mine")
    await check_one_restart(bench, lambda: bench.life(Mortal(bench.slurm, at, after=after)))
    assert bench.job["revived"] == 0
    assert sum(argv[-1] == "USR1" for argv in bench.job["signals"]) in ((0,) if stop == HELD else (1, 2))
    assert bench.job["script"] == "CONT"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("stop", [STEPS, FULL, HELD])
async def test_killed_at_a_stage(tmp_path: Path, stop: Stop, at: int, after: bool) -> None:
    if stop == HELD and at == 11:
        return  # it has a stage less
    bench = Bench(tmp_path, stop, comment="mine")
    store = bench.open(MortalStore)
    store.at, store.late = at, after  # type: ignore[attr-defined]
    await check_one_restart(bench, lambda: bench.life(store=store))
    assert (bench.job["revived"], bench.job["state"]) == (0, "RUNNING")


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("stop", [STEPS, FULL, HELD])
async def test_no_answer_to_a_command(tmp_path: Path, stop: Stop, heard: bool, nth: int) -> None:
    """Slurm took it, or did not, and its answer is lost."""
    bench = Bench(tmp_path, stop, comment="mine")

    class Deaf(FakeCommands):
        left = nth

        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            if args[0] == "scancel" or args[:2] == ("scontrol", "requeue"):
                self.left -= 1
                if self.left == 0:
                    if heard:
                        await super().run(*args)
                    raise Away(f"{args[0]} gave no answer within 15 s")
            return await super().run(*args)

    await bench.life(Deaf(bench.slurm))
    assert (bench.job["requeued"], bench.job["revived"], bench.outcome()) == (1, 0, "restarted")
    assert bench.kinds().count("requeued") == 1


@pytest.mark.parametrize("before", [("--batch", "--signal=STOP"), ("--signal=USR1",), ("scontrol", "requeue")])
@pytest.mark.parametrize("end", ["CANCELLED", "TIMEOUT", "NODE_FAIL"])
async def test_its_user_or_slurm_ends_it(tmp_path: Path, before: tuple[str, ...], end: str) -> None:
    looks = look_before((await whole(tmp_path)).slurm, *before)
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["at_look"] = {str(looks): {"state": "COMPLETING", "then": end}}
    await bench.life()
    assert bench.slurm.called("scontrol", "requeue") == []
    assert (bench.job["state"], bench.outcome(), bench.kinds()[-1]) == (end, "ended", "ended_during_stop")
    assert bench.job["recorded"]["Comment"] == "mine"


@pytest.mark.parametrize("before", [("--batch", "--signal=STOP"), ("--signal=USR1",), ("scontrol", "requeue")])
async def test_its_user_requeues_it(tmp_path: Path, before: tuple[str, ...]) -> None:
    looks = look_before((await whole(tmp_path)).slurm, *before)
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["at_look"] = {str(looks): {"restarts": 1, "state": "PENDING", "start": "N/A"}}
    await bench.life()
    assert (bench.slurm.called("scontrol", "requeue"), bench.outcome()) == ([], "another")


async def test_a_stop_that_hits_the_attempt_of_its_users_requeue(tmp_path: Path) -> None:
    """It stood STOPPED for good: nobody looked at it once the restart was declined."""
    looks = look_before((await whole(tmp_path)).slurm, "--batch", "--signal=STOP")
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["at_look"] = {
        str(looks + 1): {"restarts": 1, "state": "PENDING", "start": "N/A"},
        str(looks + 8): {"state": "STOPPED", "script": "STOP", "start": "2026-11-29T14:40:00"}}
    await bench.life()
    assert (bench.job["state"], bench.job["script"], bench.outcome()) == ("RUNNING", "CONT", "another")
    assert bench.kinds()[-2:] == ["restart_declined", "woken"]


@pytest.mark.parametrize("before", [("--batch", "--signal=STOP"), ("--signal=USR1",), ("scontrol", "requeue")])
async def test_its_user_suspends_it(tmp_path: Path, before: tuple[str, ...]) -> None:
    """Nothing is requeued before it is resumed; a resume wakes the script, which is frozen again."""
    looks = look_before((await whole(tmp_path)).slurm, *before)
    bench = Bench(tmp_path, STEPS)
    bench.slurm.state["at_look"] = {str(looks): {"state": "SUSPENDED"},
                                    str(looks + 20): {"state": "RUNNING", "script": "CONT"}}
    began = bench.time.now
    await bench.life()
    assert bench.time.now - began >= 60
    assert (bench.job["requeued"], bench.job["revived"], bench.outcome()) == (1, 0, "restarted")


@pytest.mark.parametrize("back", [1, 2])
async def test_suspended_while_frozen(tmp_path: Path, back: int) -> None:
    """Slurm shows STOPPED over SUSPENDED: the run time that stands tells."""
    looks = look_before((await whole(tmp_path, FULL)).slurm, "scontrol", "requeue") - back
    bench = Bench(tmp_path, FULL)
    bench.slurm.state["at_look"] = {str(looks): {"suspended": True}, str(looks + 22): {"suspended": False}}
    began = bench.time.now
    await bench.life()
    assert bench.time.now - began >= 60
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


@pytest.mark.parametrize(("accounted", "outcome", "revived"), [
    ("FAILED", "restarted", 1), ("CANCELLED by 1001", "ended", 0), ("RUNNING", "restarted", 0)])
async def test_ended_but_shown_as_stopped(tmp_path: Path, accounted: str, outcome: str, revived: int) -> None:
    """A node answered to the STOP after the job's end: Slurm goes on showing STOPPED, accounting tells."""
    looks = look_before((await whole(tmp_path, FULL)).slurm, "scontrol", "requeue") - 1
    bench = Bench(tmp_path, FULL)
    ended = datetime.fromtimestamp(bench.time.wall() + 5, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    over = {"state": "STOPPED", "end": ended, "accounted": accounted}
    bench.slurm.state["at_look"] = {str(looks): over | {"suspended": accounted != "RUNNING"}}
    await bench.life()
    assert (bench.outcome(), bench.job["revived"]) == (outcome, revived)


async def test_suspended_time_is_no_grace(tmp_path: Path) -> None:
    looks = look_before((await whole(tmp_path)).slurm, "--signal=USR1") + 1
    bench = Bench(tmp_path, STEPS)
    bench.slurm.state |= {"ranks_end": False, "at_look": {
        str(looks): {"state": "SUSPENDED"}, str(looks + 50): {"state": "RUNNING", "script": "CONT"}}}
    began = bench.time.now
    await bench.life()
    assert bench.time.now - began >= 150 + 40
    assert bench.job["signals"].count(["batch", "STOP"]) == 2
    assert bench.job["requeued"] == 1


def begins(bench: Bench) -> list[str]:
    return [pair for argv in bench.slurm.called("scontrol", "update") for pair in argv if "StartTime" in pair]


@pytest.mark.parametrize(("quiet", "begin"), [
    (2.0, "StartTime=now+3"), (9.0, "StartTime=now+120"), (math.inf, "StartTime=now+120")])
async def test_a_signal_that_may_come_late(tmp_path: Path, quiet: float, begin: str) -> None:
    """A node was not heard while it was delivered: Slurm keeps it, and gives it to the next attempt."""
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["ranks_end"] = False
    bench.stops.quiet = quiet
    await bench.life()
    assert (begins(bench), bench.outcome()) == ([begin], "restarted")
    assert ("signal_late" in bench.kinds()) is (quiet > 8)


@pytest.mark.parametrize("quiet", [2.0, 20.0, math.inf])
async def test_an_end_that_may_come_late(tmp_path: Path, quiet: float) -> None:
    """A node that still holds the job is not heard while Slurm ends it; infinite: all have let go of it."""
    bench = Bench(tmp_path, Stop("TERM", 8), comment="mine", completing=5)

    class CutOff(FakeCommands):
        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            bench.stops.quiet = quiet if bench.job["requeued"] else 1.0
            return await super().run(*args)

    await bench.life(CutOff(bench.slurm))
    (begin,) = begins(bench)
    late = quiet == 20
    assert (begin == "StartTime=now+120", "signal_late" in bench.kinds(), bench.outcome()) == (late, late, "restarted")


async def test_a_stop_that_may_come_late(tmp_path: Path) -> None:
    """Slurm took it and the job did not stop; the next attempt is stopped by it all the same, and woken."""
    looks = look_before((await whole(tmp_path)).slurm, "--signal=CONT")
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["at_look"] = {str(looks): {"state": "RUNNING", "asked": False, "answer": "RUNNING"}}
    woken: list[str] = []

    class Late(FakeCommands):
        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            if begins(bench) and args[0] == "squeue" and not woken:
                bench.job.update(state="STOPPED", script="STOP")
            if args[:3] == ("scancel", "--batch", "--signal=CONT"):
                woken.append(args[-1])
            return await super().run(*args)

    await bench.life(Late(bench.slurm))
    assert bench.kinds().count("signal_late") == 1
    assert (begins(bench), woken) == (["StartTime=now+120"], ["123"])
    assert (bench.job["script"], bench.job["state"], bench.outcome()) == ("CONT", "RUNNING", "restarted")


async def test_held_by_its_user_stays_held(tmp_path: Path) -> None:
    looks = look_before((await whole(tmp_path)).slurm, "scontrol", "requeue")
    bench = Bench(tmp_path, STEPS)
    bench.slurm.state["at_look"] = {str(looks): {"priority": 0}, "30": {"priority": 1000, "waiting": 1}}
    await bench.life()
    assert not any("StartTime" in pair for argv in bench.slurm.called("scontrol", "update") for pair in argv)
    assert (bench.job["requeued"], bench.outcome()) == (1, "restarted")


async def test_refused_freeze_stops_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["refused_signals"] = ["STOP"]
    await bench.life()
    assert (bench.outcome(), bench.job["requeued"], bench.job["script"]) == ("refused", 0, "CONT")
    assert "USR1" not in str(bench.job["signals"])


@pytest.mark.parametrize("refused", ["CONT", "USR1"])
async def test_refused_signal_is_requeued_at_once(tmp_path: Path, refused: str) -> None:
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["refused_signals"] = [refused]
    await bench.life()
    assert (bench.outcome(), bench.job["requeued"]) == ("restarted", 1)
    assert bench.kinds() == ["stopping", "signal_refused", "requeued", "scheduled", "restarted"]


@pytest.mark.parametrize("values", [{"state": "COMPLETING", "then": "CANCELLED"},
                                    {"state": "PENDING", "restarts": 1, "start": "N/A"}])
async def test_cancelled_or_requeued_between_the_look_and_the_signal(tmp_path: Path, values: dict[str, Any]) -> None:
    """Slurm refuses the signal; nothing is said of a requeue at once, and none is sent."""
    bench = Bench(tmp_path, STEPS, comment="mine")

    class Meanwhile(FakeCommands):
        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            if args[:2] == ("scancel", "--signal=CONT"):
                bench.job.update(values)
            return await super().run(*args)

    await bench.life(Meanwhile(bench.slurm))
    assert (bench.slurm.called("scontrol", "requeue"), bench.job["requeued"]) == ([], 0)
    assert "signal_refused" not in bench.kinds()
    assert bench.kinds()[-1] in ("ended_during_stop", "restart_declined")


@pytest.mark.parametrize("values", [{"requeue": 0}, {}])
async def test_a_requeue_that_comes_to_nothing_leaves_nothing_frozen(tmp_path: Path, values: dict[str, int]) -> None:
    bench = Bench(tmp_path, STEPS, comment="mine", **values)
    bench.slurm.state["requeue_does_nothing"] = 99
    await bench.life()
    assert (bench.outcome(), bench.job["requeued"]) == ("refused", 0)
    assert (bench.job["signals"][-1], bench.job["script"]) == (["batch", "CONT"], "CONT")


# It ended all the same


async def ended(folder: Path, stop: Stop, look: int, state: str, end: str = "2026-11-30T14:15:00",
                commands: FakeCommands | None = None) -> Bench:
    bench = Bench(folder, stop, comment="mine")
    bench.slurm.state["at_look"] = {str(look): {"state": state, "end": end}}
    await bench.life(commands)
    return bench


@pytest.mark.parametrize("state", ["FAILED", "COMPLETED"])
async def test_ended_on_our_signal_is_requeued_once(tmp_path: Path, state: str) -> None:
    look = look_before((await whole(tmp_path)).slurm, "scontrol", "requeue")
    bench = await ended(tmp_path, STEPS, look, state)
    assert bench.slurm.called("scontrol", "requeue") == [["scontrol", "requeue", "123"]]
    assert (bench.job["revived"], bench.outcome(), bench.kinds()) == (1, "restarted", STOPS)
    assert "jobs that depend on it may have started" in bench.store.events(job=123)[2].message


@pytest.mark.parametrize(("state", "end"), [
    ("CANCELLED", "2026-11-30T14:15:00"), ("TIMEOUT", "2026-11-30T14:15:00"),
    ("FAILED", "2026-11-30T14:14:00"), ("FAILED", "Unknown")])
async def test_ended_of_itself_after_our_signal(tmp_path: Path, state: str, end: str) -> None:
    """Before it, by its user, or nobody knows when."""
    look = look_before((await whole(tmp_path)).slurm, "scontrol", "requeue")
    bench = await ended(tmp_path, STEPS, look, state, end)
    assert (bench.slurm.called("scontrol", "requeue"), bench.outcome()) == ([], "ended")
    assert bench.kinds()[-1] == "ended_during_stop"


@pytest.mark.parametrize("stop", [STEPS, HELD])
async def test_ended_before_anything_of_ours(tmp_path: Path, stop: Stop) -> None:
    look = look_before((await whole(tmp_path, stop)).slurm, "--batch", "--signal=STOP")
    bench = await ended(tmp_path, stop, look, "COMPLETED")
    assert (bench.slurm.called("scontrol", "requeue"), bench.outcome()) == ([], "ended")


async def test_ended_on_its_stop_file(tmp_path: Path) -> None:
    """Its batch process is the training, which can't be frozen: it saved, and left before Slurm's TERM."""
    stop = Stop("TERM", 8)
    look = look_before((await whole(tmp_path, stop)).slurm, "scontrol", "requeue")
    bench = await ended(tmp_path, stop, look, "COMPLETED")
    assert ([argv[2:] for argv in bench.slurm.called("scontrol", "requeue")], bench.outcome()) == (
        [["123"]], "restarted")


async def test_a_requeue_that_lost_the_race(tmp_path: Path) -> None:
    """It ended between the look and the requeue, which then does nothing."""
    stop = Stop("TERM", 8)
    look = look_before((await whole(tmp_path, stop)).slurm, "scontrol", "requeue")
    bench = Bench(tmp_path, stop, comment="mine")
    bench.slurm.state |= {"requeue_does_nothing": 1, "at_look": {
        str(look + 1): {"state": "COMPLETED", "end": "2026-11-30T14:14:20"}}}
    await bench.life()
    assert [argv[2:] for argv in bench.slurm.called("scontrol", "requeue")] == [["incomplete", "123"], ["123"]]
    assert (bench.job["revived"], bench.outcome()) == (1, "restarted")


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_the_plain_requeue(tmp_path: Path, after: bool) -> None:
    """The next controller sends it where the job's restart count shows that it was not."""
    look = look_before((await whole(tmp_path)).slurm, "scontrol", "requeue")
    bench = Bench(tmp_path, STEPS, comment="mine")
    bench.slurm.state["at_look"] = {str(look): {"state": "FAILED", "end": "2026-11-30T14:15:00"}}

    class DiesAtRequeue(FakeCommands):
        async def run(self, *args: str, timeout_s: float | None = None) -> str:
            if args[:2] == ("scontrol", "requeue"):
                if after:
                    await super().run(*args)
                raise Died
            return await super().run(*args)

    with pytest.raises(Died):
        await bench.life(DiesAtRequeue(bench.slurm))
    await bench.life()
    assert (bench.job["revived"], bench.outcome()) == (1, "restarted")


async def test_a_plain_requeue_that_does_nothing(tmp_path: Path) -> None:
    """Slurm was away in that moment, or it never takes it: three times at most."""
    look = look_before((await whole(tmp_path)).slurm, "scontrol", "requeue")
    for fails, outcome in ((1, "restarted"), (99, "ended")):
        folder = tmp_path / outcome
        folder.mkdir()
        bench = Bench(folder, STEPS, comment="mine")
        bench.slurm.state |= {"requeue_does_nothing": fails,
                              "at_look": {str(look): {"state": "FAILED", "end": "2026-11-30T14:15:00"}}}
        await bench.life()
        assert (bench.job["revived"], bench.outcome()) == (int(fails == 1), outcome)
        assert len(bench.slurm.called("scontrol", "requeue")) == (2 if fails == 1 else 3)


async def test_killed_before_the_signal_and_ended_meanwhile(tmp_path: Path) -> None:
    """Nobody knows whether the signal was sent, but the stop file was written."""
    bench = Bench(tmp_path, STEPS, comment="mine")
    with pytest.raises(Died):
        await bench.life(Mortal(bench.slurm, 1 + at_command(await whole(tmp_path), "--signal=USR1")))
    bench.job.update(state="COMPLETED", end="2026-11-30T15:00:00")
    await bench.life()
    assert (bench.job["revived"], bench.outcome()) == (1, "restarted")


def test_slurms_times() -> None:
    assert unix_time("1970-01-02T00:00:01") == 86401
    assert [unix_time(text) for text in ("N/A", "Unknown", "")] == [None] * 3


# Which way, and when all are gone

USR1 = Policy(action="restart", mode="act", stop_signal="USR1", stop_grace=40)
SHELL = worker(0, pid=10, processes=(process(pid=11), process(pid=12)))
ITSELF = worker(0, pid=10, processes=(process(pid=10),))


@pytest.mark.parametrize(("policy", "steps", "stalled", "way"), [
    (USR1, (step("0", worker(0)),), "0", "steps"),
    (USR1, (step("batch", SHELL), step("0", worker(0))), "0", "steps"),
    (USR1, (step("batch", SHELL), step("0", worker(0))), "batch", "full"),
    (USR1, (step("batch", SHELL), step("0", worker(0), ended=True), step("extern")), "batch", "full"),
    (USR1, (step("batch", ITSELF),), "batch", ""),
    (USR1, (step("batch", worker(0, processes=())),), "batch", ""),
    (msgspec.structs.replace(USR1, stop_signal="TERM"), (step("0", worker(0)),), "0", "steps"),
    (Policy(stop_signal="TERM", stop_grace=8), (step("0", worker(0)),), "0", "hold"),
    (Policy(), (step("0", worker(0)),), "0", "hold"),
    (Policy(), (step("batch", SHELL), step("0", worker(0))), "0", "hold"),
    (Policy(), (step("batch", SHELL),), "batch", "hold"),
    (Policy(), (step("batch", ITSELF),), "batch", "")])
def test_which_way(policy: Policy, steps: tuple[StepView, ...], stalled: str, way: str) -> None:
    stop = choose(picture(*steps), stalled, policy, 8)
    assert (stop.way, stop.signal, stop.grace_s) == (
        (way, "TERM", 8) if way in ("", "hold") else (way, policy.stop_signal, 40))


def test_with_cgroups_slurms_term_does_not_reach_what_runs_below_the_batch_script() -> None:
    def stop(policy: Policy, *steps: Any, stalled: str = "batch", reaches: bool = False) -> Stop:
        return choose(picture(*steps), stalled, policy, 8, term_reaches_all=reaches)
    assert stop(Policy(), step("batch", SHELL)) == Stop("TERM", 8, "full")
    assert stop(Policy(stop_grace=3), step("batch", SHELL)) == Stop("TERM", 8, "full")
    assert stop(Policy(), step("batch", SHELL), reaches=True) == Stop("TERM", 8, "hold")
    assert stop(Policy(), step("batch", ITSELF)) == Stop("TERM", 8)
    assert stop(Policy(), step("0", worker(0)), stalled="0") == Stop("TERM", 8, "hold")


def test_a_signal_without_a_grace_has_kill_wait() -> None:
    policy = Policy(stop_signal="USR2")
    assert choose(picture(step("0", worker(0))), "0", policy, 8) == Stop("USR2", 8, "steps")
    assert choose(picture(step("batch", ITSELF)), "batch", USR1, 8).note == (
        "its batch process is the training itself, which can't be frozen: it gets TERM and KillWait's 8s, "
        "not USR1@40s")


def exited(rank: int) -> WorkerView:
    return worker(rank, state="exited", exit_status=0)


@pytest.mark.parametrize(("steps", "full", "gone"), [
    ((step("0", exited(0), worker(1, state="gone")),), False, True),
    ((step("0", exited(0), worker(1)),), False, False),
    ((step("0", exited(0), worker(1, state="stale")),), False, False),
    ((step("0", exited(0), tasks=2, complete=False),), False, False),
    ((step("batch", SHELL), step("0", exited(0))), False, True),
    ((step("batch", SHELL), step("0", worker(0), ended=True)), False, True),
    ((step("batch", SHELL),), False, False), ((), False, False), ((), True, False),
    ((step("batch", SHELL),), True, False),
    ((step("batch", worker(0, pid=10, processes=(process(pid=11, state="Z"), process(pid=10, state="T")))),), True,
     True),
    ((step("batch", worker(0, pid=10, processes=(process(pid=10, state="T"),))),), True, True),
    ((step("batch", exited(0)), step("0", worker(0))), True, False)])
def test_all_ranks_gone(steps: tuple[StepView, ...], full: bool, gone: bool) -> None:
    assert ranks_gone(picture(*steps), 0, full=full) is gone


def test_unknown_is_not_gone() -> None:
    over = step("0", exited(0))
    assert ranks_gone(picture(over), 0, full=False)
    assert not ranks_gone(None, 0, full=False)
    assert not ranks_gone(picture(over), 1, full=False)
    assert not ranks_gone(picture(over, settled=False), 0, full=False)
    assert not ranks_gone(picture(over, silent_nodes=("c2",)), 0, full=False)


def test_its_grace_counts_against_its_time_limit() -> None:
    row = JobFacts(job=123, state="RUNNING", batch=True, requeue=True, run_time_s=1800, time_limit_s=1900)
    asked = msgspec.structs.replace(USR1, stop_grace=40)
    assert may_restart(gather(picture(step("0", worker(0))), row)).answer == "yes"
    assert may_restart(gather(picture(step("0", worker(0), policy=asked)), row)).sentence == (
        "it is at its time limit (100s left)")
