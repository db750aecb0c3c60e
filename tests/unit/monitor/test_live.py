"""The monitor against real processes of this machine: a bash wrapper around a ring of three, one stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from astraeus_monitor.config import Config
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.loop import Monitor
from astraeus_protocol import report

RING = """
import os, socket, sys, time
rank, ports = int(os.environ["RANK"]), [int(p) for p in sys.argv[1:]]
server = socket.create_server(("127.0.0.1", ports[rank]))
while True:
    try:
        right = socket.create_connection(("127.0.0.1", ports[(rank + 1) % 3]))
        break
    except OSError:
        time.sleep(0.02)
left, _ = server.accept()
n = 0
while True:
    if rank == 0:
        right.sendall(b"x")
        time.sleep(0.01)
    left.recv(1) or sys.exit()
    if rank:
        right.sendall(b"x")
    n += 1
    if n % 50 == 0:
        print("step", n, flush=True)
"""


class Lab:
    """A gang of three, its job directory, and a monitor in a thread that prints into ``reports``."""

    def __init__(self, tmp: Path) -> None:
        self.reports: list[tuple[float, report.Worker]] = []
        self.log, self.state = tmp / "out", tmp / "run"
        ports = " ".join(map(str, _free_ports(3)))
        script = f"for r in 0 1 2; do RANK=$r {sys.executable} -c '{RING}' {ports} & done; wait"
        with self.log.open("wb") as out:
            self.gang = subprocess.Popen(["bash", "-c", script], stdout=out, stderr=out, start_new_session=True)
        stat = Proc().stat(self.gang.pid)
        assert stat
        steps = self.state / "jobs" / "7" / "steps"
        steps.mkdir(parents=True)
        (steps / "0").write_text(f"step v=1 job=7 step=0 nodes=1 tasks=1 nodelist=c1\n"
                                 f"task rank=0 local=0 pid={stat.pid} start={stat.start}\n")
        (steps.parent / "job").write_text("nonce=n1\njob=7\nnode=c1\nstall_after=60\nby=prolog\n")
        self.pulse_s = 1.0
        self.begin()

    def begin(self) -> None:
        config = Config(state_dir=str(self.state), pulse_s=self.pulse_s, interval_s=5)
        self.monitor = Monitor(config, printer=self._take)
        self.monitor.print_every_s = 2
        self.monitor.open()
        self.thread = threading.Thread(target=self.monitor.run)
        self.thread.start()

    def end(self) -> None:
        self.monitor.stop()
        fd = os.open(self.state / "wake", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, b"x")
        os.close(fd)
        self.thread.join(10)

    def until(self, holds: Callable[[report.Worker], bool], seconds: float) -> report.Worker:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _, worker in self.reports[-1:]:
                if holds(worker):
                    return worker
            time.sleep(0.05)
        raise AssertionError(f"it did not come about in {seconds} s: {self.reports[-1:]}")

    def _take(self, body: bytes) -> None:
        made = report.REPORT_DECODER.decode(body)
        self.reports.append((time.monotonic(), made.jobs[0].steps[0].workers[0]))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.end()
    os.killpg(lab.gang.pid, signal.SIGKILL)
    lab.gang.wait(5)


def test_a_stopped_rank_is_seen_and_the_others_lose_their_pulse(lab: Lab) -> None:
    # Pulse windows of 1 s stand for those of 5 s.
    worker = lab.until(lambda w: len(w.processes) == 3 and all(p.pulse_gone_s == 0 for p in w.processes), 20)
    assert [p.rank for p in sorted(worker.processes, key=lambda p: p.rank)] == ["0", "1", "2"]
    assert all(p.comm.startswith("python") and (p.pulse_base or 0) > 2 for p in worker.processes)
    ties = [set(p.ties) for p in worker.processes]
    assert all(len(a & b) == 1 for a, b in ((ties[0], ties[1]), (ties[1], ties[2]), (ties[0], ties[2])))
    victim = worker.processes[1].pid
    os.kill(victim, signal.SIGSTOP)
    worker = lab.until(lambda w: any(p.pid == victim and p.state == "T" for p in w.processes), 2)
    worker = lab.until(lambda w: sum((p.pulse_gone_s or 0) > 0 for p in w.processes) == 2, 5)
    assert {p.pid: p.pulse_gone_s for p in worker.processes}[victim] is None
    quiet = worker.output_s or 0

    lab.end()  # clocks live on
    time.sleep(0.5)
    lab.reports.clear()
    lab.begin()
    worker = lab.until(lambda w: w.output_s is not None, 5)
    assert quiet < (worker.output_s or 0) < quiet + 8
    stopped = {p.pid: p for p in worker.processes}[victim]
    assert stopped.state == "T"
    assert (stopped.state_s or 0) > 1

    os.kill(victim, signal.SIGCONT)
    lab.until(lambda w: all(p.state != "T" for p in w.processes), 2)
    worker = lab.until(lambda w: (w.output_s or 9) < 2 and all(p.pulse_gone_s == 0 for p in w.processes), 12)
    os.kill(victim, signal.SIGKILL)
    worker = lab.until(lambda w: any(p.pid == victim and p.state == "X" for p in w.processes), 2)
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15):
        assert {p.pid: p.exit_status for p in worker.processes}[victim] == 9


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
