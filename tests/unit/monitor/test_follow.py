"""Output files that are followed as they grow: where they are read on, what they say, what of it is output."""


from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.tree import Identity
from astraeus_monitor.probes import follow
from astraeus_monitor.probes.children import LATE, Probes
from astraeus_monitor.probes.follow import ASK_ENCODER, Counted, FileAsk, FileRead, Follow, FollowAsk
from astraeus_monitor.rounds.follower import Follower, decoded
from astraeus_monitor.sources.chatter import Repeats

from .test_nccl_log import BAR, CAUGHT, MARK
from .test_probes import Rig
from .test_tail import NOBODY, ROOT, Holder

STUCK = (MARK + CAUGHT + "\n").encode()
RESTART = b"INFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group\n"


class Reader:
    """Follows one file as the monitor would."""

    def __init__(self, path: Path, holder: Identity, reader: Follow | None = None) -> None:
        self.path, self.holder, self.reader = path, holder, reader or Follow(Proc())
        self.offset: int | None = None
        self.before, self.now = b"", 100.0
        self.counted: list[Counted] = []

    def ask(self, **more: object) -> FileAsk:
        here = self.path.stat()
        values = {"ino": here.st_ino, "path": str(self.path), "holders": [self.holder], "offset": self.offset,
                  "before": self.before} | more
        return FileAsk(**values)  # type: ignore[arg-type]

    def look(self, **more: object) -> FileRead:
        self.now += 15
        answers = list(self.reader.look(FollowAsk(os.geteuid(), self.now, [self.ask(**more)])))
        read = answers[0]
        assert isinstance(read, FileRead)
        self.counted = [one for one in answers if isinstance(one, Counted)]
        if not read.fault:
            self.offset, self.before = read.offset, read.before
        return read

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    found: list[Holder] = []
    yield found
    for one in found:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def log(tmp_path: Path, holders: list[Holder]) -> Reader:
    path = tmp_path / "out"
    path.write_bytes(b"of an attempt before: " + STUCK)
    holders.append(Holder(path))
    return Reader(path, holders[0].id)


def kinds(read: FileRead) -> list[tuple[str, int | None]]:
    return [(word.kind, word.seq) for word in read.words]


def test_what_stood_there_before_is_another_attempts(log: Reader) -> None:
    assert log.look(pos=0).words == []
    assert log.offset == log.path.stat().st_size
    log.add(b"step 1\n")
    assert kinds(log.look()) == []
    log.add(STUCK)
    assert kinds(log.look()) == [("stuck", 808)]
    assert kinds(log.look()) == []  # told once


def test_files_that_are_cut_and_files_that_are_written_anew(log: Reader) -> None:
    log.look()
    log.add(b"x" * 5000 + b"\n")
    log.look()
    log.path.write_bytes(STUCK)  # shorter than the place where we stood
    assert kinds(log.look()) == [("stuck", 808)]
    log.path.write_bytes(b"step 1\n" + STUCK + b"y" * 5000 + b"\n")  # and beyond it within one look
    assert kinds(log.look()) == [("stuck", 808)]
    os.truncate(log.path, 0)  # copied away, while the writer goes on at his place: a hole full of NULs
    assert log.offset
    with log.path.open("r+b") as file:
        file.seek(log.offset)
        file.write(b"1350>" + STUCK)
    assert kinds(log.look()) == [("stuck", 808)]


def test_what_stood_in_a_short_file_before_is_not_told_with_what_is_appended(log: Reader) -> None:
    log.path.write_bytes(b"EngineDeadError\n")
    log.look()
    log.add(b"step 1, and so on until there is more than is compared\n")
    read = log.look()
    assert (kinds(read), read.offset) == ([], log.path.stat().st_size)
    log.add(STUCK)
    assert kinds(log.look()) == [("stuck", 808)]


