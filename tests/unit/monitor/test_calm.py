"""What is left undone while all is plainly well, and what ends that."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from astraeus_monitor.config import Config
from astraeus_monitor.loop import Monitor

from .conftest import FakeClock, FakeProc
from .test_job import Lab


@pytest.fixture
def calm(proc: FakeProc, tmp_path: Path) -> Lab:
    """A step over its first minute whose ranks switch 20 times a second."""
    lab = Lab(proc, tmp_path / "job")
    work(lab)
    lab.look()
    for _ in range(16):
        work(lab)
        lab.tick()
    lab.look()
    for _ in range(2):
        work(lab)
        lab.tick()
    assert not lab.job.uneasy
    return lab


def work(lab: Lab, **odd: str) -> None:
    """Both ranks have worked until now; ``odd``: state of rank 2's process."""
    lab.proc.add(5, comm="slurmstepd")
    for pid in (102, 103):
        state = odd.get("state", "S") if pid == 102 else "S"
        lab.proc.add(pid, 5, switches=int(20 * (lab.now + 5)), state=state, env={"RANK": str(pid - 100)})


def test_a_young_step_is_looked_at_closely(proc: FakeProc, tmp_path: Path) -> None:
    lab = Lab(proc, tmp_path / "job")
    work(lab)
    lab.look()
    for _ in range(11):
        work(lab)
        lab.tick()
        lab.look()
        assert lab.job.uneasy


@pytest.mark.parametrize("state", ["T", "D"])
def test_a_state_that_is_not_plainly_well(calm: Lab, state: str) -> None:
    work(calm, state=state)
    calm.tick()
    assert calm.job.uneasy
    work(calm)
    calm.tick()
    assert calm.job.uneasy, "what has just ended is to be told, too"
    for _ in range(2):
        work(calm)
        calm.tick()
    assert not calm.job.uneasy


def test_a_zombie_is_no_rank_at_work(calm: Lab) -> None:
    work(calm, state="Z")
    calm.tick()
    assert calm.job.uneasy


def test_the_first_quiet_window_is_looked_into(calm: Lab) -> None:
    calm.tick()  # nobody has switched since
    assert calm.job.uneasy


def test_what_the_controller_asks_of_a_step(calm: Lab) -> None:
    calm.job.steps["0"].ras_asked = True
    work(calm)
    calm.tick()
    assert calm.job.uneasy


def deep_looks(lab: Lab, seconds: int) -> list[float]:
    """Seconds at which a look was a deep one, over so long; one each 15 s."""
    began, found = lab.now, []
    for at in range(5, seconds + 5, 5):
        work(lab)
        lab.tick()
        if at % 15 == 0:
            deep = lab.job.deep_at
            lab.look()
            found += [lab.now - began] * (lab.job.deep_at != deep)
    return found


def test_deep_looks_are_seldom_where_the_one_before_found_nothing_new(calm: Lab) -> None:
    deep_looks(calm, 120)
    times = deep_looks(calm, 600)
    assert [b - a for a, b in pairwise(times)] == [120.0] * (len(times) - 1)
    assert len(times) == 5


def test_after_a_new_process_they_come_each_minute(calm: Lab) -> None:
    deep_looks(calm, 120)
    calm.proc.add(200, 103, comm="loader")
    first = deep_looks(calm, 180)
    assert first
    assert calm.job.deep_every in (55, 115)
    assert [p.id for p in calm.job.steps["0"].workers[3].roster.processes] == [(103, 103)]


@pytest.mark.parametrize(("since", "until", "goes"), [
    (20, 10, True), (29, 0.5, True), (20, 14, False), (5, 10, False)])
def test_a_regular_report_goes_with_a_look(proc: FakeProc, clock: FakeClock, tmp_path: Path, since: float,
                                           until: float, goes: bool) -> None:
    monitor = Monitor(Config(state_dir=str(tmp_path / "run")), proc=proc, clock=clock, printer=lambda data: None)
    monitor.next_s, monitor.last_sent, monitor.report_at = 30.0, clock.now - since, clock.now + until
    monitor._judge()
    assert monitor.report_at == (clock.now if goes else clock.now + until)


def test_a_report_that_is_wanted_soon_comes_at_its_own_time(proc: FakeProc, clock: FakeClock, tmp_path: Path) -> None:
    monitor = Monitor(Config(state_dir=str(tmp_path / "run")), proc=proc, clock=clock, printer=lambda data: None)
    monitor.next_s, monitor.last_sent, monitor.report_at = 5.0, clock.now - 2, clock.now + 3
    monitor._judge()
    assert monitor.report_at == clock.now + 3
