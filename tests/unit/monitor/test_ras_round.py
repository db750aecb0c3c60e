"""When a step's NCCL RAS is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes.children import BUSY, Probes, encode_line
from astraeus_monitor.probes.ras import RasLook
from astraeus_monitor.rounds.ras import OFF, RasRound
from astraeus_monitor.watch.job import JobWatch
from astraeus_monitor.watch.step import StepWatch
from astraeus_protocol.devices import Ras


class FakeProbes:
    """Keeps what is begun; ``answer`` ends it."""

    def __init__(self) -> None:
        self.running: dict[str, Callable[[list[bytes], str], None]] = {}
        self.begun: list[str] = []

    def start(self, kind: str, lines: Any, done: Callable[[list[bytes], str], None], deadline_s: float) -> str:
        if kind in self.running:
            return BUSY
        self.running[kind] = done
        self.begun.append(kind)
        return ""

    def answer(self, kind: str, *lines: RasLook, why: str = "") -> None:
        self.running.pop(kind)([encode_line(line) for line in lines], why)


class FakeJob:
    def __init__(self, job: int, *steps: StepWatch) -> None:
        self.job, self.dropped, self.steps = job, False, {step.step: step for step in steps}


def test_only_who_is_asked_for_and_each_30_s() -> None:
    step, other, probes = StepWatch("0", {}, 0, 5), StepWatch("1", {}, 0, 5), FakeProbes()
    jobs = cast("dict[int, JobWatch]", {7: FakeJob(7, step, other)})
    rounds = RasRound(cast(Probes, probes), Proc(), Clock(), lambda: None)
    rounds.due(jobs, 100.0)
    assert probes.begun == []
    step.ras_asked = True
    rounds.due(jobs, 100.0)
    rounds.due(jobs, 200.0)
    assert probes.begun == ["ras 7.0"], "never two of one step at once"
    probes.answer("ras 7.0", RasLook(Ras(version="2.30.7", of=3), "8:1"))
    assert rounds.known == {"8:1": "2.30.7"}
    step.ras.asked_at = 200.0
    rounds.due(jobs, 229.0)
    assert len(probes.begun) == 1
    rounds.due(jobs, 230.0)
    assert len(probes.begun) == 2
    probes.answer("ras 7.0", why="no answer before the deadline")
    record = step.ras.record(231.0)
    assert record is not None
    assert (record.of, record.unknown) == (3, ""), "what was said stands until it is too old"
    step.ras_asked = False
    rounds.due(jobs, 260.0)
    assert step.ras.record(260.0) is None, "it works again"
    assert len(probes.begun) == 2


def test_the_site_can_switch_it_off() -> None:
    step, probes = StepWatch("0", {}, 0, 5), FakeProbes()
    rounds = RasRound(cast(Probes, probes), Proc(), Clock(), lambda: None)
    rounds.allow(False, "2.27.3", True)
    assert (rounds.policy.least, rounds.policy.text) == ((2, 27, 3), True)
    step.ras_asked = True
    rounds.due(cast("dict[int, JobWatch]", {7: FakeJob(7, step)}), 100.0)
    record = step.ras.record(100.0)
    assert record is not None
    assert (probes.begun, record.unknown) == ([], OFF)