def test_a_hole_of_a_terabyte_and_a_line_of_a_gigabyte(log: Reader) -> None:
    log.look()
    size = log.path.stat().st_size
    os.truncate(log.path, 1 << 40)
    with log.path.open("r+b") as file:
        file.seek(1 << 40)
        file.write(STUCK)
    read = log.look()
    assert (kinds(read), read.skipped, read.behind) == ([("stuck", 808)], 0, False)
    os.truncate(log.path, size)
    log.look()
    log.add((BAR * 40000 + MARK + CAUGHT + BAR * 40000).encode())  # 8 MB without an end
    read = log.look()
    assert (kinds(read), read.rest) == ([("stuck", 808)], True)
    assert len(log.reader.files[log.path.stat().st_ino].log.rest) <= 3000


def test_a_line_without_end_waits_for_the_next_look(log: Reader) -> None:
    log.look()
    log.add((BAR + MARK + CAUGHT[:90]).encode())
    assert (kinds(read := log.look()), read.rest) == ([], True)
    log.add(CAUGHT[90:].encode())
    assert kinds(log.look()) == []
    assert (kinds(read := log.look(settle=True)), read.rest) == ([("stuck", 808)], False)


def test_a_restart_clears_what_was_said(log: Reader) -> None:
    log.look()
    log.add(STUCK + RESTART + b"[Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 30000 ms\n")
    read = log.look()
    assert (read.restarted, [word.ranks for word in read.words]) == (True, [(4, 5)])


