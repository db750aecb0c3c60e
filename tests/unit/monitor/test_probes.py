"""Children with deadlines: answers, hangs, crashes; exits of processes that are not ours to wait for."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.exits import Exits
from astraeus_monitor.probes.children import Probes
from astraeus_monitor.probes.look import Ask, TaskAsk
from astraeus_monitor.probes.servant import Servant
from astraeus_monitor.rounds.looks import Looks

from .conftest import FakeProc
from .test_job import FACTS, STEP


class Word(msgspec.Struct):
    text: str


class Rig:
    """A selector that is turned until something holds."""

    def __init__(self) -> None:
        self.selector, self.clock = selectors.DefaultSelector(), Clock()
        self.got: list[tuple[list[bytes], str]] = []
        self.sweeps: list[Callable[[], None]] = []

    def done(self, lines: list[bytes], why: str) -> None:
        self.got.append((lines, why))

    def until(self, holds: Callable[[], bool], seconds: float = 5) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come about"
            for key, _ in self.selector.select(0.02):
                key.data()
            for sweep in self.sweeps:
                sweep()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.selector.close()


def hang() -> Iterator[Word]:
    yield Word("before")
    signal.pause()


class TestProbes:
    def test_one_that_was_left_behind_is_seen_to_end_also_where_its_job_is_gone(self, rig: Rig) -> None:
        probes = Probes(rig.selector, rig.clock)
        probes.left_behind["look 7"] = subprocess.Popen(["true"]).pid
        rig.sweeps.append(probes.sweep)
        rig.until(lambda: not probes.left_behind)

    def test_an_answer(self, rig: Rig) -> None:
        probes = Probes(rig.selector, rig.clock)
        assert probes.start("a", lambda: [Word("x"), Word("y" * 200_000)], rig.done) == ""
        rig.until(lambda: bool(rig.got))
        lines, why = rig.got[0]
        assert (why, [len(msgspec.json.decode(line)["text"]) for line in lines]) == ("", [1, 200_000])
        assert probes.running == {}

    def test_a_late_one_is_killed_and_what_came_counts(self, rig: Rig) -> None:
        probes = Probes(rig.selector, rig.clock)
        rig.sweeps.append(probes.sweep)
        probes.start("a", hang, rig.done, deadline_s=0.3)
        assert probes.start("a", hang, rig.done) == "the look before has not ended"
        assert probes.start("b", lambda: [Word("z")], rig.done) == ""
        pid = probes.running["a"].pid
        rig.until(lambda: len(rig.got) == 2)
        assert rig.got == [([b'{"text":"z"}'], ""), ([b'{"text":"before"}'], "no answer before the deadline")]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_crash_is_an_early_end(self, rig: Rig) -> None:
        def crash() -> Iterator[Word]:
            yield Word("before")
            raise RuntimeError("no")

        Probes(rig.selector, rig.clock).start("a", crash, rig.done)
        rig.until(lambda: bool(rig.got))
        assert rig.got == [([b'{"text":"before"}'], "")]

    def test_it_inherits_nothing(self, rig: Rig) -> None:
        kept = os.open("/dev/null", os.O_RDONLY)
        Probes(rig.selector, rig.clock).start(
            "a", lambda: [Word(name) for name in os.listdir("/proc/self/fd")], rig.done)
        rig.until(lambda: bool(rig.got))
        os.close(kept)
        # 0 to 2, its pipe, and the folder that it lists
        assert len(rig.got[0][0]) == 5


def echo(ask: int, reply: int) -> None:
    with os.fdopen(ask, "rb") as lines:
        for line in lines:
            if line == b"hang\n":
                signal.pause()
            os.write(reply, line)


class TestServant:
    def test_it_stays_and_ends_with_its_pipe(self, rig: Rig) -> None:
        servant = Servant("echo", echo, rig.selector, rig.clock)
        assert servant.ask(b"one", rig.done) == ""
        pid = servant.pid
        rig.until(lambda: len(rig.got) == 1)
        assert servant.ask(b"two", rig.done) == ""
        rig.until(lambda: len(rig.got) == 2)
        assert (rig.got, servant.pid) == ([([b"one"], ""), ([b"two"], "")], pid)
        servant.stop()
        assert servant.pid == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_one_that_hangs_is_killed_and_rests(self, rig: Rig) -> None:
        servant = Servant("echo", echo, rig.selector, rig.clock, deadline_s=0.2, rest_s=0.3)
        rig.sweeps.append(servant.sweep)
        servant.ask(b"hang", rig.done)
        assert servant.ask(b"more", rig.done) == "the question before has no answer yet"
        rig.until(lambda: bool(rig.got))
        assert rig.got == [([], "does not answer")]
        assert servant.stuck == 1
        assert servant.ask(b"more", rig.done) == "did not answer and rests"
        rig.until(lambda: servant.ask(b"more", rig.done) == "")
        rig.until(lambda: len(rig.got) == 2)
        assert rig.got[1] == ([b"more"], "")
        servant.stop()


class HangingProc(FakeProc):
    """Its process 103 has an environment that never answers, as with a page that a dead server holds."""

    def environ(self, pid: int) -> dict[str, str]:
        if pid == 103:
            signal.pause()
        return super().environ(pid)


def test_a_process_that_hangs_costs_its_own_worker_only(rig: Rig, tmp_path: Path) -> None:
    from astraeus_monitor.watch.job import JobWatch

    proc = HangingProc(tmp_path / "proc")
    seen: list[int] = []
    looks = Looks(rig.selector, rig.clock, proc, lambda: seen.append(1))
    job = JobWatch(7, {**FACTS, "gpus": ""}, tmp_path, rig.clock.boot(), 5)
    job.feed("0", [("step", {**STEP, "at": "0"})], rig.clock.boot())
    for pid in (102, 103, 104):
        proc.add(pid, 5)
        job.feed("0", [("task", {"rank": str(pid - 100), "pid": str(pid), "start": str(pid)})], rig.clock.boot())
    looks.jobs[7] = job
    rig.sweeps.append(looks.sweep)
    looks.due(rig.clock.boot(), 15, "c9")
    rig.until(lambda: bool(seen))
    workers = {w.rank: w for w in job.record(rig.clock.boot(), "c9").steps[0].workers}
    assert [p.pid for p in workers[2].processes] == [102]
    assert workers[3].unknown[0].reason == "/proc of rank 3 does not answer"
    assert workers[4].unknown[0].reason == "/proc of rank 3 does not answer"
    looks.due(rig.clock.boot() + 15, 15, "c9")
    rig.until(lambda: len(seen) == 2)
    workers = {w.rank: w for w in job.record(rig.clock.boot(), "c9").steps[0].workers}
    assert [p.pid for p in workers[4].processes] == [104]  # the one that hung comes last now
    assert workers[3].processes == []
    looks.stop()


def test_those_that_answered_before_come_first(tmp_path: Path) -> None:
    from astraeus_monitor.watch.job import JobWatch

    job = JobWatch(7, FACTS, tmp_path, 1000, 5)
    job.feed("0", [("step", STEP)], 1000)
    for rank in range(3):
        job.feed("0", [("task", {"rank": str(rank), "pid": str(10 + rank), "start": "1"})], 1000)
    for rank, why in enumerate(("hangs", "", "not reached")):
        job.steps["0"].workers[rank].missed = why
    job.steps["0"].workers[0].suspect = True
    ask: Ask = job.ask(1000)
    assert [task.rank for task in ask.tasks] == [1, 2, 0]
    assert all(isinstance(task, TaskAsk) for task in ask.tasks)


def test_how_a_strangers_child_ended(rig: Rig) -> None:
    told: list[int] = []
    exits = Exits(rig.selector, lambda: told.append(1))
    # The shell fetches its child's status, so there is no zombie for us to read.
    shell = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo $!; wait; read y"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdout
    assert shell.stdin
    child = int(shell.stdout.readline())
    exits.watch(child, 1)
    os.kill(child, signal.SIGKILL)
    rig.until(lambda: bool(told))
    end = time.monotonic() + 2
    while exits.status(child, 1) is None and time.monotonic() < end:
        time.sleep(0.01)
    status = exits.status(child, 1)
    assert status == 9 or (status is None and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15))
    exits.keep(set())
    assert exits.fds == {}
    shell.stdin.close()
    shell.wait(5)
    assert sys.platform == "linux"
