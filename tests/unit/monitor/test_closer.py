"""Closer looks: where main threads are, how connections stand, who was killed; only while a step is quiet."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host import inet_diag, oom, ties
from astraeus_monitor.host.cgroups import CgroupFiles, cgroups_of
from astraeus_monitor.host.inet_diag import Connection
from astraeus_monitor.host.oom import OomWatch
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.probes.closer import CloserWatch, EdgeSeen, EdgesSeen, PlaceSeen, look_closer
from astraeus_monitor.rounds import closers
from astraeus_monitor.rounds.looks import Looks
from astraeus_monitor.talk.obey import obey
from astraeus_monitor.watch.job import JobWatch
from astraeus_protocol.report import Reply

from .conftest import FakeProc
from .test_job import FACTS, STEP

FUTEX = "202 0x1 0x80 0x0 0x0 0x0 0x0 0x7f 0x7f"


def main_thread(proc: FakeProc, pid: int, channel: str, call: str = FUTEX, *, user: int = 0, system: int = 0) -> None:
    home = proc.path / str(pid)
    (home / "wchan").write_text(channel)
    (home / "syscall").write_text("running" if channel == "0" else call)
    (home / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
    fields = ["0"] * 50
    fields[0], fields[11], fields[12], fields[17] = "S", str(user), str(system), "7"
    (home / "task" / str(pid) / "stat").write_text(f"{pid} (python3) {' '.join(fields)}\n")


def test_the_mode_of_25_samples_and_its_share(proc: FakeProc) -> None:
    proc.add(10)
    proc.add(11)
    main_thread(proc, 10, "futex_do_wait")
    main_thread(proc, 11, "0")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        main_thread(proc, 10, "0" if len(pauses) % 5 == 0 else "futex_do_wait", user=3, system=1)

    found = [line for line in look_closer(proc, [(10, 10), (11, 11), (12, 12), (10, 9)], sleep, lambda: iter(()))
             if isinstance(line, PlaceSeen)]
    assert [(p.pid, p.channel, p.call, p.share, p.samples, p.threads) for p in found] == [
        (10, "futex_do_wait", "futex", 0.84, 25, 7), (11, "", "", 1.0, 25, 7)]
    assert found[0].user == pytest.approx(3 * found[0].system, abs=0.3)
    assert found[0].system > 0
    assert 0.9 <= sum(pauses) <= 1.1
    assert len(set(pauses)) > 2  # no clock of the process's own is met at the same place each time


def test_connections_are_those_of_the_oldest_process(proc: FakeProc) -> None:
    ends = {"A": "0100007F:0001", "B": "0100007F:0002"}
    proc.add(os.getpid())  # in the same network namespace: a real PID 10 was there to enter on most machines only
    proc.add(10, fds={3: "socket:[5]", 4: "socket:[6]"})
    proc.add(11, 10, fds={3: "socket:[5]"})  # its data loader, forked
    shown = [Connection(5, ends["A"], ends["B"], 400, 1000, 0, 0, 0, 9000, 8000),
             Connection(7, ends["B"], ends["A"], 0, 0, 3, 20, 8, 9000, 8000)]
    own, forked = [line for line in look_closer(proc, [(11, 11), (10, 10)], lambda s: None, lambda: iter(shown))
                   if isinstance(line, EdgesSeen)]
    assert (own.pid, own.edges) == (10, [EdgeSeen(ties.number(ends["B"], ends["A"]), 400, 1000, 0, 0, 0, 9000, 8000)])
    assert (forked.pid, forked.edges) == (11, [])

    def refused() -> Iterator[Connection]:
        raise OSError(2, "No such file or directory")
        yield

    assert [line.fault for line in look_closer(proc, [(10, 10)], lambda s: None, refused)
            if isinstance(line, EdgesSeen)] == ["No such file or directory"]


def test_the_kernel_tells_of_a_peer_that_does_not_read() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as client, server.accept()[0] as peer, server:
        client.sendall(b"x" * 5000)
        until = time.monotonic() + 5
        while True:
            seen = {one.inode: one for one in inet_diag.connections()}
            mine, its = (seen[os.fstat(end.fileno()).st_ino] for end in (client, peer))
            if its.queued == 5000 or time.monotonic() > until:
                break
        assert (its.queued, its.read, mine.queued, mine.backoff) == (5000, 0, 0, 0)
        known = ties.established(Proc().sockets(os.getpid()))
        assert known[mine.inode] == (mine.local, mine.remote)
        assert ties.number(mine.local, mine.remote) == ties.number(its.local, its.remote)


def test_answers_that_are_cut_or_old() -> None:
    assert list(inet_diag.parse(b"")) == list(inet_diag.parse(b"\x10\0\0\0\x14\0")) == []
    assert list(inet_diag.parse((20).to_bytes(4, "little") + b"\x14\0" + bytes(14))) == []


@pytest.mark.parametrize(("lines", "file", "text", "kills"), [
    ("0::/slurm/job_7/step_0/user/task_1\n", "slurm/job_7/step_0/memory.events", "oom 3\noom_kill 2\n", 2),
    ("0::/slurm/job_7/step_0/user/task_1\n", "slurm/job_7/memory.events", "oom_kill 1\n", 1),
    ("0::/slurm/job_7/step_0/user/task_1\n", "slurm/memory.events", "oom_kill 9\n", None),  # others' too
    ("0::/user.slice\n", "user.slice/memory.events", "oom_kill 4\n", 4),
    ("0::/\n", "memory.events", "oom_kill 4\n", None),
    ("4:memory:/slurm/uid_1/job_7/step_0\n0::/\n", "memory/slurm/uid_1/job_7/step_0/memory.oom_control",
     "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
    ("4:memory:/slurm/uid_1/job_7/step_0\n", "memory/slurm/uid_1/job_7/step_0/memory.oom_control",
     "oom_kill_disable 0\nunder_oom 0\n", None),  # before Linux 4.13
    ("0::/x\n", "unified/x/memory.events", "oom_kill 0\n", 0),
])
def test_kills_for_lack_of_memory(tmp_path: Path, lines: str, file: str, text: str, kills: int | None) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(lines)
    place = tmp_path / "cgroup" / file
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert oom.kills(cgroups_of(Proc(str(tmp_path / "proc")), 7), CgroupFiles(str(tmp_path / "cgroup"))) == kills


def test_kills_count_from_when_the_watch_began() -> None:
    watch = OomWatch()
    for at, count in ((10.0, None), (25.0, 3), (40.0, 3)):
        watch.see(count, at)
    assert watch.record(45.0) is None
    watch.see(5, 55.0)
    watch.see(5, 70.0)
    assert (watch.record(75.0).kills, watch.record(75.0).s) == (2, 20.0)  # type: ignore[union-attr]


def test_for_how_long_nothing_is_read() -> None:
    watch = CloserWatch()
    for at, read in ((100.0, 1000), (110.0, 5000), (120.0, 5000), (130.0, 5000)):
        watch.see(EdgesSeen(10, 10, [EdgeSeen(1, 400, read, 0, 0, 0, 2000, 3000)]), at)
    [edge] = watch.edges_told(135.0)
    assert (edge.queued, edge.unread_s, edge.sent_s, edge.rcvd_s) == (400, 25.0, 7.0, 8.0)
    assert watch.edges_told(230.0) == []


def test_only_quiet_steps_are_looked_at_closer(tmp_path: Path) -> None:
    job = JobWatch(7, {**FACTS, "gpus": ""}, tmp_path, 0.0, 5)
    job.feed("0", [("step", STEP), *(("task", {"rank": str(r), "pid": str(100 + r), "start": str(100 + r)})
                                     for r in range(2))], 0.0)
    step = job.steps["0"]
    for rank, worker in step.workers.items():
        worker.roster.see([ProcLook(100 + rank, 100 + rank, 1, "python3", worker=True)])
    first, second = step.processes()

    def beat(process: object, begin: int, rates: list[float]) -> None:
        count = 1000.0 * begin
        for place, rate in enumerate(rates):
            process.pulse.sample(5.0 * (begin + place), int(count))  # type: ignore[attr-defined]
            count += 5 * rate

    for process in (first, second):
        process.state = "S"
        beat(process, 0, [60.0] * 9)
    assert closers.ask(job, 40.0) == []
    assert not step.marks(40.0)[4]
    for process in (first, second):
        process.pulse.quiet, process.pulse.quiet_since = 2, 40.0
    assert closers.ask(job, 50.0) == [(100, 100), (101, 101)]
    assert closers.ask(job, 55.0) == []
    assert closers.ask(job, 60.0) == [(100, 100), (101, 101)]
    line = b'{"type":"place","pid":100,"start":100,"channel":"futex_do_wait","call":"futex","share":1.0,"samples":25,'
    closers.seen(job, [(100, 100), (101, 101)], [line + b'"user":0,"system":0,"switches":0,"threads":7}', b"nonsense"],
                 "no answer before the deadline", 61.0)
    told = first.record(62.0, 100.0, ties=False).place
    assert told is not None
    assert (told.channel, told.s, told.threads) == ("futex_do_wait", 1.0, 7)
    assert step.marks(62.0)[4]
    assert second.closer.fault == "no answer before the deadline"
    for process in (first, second):
        process.pulse.quiet, process.pulse.quiet_since = 0, None
    assert closers.ask(job, 75.0) == []
    assert first.record(75.0, 100.0, ties=False).place is None
    looks = Looks(selectors.DefaultSelector(), Clock(), Proc(), lambda: None)
    looks.jobs[7] = job
    obey(Reply(nonce="n", closer=["7.0"], tied=["7.0"]), looks)
    assert closers.ask(job, 90.0) == [(100, 100), (101, 101)]  # also who works: others wait for it
    obey(Reply(nonce="n", tied=["7.0"]), looks)
    assert closers.ask(job, 200.0) == []