def test_what_grows_faster_than_it_is_read(log: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BYTES_MAX", 1 << 20)
    monkeypatch.setattr(follow, "BEHIND_MAX", 2 << 20)
    monkeypatch.setattr(follow, "BEHIND_KEPT", 1 << 19)
    log.look()
    log.add(b"step 1 loss 0.3\n" * (3 << 16) + STUCK)
    read = log.look()
    assert (kinds(read), read.behind) == ([("stuck", 808)], False)
    assert read.skipped == (3 << 20) + len(STUCK) - (1 << 19)
    log.add(b"step 1 loss 0.3\n" * (3 << 15) + STUCK)  # 1.5 MiB: within what may be made up for
    read = log.look()
    assert (kinds(read), read.behind, read.skipped) == ([], True, 0)
    assert kinds(log.look()) == [("stuck", 808)]


def test_lines_that_are_no_progress(log: Reader) -> None:
    def fresh(text: bytes, **more: object) -> tuple[bool, bool]:
        log.add(text)
        log.look(ignore=("^heartbeat [0-9]+$", "TCPStore"), tasks=4, **more)
        [counted] = log.counted
        return counted.fresh, counted.undecided

    log.look()
    assert fresh(b"heartbeat 1\r\nheartbeat 2\n3: heartbeat 17\n[W] sendBytes failed on TCPStore\n") == (False, False)
    assert fresh(b"heartbeat 3\nstep 1\n") == (True, False)
    assert fresh(b"9: heartbeat 3\n") == (True, False)  # of no rank: it is no label
    assert fresh(b"heart") == (False, True)
    assert fresh(b"beat 4\n") == (False, False)
    assert fresh(b"heartbeat 4", settle=True) == (False, False)
    log.add(b"\nx\n")
    log.look(ignore=("a(",))
    assert log.counted[0].fresh
    assert log.counted[0].fault == '"a(" is no regular expression; write one that grep -E takes'


def test_lines_that_repeat_on_a_clock(log: Reader) -> None:
    log.look()
    for turn in range(8):
        log.add(b"step %d loss 0.%d\n" % (turn, turn) if turn in (0, 3) else b"")
        log.add(b"[W1229 22:06:%d.480 ProcessGroupNCCL.cpp:1662] Failed to check\n" % turn * 15)
        if turn % 4 == 0:
            log.add(b"INFO 12-09 11:25:5%d [shm_broadcast.py:466] No available block in 60 seconds\n" % turn)
        read = log.look()
    assert read.chatter is not None
    assert read.chatter.line.endswith("Failed to check")
    assert (read.chatter.every_s, read.chatter.other_s) == (1.0, 45.0)  # the line each minute is not known as one yet


def test_long_lines_are_not_kept_whole() -> None:
    repeats = Repeats()
    for look in range(100):
        repeats.add(b"x" * (look + 1) + b"y" * 200_000 + b"\n")
        repeats.look(15.0 * look)
    assert len(repeats.kinds) == 64
    assert sum(len(text) + len(kind.line) for text, kind in repeats.kinds.items()) < 100_000


def test_a_heartbeat_between_looks_that_are_close(log: Reader) -> None:
    log.look()
    for turn in range(16):
        log.add(b"heartbeat 1\n" * (3 if turn % 2 else 2))
        log.now -= 10
        read = log.look()
    assert read.chatter is not None
    assert (read.chatter.line, read.chatter.every_s) == ("heartbeat 1", 2.0)


def test_prints_at_its_own_will_are_no_chatter(log: Reader) -> None:
    log.look()
    for turn in range(12):
        log.add(b"loss 1\n" * (turn * turn % 5))
        read = log.look()
    assert read.chatter is None


def test_a_child_that_is_asked_again_and_one_whose_pattern_never_ends(holders: list[Holder], tmp_path: Path) -> None:
    rig = Rig()
    path = tmp_path / "out"
    path.write_bytes(b"")
    holders.append(Holder(path))
    log, follower = Reader(path, holders[0].id), Follower("follow 7", Proc(), rig.selector, rig.clock,
                                                          Probes(rig.selector, rig.clock))

    def answer(deadline_s: float = 5, **more: object) -> tuple[list[FileRead | Counted], str]:
        count = len(rig.got)
        data = ASK_ENCODER.encode(FollowAsk(os.geteuid(), 100.0, [log.ask(**more)]))
        assert follower.ask(data, rig.done, deadline_s) == ""
        for _ in range(1000):
            for key, _ in rig.selector.select(0.02):
                key.data()
            follower.sweep()
            if len(rig.got) > count:
                break
        lines, why = rig.got[-1]
        return decoded(lines), why

    [read], why = answer()
    assert (read, why) == (FileRead(path.stat().st_ino), "")
    assert Path(f"/proc/{follower.pid}/oom_score_adj").read_text() == "1000\n"
    pid, log.offset = follower.pid, 0
    log.add(STUCK)
    [read], why = answer()
    assert isinstance(read, FileRead)
    assert (kinds(read), follower.pid) == ([("stuck", 808)], pid)
    log.offset, log.before = read.offset, read.before
    log.add(b"a" * 900 + b"\n")
    [read], why = answer(0.3, ignore=(r"(((((a+)+)+)+)+)\1\2\3\4\5b",))  # what was read is told all the same
    assert (read.fault, why) == ("", LATE)
    assert follower.pid == 0
    follower.stop()
    rig.selector.close()


@ROOT
def test_it_reads_no_more_than_the_user_could(holders: list[Holder], tmp_path: Path) -> None:
    """A file of root's that a user's process holds open for writing is not shown to him."""
    os.chmod(tmp_path, 0o755)
    path = tmp_path / "secret"
    path.write_bytes(STUCK)
    path.chmod(0o600)
    holders.append(Holder(path, NOBODY))
    rig = Rig()
    log = Reader(path, holders[0].id)
    follower = Follower("follow 7", Proc(), rig.selector, rig.clock, Probes(rig.selector, rig.clock))
    assert follower.ask(ASK_ENCODER.encode(FollowAsk(NOBODY, 100.0, [log.ask(offset=0)])), rig.done) == ""
    rig.until(lambda: len(rig.got) > 0)
    [read] = decoded(rig.got[0][0])
    assert read.fault == "Permission denied"
    follower.stop()
    rig.selector.close()
