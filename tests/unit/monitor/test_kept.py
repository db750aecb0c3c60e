"""Descriptors that stay open: the same answers as a fresh reading, PIDs that come to another, limits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from astraeus_monitor.host.kept import Kept
from astraeus_monitor.host.procfs import Proc

from .conftest import FakeProc


def test_as_a_fresh_reading_and_gone_when_gone() -> None:
    kept, child = Kept(Proc()), subprocess.Popen(["sleep", "60"])
    for _ in range(2):
        stat, status = kept.stat(child.pid), kept.status(child.pid)
        assert stat is not None
        assert status is not None
        fresh = Proc().stat(child.pid)
        assert fresh is not None
        assert (stat.pid, stat.start, stat.ppid) == (child.pid, fresh.start, os.getpid())
    assert list(kept.files) == [child.pid]
    child.kill()
    child.wait()
    kept.tidy()
    kept.stat(child.pid)
    assert kept.status(child.pid) is None
    assert kept.stat(child.pid) is None
    assert kept.files == {}


def test_what_is_not_asked_for_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = Kept(Proc())
    kept.stat(os.getpid())
    kept.tidy()
    assert len(os.listdir("/proc/self/fd")) == before + 2
    kept.tidy()
    assert len(os.listdir("/proc/self/fd")) == before
    kept.stat(os.getpid())
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pid_that_came_to_another_is_opened_anew(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(10, start=5)
    kept = Kept(proc, keep=True)
    first = kept.stat(10)
    assert first is not None
    assert first.start == 5
    proc.add(10, start=6)
    old, pread = kept.files[10][0], os.pread

    def gone(fd: int, size: int, offset: int) -> bytes:
        if fd == old:
            raise ProcessLookupError
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", gone)
    second = kept.stat(10)
    assert second is not None
    assert second.start == 6
    kept.close()


def test_beyond_its_limit_it_reads_afresh(proc: FakeProc) -> None:
    kept = Kept(proc, keep=True)
    kept.limit = 1
    for pid in (10, 11):
        proc.add(pid, switches=pid)
        assert [s.switches for s in (kept.status(pid),) if s] == [pid]
    assert list(kept.files) == [10]
    kept.close()
    assert Path(proc.root).exists()


def test_who_switches_on_is_read_whole_each_third_round(proc: FakeProc) -> None:
    proc.add(10, start=5, ticks=100)
    kept, told = Kept(proc, keep=True), []
    files = [proc.path / "10" / name for name in ("stat", "status")]
    opened = [file.open("r+") for file in files]  # written in place: what stays open is to see it
    for switches, state, ticks in ((1, "S", 100), (2, "R", 110), (3, "T", 120), (4, "S", 130), (4, "S", 140),
                                   (5, "S", 150), (6, "Z", 160)):
        fields = files[0].read_text().split()
        fields[2], fields[13] = state, str(ticks)
        for file, text in zip(opened, (" ".join(fields), f"Name:\tpython3\nState:\t{state} (so)\nTracerPid:\t0\n"
                                       f"voluntary_ctxt_switches:\t{switches}\n"), strict=True):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
        stat, status = kept.stat(10), kept.status(10)
        assert stat is not None
        assert status is not None
        told.append((status.switches, stat.state, stat.ticks, stat.fresh))
        kept.tidy()
    assert told == [
        (1, "S", 100, True), (2, "R", 100, False), (3, "T", 100, False), (4, "S", 130, True),
        (4, "S", 140, True),  # it did not switch
        (5, "S", 140, False),
        (6, "Z", 160, True)]
