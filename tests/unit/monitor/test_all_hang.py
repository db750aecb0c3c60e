"""Nothing that is asked answers: reports come on time, and what is not known is told as unknown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from astraeus_monitor.config import Config
from astraeus_monitor.host import survey
from astraeus_monitor.loop import Monitor
from astraeus_monitor.probes import looker, tail
from astraeus_monitor.rounds import looks
from astraeus_monitor.rounds.looks import Looks
from astraeus_protocol import report

from .conftest import FakeProc

EVERY_S, FOR_S = 1.0, 8.0
"""Between two reports; a look's deadline is 2 s."""


def hang(*_: Any, **__: Any) -> Iterator[Any]:
    """A file system, a port, a driver that never answers."""
    while True:
        time.sleep(60)
        yield from ()


def hang_at_once(*_: Any, **__: Any) -> None:
    for _ in hang():
        pass


def test_all_hang(proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((looks, "look"), (looker, "look"), (looks, "scrape"), (looks, "look_closer"),
                         (survey, "survey"), (tail, "read")):
        monkeypatch.setattr(module, name, hang)
    monkeypatch.setattr(Looks.__init__, "__defaults__", (None, hang_at_once, None))
    for pid in (10, 11):
        proc.add(pid, env={"RANK": "0"}, start=1)
    steps = tmp_path / "run" / "jobs" / "7" / "steps"
    steps.mkdir(parents=True)
    (steps / "0").write_text("step v=1 job=7 step=0 nodes=1 tasks=2 nodelist=c1\ntask rank=0 local=0 pid=10 start=1\n"
                             "task rank=1 local=1 pid=11 start=1\n")
    (steps.parent / "job").write_text("nonce=n1\njob=7\nnode=c1\ngpus=0\nuid=0\nstall_after=60\nby=prolog\n"
                                      "progress_metric=step\nmetrics_port=9000\n")
    came: list[tuple[float, report.Report]] = []
    monitor = Monitor(Config(state_dir=str(tmp_path / "run"), pulse_s=1, interval_s=5), proc=proc,
                      printer=lambda body: came.append((time.monotonic(), report.REPORT_DECODER.decode(body))))
    monitor.print_every_s = EVERY_S
    monitor.open()
    began = time.monotonic()
    thread = threading.Thread(target=lambda: monitor.run(until=lambda: time.monotonic() - began > FOR_S))
    thread.start()
    thread.join(FOR_S + 10)
    assert not thread.is_alive()
    times = [at for at, _ in came]
    assert max(b - a for a, b in pairwise(times)) < EVERY_S + 1
    for worker in came[-1][1].jobs[0].steps[0].workers:
        assert (worker.output_s, worker.cpu_idle_s, worker.writing_s) == (None, None, None)
        told = {one.source: one.reason for one in worker.unknown}
        assert set(told) >= {"output", "cpu", "written", "gpu", "metric"}, told
        assert all("deadline" in why or "not answer" in why for why in told.values()), told
    assert not monitor.looks.probes.running, "children are left"
