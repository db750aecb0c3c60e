"""When the driver is asked and let go."""

from __future__ import annotations

import selectors
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from astraeus_monitor.rounds.gpus import AGAIN_S, MARK, REST_S, Gpus
from astraeus_monitor.sources.gpu import Answer


class FakeServant:
    """Takes every question; ``late`` lets the next sweep give it up."""

    def __init__(self) -> None:
        self.pid, self.until, self.not_before, self.late = 0, None, 0.0, False
        self.asked: list[bytes] = []

    def ask(self, request: bytes, done: Any) -> str:
        self.pid = self.pid or 77
        self.asked.append(request)
        self.done = done
        return ""

    def sweep(self) -> None:
        if self.late:
            self.pid, self.late = 0, False
            self.done([], "does not answer")

    def stop(self) -> None:
        self.pid = 0


class World:
    def __init__(self, state: Path) -> None:
        self.now, self.told = 1000.0, []
        job = SimpleNamespace(has_gpus=lambda: True, gpus=SimpleNamespace(indices=[0]),
                              see_gpus=lambda answer, now: self.told.append(answer))
        self.job: Any = job
        clock: Any = SimpleNamespace(boot=lambda: self.now)
        self.gpus = Gpus(selectors.DefaultSelector(), clock, {1: job}, state_dir=state)
        self.gpus.driver = self.driver = FakeServant()  # type: ignore[assignment]


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / MARK).write_text("5\n")  # of a monitor that was killed
    return World(tmp_path)


def test_the_mark_stands_while_the_driver_may_be_open(world: World, tmp_path: Path) -> None:
    """And the driver rests once a job left: but never for ever on a node of many short jobs."""
    assert not (tmp_path / MARK).exists()
    world.gpus.look()
    assert (tmp_path / MARK).read_text() == "77\n"
    world.gpus.left(world.job)
    assert (world.driver.pid, (tmp_path / MARK).exists()) == (0, False)
    world.now += REST_S - 5
    world.gpus.look()
    world.gpus.left(world.job)
    assert len(world.driver.asked) == 1
    world.now += 6
    world.gpus.look()
    assert len(world.driver.asked) == 2


def test_the_gpu_that_hangs_is_left_out(world: World, tmp_path: Path) -> None:
    world.gpus.look()
    world.gpus.child.tell(5)  # in the child: it asks the GPU in place 4
    world.driver.late = True
    world.gpus.sweep()
    assert world.told == [Answer(fault="driver not answering")]
    assert not (tmp_path / MARK).exists()
    world.now += 15
    world.gpus.look()
    assert world.driver.asked[-1] == b"read 4"
    world.now += AGAIN_S
    world.gpus.look()
    assert world.driver.asked[-1] == b"read"
