"""A heterogeneous job, stalled in its second component: all components are stopped, told and scheduled together."""

from __future__ import annotations

from pathlib import Path

import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.may_restart import may_restart
from astraeus_controller.actions.way import Stop, all_gone
from astraeus_controller.rules.picture import Picture
from astraeus_controller.slurm.jobs import Jobs
from fake_slurm import job
from service_kit import FakeCommands, finding
from test_may_restart import gather, picture, process, step, worker
from test_own_stop import exited, orders
from test_restart import CLOSING, Bench, Died, Mortal

SECOND = {"het": "122", "het_offset": "1"}


def bench(folder: Path, stop: Stop | None = None) -> Bench:
    """Job 122+0 and 122+1, whose id is 123; the leader began a second later."""
    one = Bench(folder, stop, comment="mine", **SECOND)
    one.slurm.state["jobs"]["122"] = job(122, het="122", het_offset="0", start="2026-11-29T13:50:01", comment="yours")
    one.stops.begin = lambda number, restarts, lines: one.stops.asked.append(  # type: ignore[method-assign]
        {"job": str(number), **lines})
    return one


def leader(one: Bench) -> dict[str, object]:
    return one.slurm.job(122)


def check(one: Bench) -> None:
    """Both once, both told, both their users' again."""
    for component, text in ((one.job, "mine"), (leader(one), "yours")):
        assert (component["requeued"], component["restarts"], component["state"]) == (1, 1, "RUNNING")
        assert (component["comment"], component["admin_comment"]) == (text, CLOSING)
    assert (one.outcome(), one.kinds().count("requeued")) == ("restarted", 1)


async def test_all_components_are_restarted_together(tmp_path: Path) -> None:
    one = bench(tmp_path)
    await one.life()
    check(one)
    assert orders(one.slurm) == [["scontrol", "requeue", "incomplete", "122"]]
    assert [asked["job"] for asked in one.stops.asked] == ["123", "122"]
    updates = one.slurm.called("scontrol", "update")
    assert ["jobid=122", "StartTime=now+10"] in [argv[2:] for argv in updates]
    for named in ("122+0", "122+1"):
        mine = [" ".join(argv[3:]) for argv in updates if argv[2] == f"jobid={named}"]
        assert "cause=stalled" in mine[0]
        assert "cause=stalled" in mine[1]


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_killed_at_a_command(tmp_path: Path, at: int) -> None:
    one = bench(tmp_path, Stop("USR1", 40, "steps"))
    leader(one)["ranks_gone"] = one.job["ranks_gone"] = True
    try:
        await one.life(Mortal(one.slurm, at, after=bool(at % 2)))
    except Died:
        await one.life()
    check(one)


async def test_its_script_is_frozen_where_it_runs(tmp_path: Path) -> None:
    one = bench(tmp_path, Stop("USR1", 40, "steps"))
    one.job["ranks_gone"] = True
    await one.life()
    check(one)
    assert [argv[-1] for argv in orders(one.slurm)] == ["122+0", "122", "122", "122"]


async def test_what_was_restarted_once_counts_for_all_components(tmp_path: Path) -> None:
    one = bench(tmp_path)
    await one.life()
    assert [intent.jobs for intent in one.store.restarts_of(122, 123)] == [(123, 122)]
    components = await Jobs(FakeCommands(one.slurm)).components(122)
    assert [(facts.job, facts.named) for facts in components] == [(122, "122+0"), (123, "122+1")]


@pytest.mark.parametrize(("other", "gone"), [
    (picture(step("0", exited(0))), True), (picture(step("0", worker(0))), False),
    (picture(step("batch", worker(0))), True), (picture(), True), (picture(settled=False), False), (None, False)])
def test_all_gone(other: Picture | None, gone: bool) -> None:
    assert all_gone([picture(step("0", exited(0))), other], 0, full=False) is gone
    assert not all_gone([picture(step("0", worker(0))), other], 0, full=False)


def test_what_declines_a_restart_in_another_component() -> None:
    stuck = picture(step("0", worker(0)))
    in_d = picture(step("0", worker(1, processes=(process(state="D", state_s=30.0),))))
    silent = picture(step("0", worker(1)), silent_nodes=("c3", "c4"))
    assert may_restart(gather(stuck, others={124: picture(step("0", worker(1)))})).answer == "yes"
    assert "state D" in may_restart(gather(stuck, others={124: in_d})).sentence
    assert may_restart(gather(stuck, others={124: silent})).sentence == "2 of its nodes are silent (c3 and 1 more)"


def test_a_step_of_another_component_that_progresses() -> None:
    busy = picture(step("1", worker(0, output_s=1.0)), step("0", worker(1, output_s=1.0)))
    assert evidence._component_beside(finding(), {124: busy}) == f"{busy.job.run}.1"
    assert evidence._component_beside(finding(), {124: picture(step("0", worker(0, output_s=1.0))), 125: None}) == ""
