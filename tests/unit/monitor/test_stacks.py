"""Python stacks on demand: a py-spy that answers, fails, hangs or floods; whom it is never let at; what is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from astraeus_monitor import config
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes import pyspy
from astraeus_monitor.probes.tail import TailAsk
from astraeus_monitor.rounds import tails
from astraeus_monitor.rounds.looks import Looks
from astraeus_monitor.talk import build
from astraeus_monitor.talk.obey import obey
from astraeus_monitor.watch.step import StepWatch
from astraeus_protocol import report
from astraeus_protocol.readings import Stack, ThreadStack

from .conftest import FakeClock, FakeProc
from .test_job import Lab
from .test_job import lab as lab  # the fixture
from .test_probes import Rig

ASK = report.TakeStacks(job=7, nonce="n1", ask="a1")


def frame(name: str, file: str, line: int) -> dict[str, object]:
    """As py-spy 0.4.3 prints one."""
    return {"name": name, "filename": f"/x/{file}", "module": None, "short_filename": file, "line": line,
            "locals": None, "is_entry": False, "is_shim_entry": False}


def thread(os_id: int | None, *frames: dict[str, object], name: str = "MainThread") -> dict[str, object]:
    return {"pid": 1, "thread_id": 140667308525248, "thread_name": name, "os_thread_id": os_id, "active": False,
            "owns_gil": False, "frames": list(frames), "process_info": None}


WAITS = [frame("Condition.wait", "threading.py", 327), frame("Event.wait", "threading.py", 629)]
LOCK = [frame("next_batch", "loader.py", 41), frame("main", "train.py", 88)]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.selector.close()


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], str]:
    """Makes a py-spy of a shell script's lines. Each way of calling it leaves a folder in ``py-spy.calls``: it may
    write no file."""
    def make(script: str) -> str:
        path = tmp_path / "py-spy"
        path.write_text(f'#!/bin/sh\nmkdir -p "$0.calls/$* HOME=$HOME PWD=${{PWD#/}}"\n{script}\n')
        path.chmod(0o755)
        return str(path)
    return make


def prints(tmp_path: Path, what: object) -> str:
    """A script line that prints JSON."""
    (tmp_path / "answer").write_bytes(msgspec.json.encode(what))
    return f"cat {tmp_path / 'answer'}"


class TestParse:
    def test_main_thread_by_its_id_and_the_others_folded(self) -> None:
        data = msgspec.json.encode([thread(9, *WAITS, name="w1"), thread(8, *WAITS, name="w0"), thread(7, *LOCK)])
        look = pyspy.parse(data, 7, 70, {7})
        assert look.frames == ["next_batch (loader.py:41)", "main (train.py:88)"]
        assert look.threads == [ThreadStack("w1", 2, ["Condition.wait (threading.py:327)",
                                                            "Event.wait (threading.py:629)"])]

    @pytest.mark.parametrize(("data", "why"), [
        (b"", "can't be read"), (b"null", "can't be read"), (b"\xff", "can't be read"),
        (b"[" * 200_000, "can't be read"),
        (b'[{"frames": [{"line": 1' + b"0" * 5000 + b"}]}]", "can't be read"), (b"[]", "runs no Python"),
        (msgspec.json.encode([thread(8, *WAITS), thread(9, *WAITS)]), "runs no Python")])
    def test_what_is_no_answer(self, data: bytes, why: str) -> None:
        look = pyspy.parse(data, 7, 70, {7})
        assert why in look.unknown
        assert look.frames == look.threads == []

    def test_bounded_and_printable(self) -> None:
        evil = [frame("\x1b[31m\n" + "é" * 500, "a\x00b", 3)] * 200
        threads = [thread(100 + n, frame(f"f{n}", "a.py", n), name="\x07" * 900) for n in range(200)]
        look = pyspy.parse(msgspec.json.encode([thread(7, *evil), *threads]), 7, 70, {7})
        assert (len(look.frames), len(look.threads)) == (24, 32)
        assert all(len(one) <= 120 and one.isprintable() for one in look.frames)
        assert {one.name for one in look.threads} == {""}

    def test_native_frames_without_a_symbol_are_the_same_in_every_process(self) -> None:
        data = msgspec.json.encode([thread(7, frame("0x7fa3c39c672e", "libc.so.6", 0), *LOCK)])
        assert pyspy.parse(data, 7, 70, {7}).frames[:2] == ["? (libc.so.6)", "next_batch (loader.py:41)"]

    def test_one_thread_alone_is_the_main_one(self) -> None:
        """In a PID namespace whose ids are not known."""
        assert pyspy.parse(msgspec.json.encode([thread(None, *LOCK)]), 7, 70, {7}).frames[0].startswith("next_batch")


class TestRun:
    @pytest.mark.parametrize(("script", "why"), [
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1",
         "py-spy: Failed to find python version from target process"),
        ("exit 3", "py-spy ended with 3"), ("kill -11 $$", "py-spy ended with -11"),
        ("exec yes", "longer than 256 KiB"), ("exec yes >&2", "longer than 256 KiB"),
        ("trap '' TERM; sleep 9", "no answer from py-spy before the deadline"),
        ("exec >&- 2>&-; sleep 9", "no answer from py-spy before the deadline")])
    def test_faults(self, fake: Callable[[str], str], script: str, why: str) -> None:
        began = time.monotonic()
        _, said, hangs = pyspy.run(fake(script), 1, native=False, until=began + 0.3)
        assert (why in said, hangs) == (True, 0), said
        assert time.monotonic() - began < 0.3 + 0.3

    def test_it_is_not_there(self) -> None:
        assert pyspy.run("/nonexistent", 1, native=False, until=time.monotonic() + 1)[1:] == (
            "py-spy: /nonexistent can't be run: No such file or directory", 0)

    def test_what_it_is_called_with(self, fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/secret")
        path = fake("cat; ulimit -c; ulimit -f; ulimit -d; cat /proc/self/oom_score_adj")
        assert pyspy.run(path, 42, native=False, until=time.monotonic() + 2) == (b"0\n0\n131072\n1000\n", "", 0)

    def test_two_late_ones_and_the_rest_is_left_out(self, fake: Callable[[str], str], proc: FakeProc,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pyspy, "DEADLINE_S", 0.05)
        targets = [pyspy.Target((pid, pid)) for pid in (101, 102, 103)]
        for target in targets:
            proc.add(target.id[0])
        said = [look.unknown for look in pyspy.dump(proc, fake("exec sleep 9"), targets)]
        assert said == ["no answer from py-spy before the deadline"] * 2 + [
            "py-spy was late on other processes of this job"]


class TestWhom:
    @pytest.mark.parametrize(("state", "native", "why"), [
        ("D", False, "uninterruptible sleep"), ("Z", False, "zombie"), ("t", False, "a debugger holds it"),
        ("T", True, "its native frames can't be read"), ("T", False, ""), ("S", True, "")])
    def test_states(self, proc: FakeProc, fake: Callable[[str], str], tmp_path: Path, state: str, native: bool,
                    why: str) -> None:
        proc.add(101, state=state)
        path = fake(prints(tmp_path, [thread(101, *LOCK)]))
        [look] = pyspy.dump(proc, path, [pyspy.Target((101, 101))], native)
        assert (why in look.unknown, bool(look.frames)) == (True, not why)
        assert (tmp_path / "py-spy.calls").exists() == (not why)

    def test_never_under_a_debugger_nor_another_process(self, proc: FakeProc, fake: Callable[[str], str],
                                                        tmp_path: Path) -> None:
        proc.add(101)
        status = proc.path / "101" / "status"
        status.write_text(status.read_text().replace("TracerPid:\t0", "TracerPid:\t55"))
        proc.add(102, start=999)
        looks = pyspy.dump(proc, fake("exit 0"), [pyspy.Target((101, 101)), pyspy.Target((102, 102)),
                                                  pyspy.Target((103, 103))])
        assert [look.unknown for look in looks] == ["a debugger holds it", "it is gone", "it is gone"]
        assert not (tmp_path / "py-spy.calls").exists()


class Node:
    """A monitor's looks over a fake job, and what it would report."""

    def __init__(self, rig: Rig, lab: Lab, setting: str) -> None:
        self.rig, self.lab, self.told = rig, lab, 0
        lab.look()
        lab.tick()
        self.looks = Looks(rig.selector, rig.clock, lab.proc, lambda: None, self.tell)
        self.looks.jobs[7] = lab.job
        self.looks.stacks.setting = setting
        rig.sweeps.append(self.looks.sweep)

    def tell(self) -> None:
        self.told += 1

    def obey(self, command: report.TakeStacks = ASK) -> bool:
        return obey(report.Reply("n", commands=[command]), self.looks)

    def reported(self) -> report.Stacks | None:
        return build.jobs([self.lab.job], self.lab.now, "c1", self.looks.stacks)[0].stacks


