"""The child that stays and looks: answers in shared memory, hangs, crashes, asks that are too long."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes.children import BUSY, Probes
from astraeus_monitor.probes.look import Ask, Memory, SrunAsk, TaskAsk
from astraeus_monitor.probes.looker import Area, Looker
from astraeus_monitor.rounds.lines import sort_lines
from astraeus_protocol import report

from .conftest import FakeProc
from .test_probes import Rig


class OddProc(FakeProc):
    """Process 103 never answers, the reader of 104 fails."""

    def environ(self, pid: int) -> dict[str, str]:
        if pid == 103:
            signal.pause()
        if pid == 104:
            raise RuntimeError("no")
        return super().environ(pid)


class Lab:
    def __init__(self, rig: Rig, proc: Proc) -> None:
        self.rig, self.memory = rig, Memory()
        self.probes = Probes(rig.selector, rig.clock)
        self.looker = Looker(proc, rig.selector, rig.clock, self.probes, lambda: {7: self.memory})
        rig.sweeps += [self.probes.sweep, self.looker.sweep]

    def ask(self, *pids: int, known: list[int] | None = None) -> Ask:
        return Ask(7, [TaskAsk("0", pid, pid, pid, known=known or []) for pid in pids], [], 1000.0,
                   {(pid, pid): False for pid in known or []}, {(9, 9): True})

    def start(self, ask: Ask, deadline_s: float = 5) -> str:
        return self.looker.start("look 7", ask, self.rig.done, deadline_s)

    def answer(self) -> tuple[list[int], list[int], str]:
        """(ranks seen, ranks begun, why)"""
        count = len(self.rig.got)
        self.rig.until(lambda: len(self.rig.got) > count)
        lines, why = self.rig.got[-1]
        tasks, _, began = sort_lines(lines)
        return [t.rank for t in tasks], [b.rank for b in began], why


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    proc = OddProc(tmp_path / "proc")
    for pid in (102, 103, 104, 105):
        proc.add(pid, env={"RANK": str(pid)})
    rig = Rig()
    lab = Lab(rig, proc)
    yield lab
    lab.looker.stop()
    rig.selector.close()


def test_it_stays_and_remembers(lab: Lab) -> None:
    assert lab.start(lab.ask(102, 105)) == ""
    assert lab.start(lab.ask(102)) == BUSY
    assert lab.answer() == ([102, 105], [102, 105], "")
    pid = lab.looker.pid
    lab.looker.proc.add(102, env={"RANK": "another"})  # type: ignore[attr-defined]
    lab.start(lab.ask(102))
    assert lab.answer() == ([102], [102], "")
    assert lab.looker.pid == pid
    tasks, _, _ = sort_lines(lab.rig.got[-1][0])
    assert tasks[0].procs[0].rank == "RANK=102"  # facts of a process are read once
    lab.looker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_hangs_is_killed_and_what_it_saw_counts(lab: Lab) -> None:
    lab.start(lab.ask(102, 103, 105), deadline_s=0.3)
    pid = lab.looker.pid
    assert lab.answer() == ([102], [102, 103], "no answer before the deadline")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    lab.start(lab.ask(105))
    assert lab.answer() == ([105], [105], "")


def test_a_crash_is_an_early_end(lab: Lab) -> None:
    lab.start(lab.ask(102, 104, 105))
    assert lab.answer() == ([102], [102, 104], "")
    assert lab.looker.pid == 0
    assert not lab.looker.busy


def test_one_killed_by_others_between_two_looks_is_made_anew(lab: Lab) -> None:
    lab.start(lab.ask(102))
    lab.answer()
    os.kill(lab.looker.pid, signal.SIGKILL)
    lab.rig.until(lambda: lab.looker.pid == 0)
    assert lab.start(lab.ask(102)) == ""
    assert lab.answer() == ([102], [102], "")


def test_one_left_behind_bars_its_own_job_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    import astraeus_monitor.probes.children as probes

    monkeypatch.setattr(probes, "reaped", lambda pid, patience=0: False)
    lab.start(lab.ask(103), deadline_s=0.1)
    assert lab.answer()[2] == "no answer before the deadline"
    assert (lab.probes.stuck, set(lab.probes.left_behind)) == (1, {"look 7"})
    assert lab.start(lab.ask(102)) == "the look before hangs in the kernel"
    assert lab.looker.start("look 8", lab.ask(102), lab.rig.done) == ""
    assert lab.answer()[2] == ""
    monkeypatch.undo()
    until = time.monotonic() + 10
    while lab.start(lab.ask(102)) != "":  # until the killed one can be reaped
        assert time.monotonic() < until
        time.sleep(0.01)
    assert lab.answer() == ([102], [102], "")


def test_a_long_ask_goes_to_a_child_of_its_own(lab: Lab) -> None:
    known = [102, *range(10_000, 30_000)]
    assert lab.start(lab.ask(102, known=known)) == ""
    assert lab.looker.pid == 0
    assert lab.answer() == ([102], [102], "")


def test_no_child_can_be_made(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", fail)
    assert lab.start(lab.ask(102)) == "no child for it: Resource temporarily unavailable"
    assert lab.probes.start("a", lambda: [], lab.rig.done) == "no child for it: Resource temporarily unavailable"
    monkeypatch.undo()
    monkeypatch.setattr(os, "pipe", fail)
    assert lab.start(lab.ask(102)) == "no child for it: Resource temporarily unavailable"
    assert lab.probes.start("a", lambda: [], lab.rig.done) == "no child for it: Resource temporarily unavailable"
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_inherits_nothing(lab: Lab) -> None:
    kept = os.open("/dev/null", os.O_RDONLY)
    lab.start(lab.ask(102))
    lab.answer()
    assert len(os.listdir(f"/proc/{lab.looker.pid}/fd")) == 5  # 0 to 2 and its two pipes
    os.close(kept)


def test_an_answer_without_room() -> None:
    area = Area(10)
    area.begin()
    area.add(b"12345\n")
    with pytest.raises(OverflowError):
        area.add(b"678910\n")
    assert area.take() is None
    area.begin()
    assert area.take() == b""


def test_an_srun_that_is_gone_says_nothing(lab: Lab) -> None:
    ask = Ask(7, [], [SrunAsk("0", 999, 999)], 1000.0, {}, {})
    assert lab.start(ask) == ""
    assert lab.answer() == ([], [], "")
    assert isinstance(lab.rig.selector, selectors.BaseSelector)
    assert isinstance(lab.rig.clock, Clock)


def test_a_job_whose_srun_hangs_is_unknown_and_then_looked_at_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import astraeus_monitor.probes.looker
    from astraeus_monitor.rounds.looks import Looks
    from astraeus_monitor.watch.job import JobWatch

    from .test_job import FACTS, STEP

    class HangingSrun(FakeProc):
        def io(self, pid: int) -> dict[str, int]:
            if pid == 50:
                signal.pause()
            return super().io(pid)

    monkeypatch.setattr(astraeus_monitor.probes.looker.Looker.start, "__defaults__", (0.3,))
    rig, proc = Rig(), HangingSrun(tmp_path / "proc")
    seen: list[int] = []
    looks = Looks(rig.selector, rig.clock, proc, lambda: seen.append(1))
    now = rig.clock.boot()
    for number in (7, 8):
        job = looks.jobs[number] = JobWatch(number, {**FACTS, "gpus": ""}, tmp_path, now, 5)
        job.feed("0", [("step", STEP), ("task", {"rank": "2", "pid": "102", "start": "102"})], now)
    proc.add(102, 5)
    proc.add(50, comm="srun")
    step = looks.jobs[7].steps["0"]
    step.sruns, step.shared_seen = [(50, 50)], True
    rig.sweeps.append(looks.sweep)
    looks.due(now, 15, "c9")
    rig.until(lambda: len(seen) == 2)
    told = looks.jobs[7].record(rig.clock.boot(), "c9").steps[0]
    assert told.output_s is None
    assert told.unknown == [report.Unknown("output", "no answer before the deadline")]
    assert [p.pid for p in looks.jobs[8].record(now, "c9").steps[0].workers[0].processes] == [102]
    looks.due(now + 15, 15, "c9")
    assert list(looks.probes.running) == ["look 7"]  # a child of its own: nobody waits for it
    rig.until(lambda: len(seen) == 3)
    looks.stop()
    rig.selector.close()
