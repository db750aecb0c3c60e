"""A run that stalls again and again, in virtual time: when its restarts go on, and what ends them."""

from collections.abc import Callable

import pytest
from virtual_world import JOB, VirtualWorld

HOUR_S = 3600.0


async def test_a_run_that_progresses_and_stalls_is_restarted_up_to_the_sites_bound() -> None:
    world = VirtualWorld(lambda restarts: 660)
    await world.until(lambda: world.said("restart_declined"), 24 * HOUR_S)
    assert world.said("restart_declined") == [
        "restart declined: the site's bound on restarts of one job is reached (50 of 50)"]
    assert world.counts() == ["1/10"] * 50, "each attempt gave the budget back"
    assert world.slurm.job(JOB)["requeued"] == 50
    assert backoffs(world) == [10] * 50
    await still(world)
    assert world.slurm.job(JOB)["requeued"] == 50


async def test_a_run_that_never_progresses_is_restarted_once() -> None:
    world = VirtualWorld(lambda restarts: 5)
    await world.until(lambda: world.said("restart_declined"), HOUR_S)
    assert world.said("restart_declined") == [
        "restart declined: two attempts running made no progress; another would hang in the same place"]
    assert world.counts() == ["1/10"]
    await still(world)
    assert world.slurm.job(JOB)["requeued"] == 1


async def test_a_run_that_progresses_too_little_spends_its_budget() -> None:
    world = VirtualWorld(lambda restarts: 300)
    await world.until(lambda: world.said("restart_declined"), 12 * HOUR_S)
    assert world.said("restart_declined") == ["restart declined: its restart budget is spent (10 of 10)"]
    assert world.counts() == [f"{n}/10" for n in range(1, 11)]
    assert [said.partition(")")[0] for said in world.said("stopping")] == [
        f"Stopping to restart ({n}/10" for n in range(1, 11)]
    assert backoffs(world) == [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
    await still(world)
    assert world.slurm.job(JOB)["requeued"] == 10


async def test_one_attempt_that_progresses_gives_all_back() -> None:
    world = VirtualWorld(lambda restarts: 660 if restarts == 3 else 300)
    await world.until(lambda: len(world.intents()) == 6, 6 * HOUR_S)
    assert world.counts() == ["1/10", "2/10", "3/10", "1/10", "2/10", "3/10"]
    assert backoffs(world)[:5] == [10, 20, 40, 10, 20]


@pytest.mark.parametrize(("progress_s", "counts"), [
    (4 * HOUR_S, ["1/10", "2/10", "1/10"]), (300, ["1/10", "2/10", "3/10"])])
async def test_an_attempt_that_ended_without_us(progress_s: float, counts: list[str]) -> None:
    """It progressed for hours, then its node failed; the next one stalls at once. A short one gives nothing back."""
    world = VirtualWorld(lambda restarts: progress_s if restarts == 2 else 300 if restarts < 2 else 5)
    await world.until(running(world, 2), 2 * HOUR_S)
    began = world.now
    await world.until(lambda: world.now - began > progress_s - 20, 5 * HOUR_S)
    world.requeued_by_others()
    await world.until(lambda: len(world.intents()) == 3, HOUR_S)
    assert world.counts() == counts


async def test_requeues_by_others_spend_nothing() -> None:
    world = VirtualWorld(lambda restarts: 300)
    for restarts in range(1, 8, 2):
        await world.until(running(world, restarts), HOUR_S)
        began = world.now
        await world.until(lambda began=began: world.now - began > 120, HOUR_S)
        world.requeued_by_others()
    await world.until(lambda: len(world.intents()) == 5, HOUR_S)
    assert world.slurm.job(JOB)["restarts"] == 9
    assert world.counts() == [f"{n}/10" for n in range(1, 6)]
    assert [intent.restarts for intent in world.intents()] == [0, 2, 4, 6, 8]


async def test_what_ranks_say_while_they_are_stopped_is_no_progress() -> None:
    """Progress for 5 min, a stall of half an hour (its job is held), and a line at the stop: nothing comes back."""
    world = VirtualWorld(lambda restarts: 300)
    await world.until(running(world, 1), HOUR_S)
    world.slurm.job(JOB)["priority"] = 0
    await still(world)
    assert world.said("restart_declined") == ["restart declined: the job is held: once requeued it would stay so"]
    world.slurm.job(JOB)["priority"] = 1000
    await world.until(lambda: world.stops.jobs, HOUR_S)
    world.progress_s = lambda restarts: 1e9 if restarts == 1 else 300
    await world.until(lambda: len(world.intents()) == 3, HOUR_S)
    assert (world.counts(), world.store.last_that_gave_back(JOB)) == (["1/10", "2/10", "3/10"], None)


async def test_a_time_of_day_that_is_set_while_no_controller_runs_is_no_progress() -> None:
    world = VirtualWorld(lambda restarts: 300, toml="[restart]\nmax_restarts_total = 0\n")
    await world.until(lambda: world.said("restart_declined"), HOUR_S)
    (before,) = world.passes.memory
    for set_by in (3600.0, -7200.0):
        world.set_by = set_by
        world.start()
        began = world.now
        await world.until(lambda began=began: world.now - began > 120, HOUR_S)
        assert [finding.key for finding in world.passes.memory] == [before.key]
    assert world.kinds() == ["stalled", "restart_declined"]
    world.progress_s = lambda restarts: 1e9
    await world.until(lambda: "progress" in world.kinds(), 300)
    assert world.store.open_findings() == []


async def test_keys_are_forgotten_with_the_job_and_never_used_twice() -> None:
    world = VirtualWorld(lambda restarts: 1e9 if 2000 < world.now < 2300 else 300,
                         toml="[restart]\nmax_restarts_total = 0\n")
    await world.until(lambda: world.passes.memory, HOUR_S)
    await world.until(lambda: not world.passes.memory, HOUR_S)
    assert world.passes._used
    del world.fleet.jobs[JOB]
    world.passes.forget()
    assert world.passes._used == {}
    world.progress_s = lambda restarts: 300
    await world.until(lambda: world.passes.memory, HOUR_S)
    assert world.passes.memory[0].key.endswith("stalled/123-0#2")


def running(world: VirtualWorld, restarts: int) -> Callable[[], bool]:
    return lambda: (world.slurm.job(JOB)["restarts"], world.slurm.job(JOB)["state"]) == (restarts, "RUNNING")


def backoffs(world: VirtualWorld) -> list[int]:
    """From each decision to the begin time of the next attempt."""
    return [round(at + seconds - (intent.stopped_at or 0))
            for (at, seconds), intent in zip(world.begins, world.intents(), strict=True)]


async def still(world: VirtualWorld) -> None:
    """Half an hour passes."""
    began = world.now
    await world.until(lambda: world.now - began > 1800, HOUR_S)