def test_a_command_is_answered_until_it_arrived(rig: Rig, lab: Lab, fake: Callable[[str], str],
                                                tmp_path: Path) -> None:
    node = Node(rig, lab, fake(prints(tmp_path, [thread(102, *LOCK), thread(103, *WAITS)])))
    assert not node.obey()
    assert not node.obey(), "the same again, while it is read"
    rig.until(lambda: node.told == 1)
    stacks = node.reported()
    assert stacks
    assert (stacks.ask, stacks.native, stacks.unknown) == ("a1", False, "")
    assert [(s.pid, s.step, s.rank, s.frames[0]) for s in stacks.taken] == [
        (102, "0", 2, "next_batch (loader.py:41)"), (103, "0", 3, "Condition.wait (threading.py:327)")]
    assert node.reported() is not None
    assert not obey(report.Reply("n"), node.looks)
    assert node.reported() is None, "it has arrived"
    assert node.obey(), "the answer was lost: it is told again, not read again"
    assert node.reported() == stacks
    calls = {path.name for path in (tmp_path / "py-spy.calls").iterdir()}
    assert calls == {f"dump --json --nonblocking --pid {pid} HOME= PWD=" for pid in (102, 103)}
    node.obey(report.TakeStacks(job=7, nonce="n1", ask="a2", native=True, step="0"))
    rig.until(lambda: node.told == 2)
    assert (tmp_path / "py-spy.calls" / "dump --json --native --pid 103 HOME= PWD=").exists()
    node.looks.left(lab.job)
    assert node.reported() is None


def test_the_end_of_the_output_comes_with_it(rig: Rig, lab: Lab, fake: Callable[[str], str], tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def source(job: object, step: StepWatch) -> tails.Source | None:
        return tails.Source(0.0, TailAsk(os.geteuid(), "/home/a/out.txt", [(999_999, 1)], None, 1))

    monkeypatch.setattr(tails, "source", source)
    node = Node(rig, lab, fake(prints(tmp_path, [thread(102, *LOCK), thread(103, *WAITS)])))
    node.obey()
    rig.until(lambda: node.reported() is not None)
    stacks = node.reported()
    assert stacks
    assert stacks.taken
    assert [(end.step, end.log, end.lines, end.unknown) for end in stacks.ends] == [
        ("0", "/home/a/out.txt", [], "no process holds it any more")]
    assert tails.end(lab.job.steps["0"], "x", [b'{"lines": ["a\\u001b", "' + b"y" * 300 + b'"]}'], "").lines == [
        "a ", "y" * 200]


@pytest.mark.parametrize(("setting", "step", "why"), [
    ("off", "", "switched stacks off"), ("/nonexistent/py-spy", "", "can't be run"),
    ("/bin/true", "5", "no worker process of it runs here")])
def test_unknown_with_its_reason(rig: Rig, lab: Lab, setting: str, step: str, why: str) -> None:
    node = Node(rig, lab, setting)
    assert node.obey(report.TakeStacks(job=7, nonce="n1", ask="a1", step=step)), "told at once"
    stacks = node.reported()
    assert stacks
    assert (why in stacks.unknown, stacks.taken) == (True, [])


def test_another_attempts_command(rig: Rig, lab: Lab) -> None:
    node = Node(rig, lab, "off")
    assert not node.obey(report.TakeStacks(job=7, nonce="n0", ask="a1"))
    assert node.reported() is None


def test_one_that_can_not_be_killed_is_left_behind(rig: Rig, lab: Lab, fake: Callable[[str], str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(rig, lab, fake("exit 0"))
    lab.proc.add(900, comm="py-spy")
    monkeypatch.setattr(pyspy, "run", lambda *_, **__: (b"", "no answer from py-spy before the deadline", 900))
    node.obey()
    rig.until(lambda: node.told == 1)
    assert node.looks.probes.stuck == 1
    stacks = node.reported()
    assert stacks
    assert [s.unknown for s in stacks.taken] == [
        "no answer from py-spy before the deadline", "py-spy hangs in the kernel on another process of this job"]
    assert node.obey(report.TakeStacks(job=7, nonce="n1", ask="a2")), "no other begins while it hangs"
    lab.proc.remove(900)
    assert not node.obey(report.TakeStacks(job=7, nonce="n1", ask="a3"))
    rig.until(lambda: node.told == 3)


def test_one_job_at_a_time(rig: Rig, lab: Lab, fake: Callable[[str], str], tmp_path: Path) -> None:
    answer = prints(tmp_path, [thread(102, *LOCK), thread(103, *LOCK)])
    node = Node(rig, lab, fake(f'mkdir "$0.lock" || exit 9\n{answer}\nrmdir "$0.lock"'))
    other = Lab(lab.proc, tmp_path / "8")
    other.look()
    other.job.job = 8
    node.looks.jobs[8] = other.job
    commands = [ASK, report.TakeStacks(job=8, nonce="n1", ask="b1")]
    assert not obey(report.Reply("n", commands=list(commands)), node.looks)
    rig.until(lambda: node.told == 2)
    for job, ask in ((lab.job, "a1"), (other.job, "b1")):
        stacks = node.looks.stacks.record(job, lab.now)
        assert stacks
        assert (stacks.ask, [s.unknown for s in stacks.taken]) == (ask, ["", ""])


def test_too_much_for_a_report() -> None:
    stack = Stack(1, 1, "0", 0, frames=["f" * 100], threads=[ThreadStack("t", 1, ["g" * 900])])
    job = report.Job(7, "n", stacks=report.Stacks("a1", taken=[stack] * 10))
    made = report.Report("c1", "b", "s", 1, "n", 0.0, jobs=[job])
    build.encode(made, 5000)
    assert job.stacks
    assert [(s.frames, s.threads) for s in job.stacks.taken] == [(["f" * 100], [])] * 10
    build.encode(made, 500)
    assert job.stacks == report.Stacks("a1", unknown=build.TOO_MUCH)


def test_its_setting() -> None:
    assert config.check({"stacks": "off"}, "a").stacks == "off"
    with pytest.raises(config.ConfigFault, match='write "auto", "off" or'):
        config.check({"stacks": "py-spy"}, "a")


def test_the_real_one_on_a_real_process(tmp_path: Path) -> None:
    """Eight threads, the main one waits for a lock that it holds itself."""
    program = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if not os.access(program, os.X_OK):
        pytest.skip("py-spy is not installed here")
    (tmp_path / "stuck.py").write_text(
        "import threading\n"
        "for n in range(7): threading.Thread(target=threading.Event().wait, name=f'w{n}', daemon=True).start()\n"
        "def next_batch():\n    lock = threading.Lock()\n    lock.acquire()\n"
        "    print(flush=True)\n    lock.acquire()\n"
        "next_batch()\n")
    with subprocess.Popen([sys.executable, tmp_path / "stuck.py"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        stat = Proc().stat(process.pid)
        assert stat
        [look] = pyspy.dump(Proc(), program, [pyspy.Target((stat.pid, stat.start))])
        process.kill()
    assert look.unknown == ""
    assert look.frames == ["next_batch (stuck.py:7)", "<module> (stuck.py:8)"]
    assert [(one.count, one.frames[0].partition(" ")[0]) for one in look.threads] == [(7, "Condition.wait")]


def test_the_clock_is_not_read_for_nothing(lab: Lab) -> None:
    looks = Looks(Rig().selector, FakeClock(), lab.proc, lambda: None)
    looks.stacks.next()
    assert looks.stacks.record(lab.job, 5) is None
