"""Output positions, bytes written, CPU, stopped intervals, ties, process rosters: pure rules in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from astraeus_monitor.host import ties
from astraeus_monitor.host.procfs import Socket, Stat
from astraeus_monitor.host.stopped import Stopped
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.probes.look import Ask, File, Memory, SrunLook, TaskAsk, TaskLook, look, output_kind
from astraeus_monitor.sources import output as out
from astraeus_monitor.sources.process import Roster
from astraeus_monitor.sources.written import TreeCpu, Written

from .conftest import FakeProc, tcp_line

MIB = 1 << 20


def files(*positions: int, path: str = "/out", ino: int = 1) -> list[File]:
    return [File(path, ino, pos) for pos in positions]


class TestGrowth:
    def test_first_look_is_a_base(self) -> None:
        assert out.Growth(0).moved(files(500), 130) is None

    def test_what_was_written_before_the_first_look_was_written_until_then(self) -> None:
        """Found late, a step that prints was silent since its start for nobody."""
        growth = out.Growth(100)
        growth.moved(files(500), 117)
        assert growth.last == 117
        nothing = out.Growth(100)
        nothing.moved(files(0), 117)
        assert nothing.last == 100

    def test_growth_truncation_and_standstill(self) -> None:
        growth = out.Growth(0)
        growth.moved(files(500), 130)
        assert growth.moved(files(510), 130) == 10
        assert growth.moved(files(510), 130) is None
        assert growth.moved(files(3), 130) == 507  # truncated and written anew

    def test_any_of_several_descriptions(self) -> None:
        growth = out.Growth(0)
        growth.moved(files(500, 20), 130)
        assert growth.moved(files(500, 20), 130) is None
        assert growth.moved(files(500, 530), 130) is not None

    def test_a_file_just_opened_says_nothing(self) -> None:
        growth = out.Growth(0)
        growth.moved(files(500), 130)
        assert growth.moved(files(500, 0), 130) is None
        assert growth.moved(files(500) + files(40, path="/new", ino=2), 130) == 40

    def test_let_go_and_opened_again(self) -> None:
        growth = out.Growth(0)
        growth.moved(files(500), 130)
        assert growth.moved([], 130) is None
        assert growth.moved(files(500), 130) is None

    def test_woke_after_a_quiet(self) -> None:
        growth = out.Growth(100)
        growth.grew(110)
        assert growth.woke_at == 0
        growth.grew(141)
        assert (growth.woke_at, growth.last) == (141, 141)

    def test_saved_and_continued(self) -> None:
        growth = out.Growth(100)
        growth.moved(files(500), 130)
        growth.grew(120)
        again = out.Growth(400)
        again.load(growth.save())
        assert again.moved(files(500), 130) is None
        assert again.last == 120
        assert again.moved(files(501), 130) == 1


class TestSruns:
    def test_who_wrote(self) -> None:
        sruns = out.Sruns()
        assert sruns.wrote([SrunLook("0", 5, 5, 100, 10), SrunLook("1", 6, 6, 100, 10)]) == {
            "0": (0, 0), "1": (0, 0)}
        wrote = sruns.wrote([SrunLook("0", 5, 5, 600, 20), SrunLook("1", 6, 6, 102, 12)])
        assert wrote == {"0": (500, 10), "1": (2, 2)}
        assert out.by_own_doing(wrote["0"], [wrote["1"]])
        assert not out.by_own_doing(wrote["1"], [wrote["0"]])  # single bytes: its threads wake each other
        assert out.by_own_doing((3, 1), [(0, 0)])
        assert not out.by_own_doing((0, 0), [])
        assert out.by_own_doing(None, [])

    def test_gap_is_the_median(self) -> None:
        gaps = out.Gaps()
        assert gaps.median() is None
        for at in (0, 10, 20, 80, 90):
            gaps.grew(at)
        assert gaps.median() == 10


@pytest.mark.parametrize(("to", "step", "said"), [
    ("", "0", ""), ("pipe", "0", ""), ("pty", "0", ""), ("null", "0", "output goes to /dev/null"),
    ("pty", "batch", "output goes to a terminal"), ("fifo", "0", "output goes to a FIFO"),
    ("pipe", "batch", "output goes into a pipe that nobody of the job reads"),
    ("nothing", "0", "no output file is open")])
def test_why_there_is_no_output(to: str, step: str, said: str) -> None:
    assert out.reason(to, step) == said


def test_kinds_of_output(proc: FakeProc, tmp_path: Path) -> None:
    import os

    (tmp_path / "log").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    proc.add(10, fds={1: str(tmp_path / "log"), 2: str(tmp_path / "pipe"), 3: "pipe:[4]", 4: "/dev/null",
                      5: "/dev/pts/3"}, pos={1: 42}, inos={1: 77})
    kinds: dict[str, str] = {}
    found = {fd: output_kind(proc, kinds, 10, fd, proc.link(10, "fd", fd)) for fd in range(1, 6)}
    assert found[1] == ("file", File(str(tmp_path / "log"), 77, 42, 1))
    assert [found[fd][0] for fd in range(2, 6)] == ["fifo", "pipe", "null", "pty"]
    proc.add(12, fds={1: "/nowhere/log"}, pos={1: 42})
    assert output_kind(proc, kinds, 12, 1, "/nowhere/log")[0] == "file"  # its file system is not asked
    proc.add(11, fds={1: str(tmp_path / "log")}, flags="0100000")
    assert output_kind(proc, kinds, 11, 1, str(tmp_path / "log")) == ("file", None)  # open for reading


class TestWritten:
    def look(self, *counts: int | None) -> list[ProcLook]:
        return [ProcLook(10 + n, 10 + n, 1, "python", write_bytes=count) for n, count in enumerate(counts)]

    def test_a_checkpoint(self) -> None:
        written = Written()
        written.see(self.look(5 * MIB), 100)
        assert written.seconds(100) is None
        written.see(self.look(5 * MIB), 115)
        assert written.seconds(115) == 0
        written.see(self.look(7 * MIB), 130)
        assert written.seconds(130) == 15
        written.see(self.look(9 * MIB), 145)
        assert written.seconds(145) == 30
        written.see(self.look(9 * MIB + 1000), 160)
        assert written.seconds(160) == 0

    def test_who_comes_and_goes_changes_nothing(self) -> None:
        written = Written()
        written.see(self.look(5 * MIB, 9 * MIB), 100)
        written.see(self.look(5 * MIB), 115)
        written.see(self.look(5 * MIB, 9 * MIB), 130)
        assert written.seconds(130) == 0

    def test_a_look_soon_after_another_one_tells_nothing(self) -> None:
        """Seen on real ranks: another job began on the node, and half a second of a checkpoint held no write."""
        written = Written()
        for now in (100, 105, 110):
            written.see(self.look(now * MIB), now)
        written.see(self.look(110 * MIB), 110.5)
        assert written.seconds(110.5) == 10.5
        written.see(self.look(110 * MIB), 115)
        assert written.seconds(115) == 0

    def test_unreadable_is_unknown(self) -> None:
        written = Written()
        written.see(self.look(None), 100)
        written.see(self.look(None), 115)
        assert written.seconds(115) is None


def test_tree_cpu_and_launchers() -> None:
    cpu = TreeCpu(0, 100)

    def procs(parent: int, *kids: int) -> list[ProcLook]:
        return [ProcLook(10, 10, 1, "python", ticks=parent, exe="python", cmd=1), *(
            ProcLook(11 + n, 11 + n, 10, "python", ticks=t, exe="python", cmd=1) for n, t in enumerate(kids))]

    assert cpu.see(procs(300, 0, 0), 100) == {}
    assert cpu.see(procs(300, 700, 800), 115) == {(10, 10): True}
    assert cpu.busy_at == 115
    assert cpu.see(procs(300, 700, 801), 130) == {}
    assert cpu.busy_at == 115
    assert cpu.see(procs(1300, 900, 901), 145) == {(10, 10): False}


def test_stopped_intervals() -> None:
    stopped = Stopped()
    assert not stopped.see(100, ["S", "T"], frozen=False)
    assert not stopped.see(105, [], frozen=False)
    assert stopped.see(110, ["T", "T"], frozen=False)
    assert stopped.ages(115) == [(5, 0)]
    assert not stopped.see(140, ["R"], frozen=False)
    assert stopped.see(170, ["S"], frozen=True)
    assert stopped.ages(200) == [(90, 60), (30, 0)]
    again = Stopped()
    again.load(stopped.save())
    assert again.ages(200) == [(90, 60), (30, 0)]
    for n in range(50):
        again.see(300 + 20 * n, ["T"], frozen=False)
        again.see(310 + 20 * n, ["S"], frozen=False)
    assert len(again.ages(2000)) == 40


class TestTies:
    def test_same_number_at_both_ends(self) -> None:
        a, b = "0100007F:1F90", "0100007F:A000"
        table = ties.established([Socket(a, b, 1, 1), Socket(b, a, 1, 2), Socket(a, "00000000:0000", 10, 3)])
        assert ties.numbers(table, [1]) == ties.numbers(table, [2])
        assert ties.numbers(table, [1]) != []
        assert ties.numbers(table, [3]) == []
        assert ties.numbers(table, [1, 2]) == []  # both ends in one process

    def test_thirty_two_at_most(self) -> None:
        sockets = [Socket("0100007F:0001", f"0100007F:{n:04X}", 1, n) for n in range(2, 80)]
        found = ties.numbers(ties.established(sockets), range(80))
        assert len(found) == 32
        assert found == sorted(found)

    def test_ranks_of_an_mpi_that_share_memory_only(self) -> None:
        """As Open MPI 5.0.7 maps it; what all of a job, or of a node, map ties nobody."""
        def maps(*names: str) -> bytes:
            return b"".join(b"7f98f072f000-7f98f172f000 rw-s 00000000 00:4e %d      %s\n" % (len(name), name.encode())
                            for name in names)
        first, second = "/dev/shm/sm_segment.c1.0.3dfa0001.0", "/dev/shm/vader_segment.c1.0.3dfa.11 (deleted)"
        common = ("/tmp/prterun.c1.803.0/1/pmix-gds-shmem2.c1.803", "/dev/shm/lttng-ust-wait-8")
        one, other = ties.shared_memory(maps(first, second, *common), "c1"), ties.shared_memory(maps(second), "c1")
        assert (len(one), len(other)) == (2, 1)
        assert set(other) < set(one)
        assert ties.shared_memory(maps(*common), "c1") == ties.shared_memory(b"", "c1") == []
        assert not set(one) & set(ties.shared_memory(maps(first, second), "c2"))

    def test_through_a_look(self, proc: FakeProc) -> None:
        v4 = tcp_line("0100007F:1F90", "0100007F:A000", "01", 501)
        v6 = tcp_line("0000000000000000FFFF00000100007F:A000", "0000000000000000FFFF00000100007F:1F90", "01", 502)
        proc.add(10, comm="bash")
        proc.add(11, 10, env={"RANK": "0"}, fds={4: "socket:[501]"}, tcp=[v4, v6])
        proc.add(12, 10, env={"RANK": "1"}, fds={4: "socket:[502]"}, tcp=[v4, v6])
        ask = Ask(1, [TaskAsk("0", 0, 10, 10, ties=True)], [], 1000, {}, {})
        seen = next(line for line in look(proc, ask, Memory()) if isinstance(line, TaskLook))
        first, second = sorted((p for p in seen.procs if p.worker), key=lambda p: p.pid)
        assert first.ties == second.ties
        assert len(first.ties) == 1


class TestRoster:
    def procs(self, *pids: int, ppid: int = 1) -> list[ProcLook]:
        return [ProcLook(pid, pid, ppid, "python", worker=True) for pid in pids]

    def stat(self, pid: int, state: str = "S", start: int = 0, code: int = 0) -> Stat:
        return Stat(pid, "python", state, 1, start or pid, 0, code)

    def test_places_are_kept(self) -> None:
        roster = Roster(5)
        assert roster.see(self.procs(12, 11, 13))
        assert [(p.pid, p.local) for p in roster.processes] == [(11, 0), (12, 1), (13, 2)]
        roster.processes[1].sample(100, None, None, job_stopped=False)
        assert not roster.see(self.procs(11, 13))
        assert [(p.pid, p.state) for p in roster.processes] == [(11, "?"), (12, "X"), (13, "?")]
        assert roster.see(self.procs(11, 13, 20))
        assert [(p.pid, p.local) for p in roster.processes] == [(11, 0), (20, 1), (13, 2)]

    def test_a_reused_pid_is_gone(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11))
        roster.processes[0].sample(100, self.stat(11, start=999), None, job_stopped=False)
        assert roster.processes[0].state == "X"

    def test_a_process_that_became_a_wrapper_leaves(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11))
        wrapper = ProcLook(11, 11, 1, "bash")
        roster.see([wrapper, *self.procs(12)])
        assert [p.pid for p in roster.processes] == [12]

    def test_a_zombie_stays_with_its_status(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11, 12))
        roster.processes[0].sample(100, self.stat(11, "Z", code=256), None, job_stopped=False)
        roster.see([ProcLook(11, 11, 1, "python", state="Z"), *self.procs(12)])
        record = roster.processes[0].record(107, 100, ties=False)
        assert (record.state, record.state_s, record.exit_status) == ("Z", 7, 256)

    def test_children_whose_parent_works_on_itself_are_done(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11, 12, ppid=10))
        for process in roster.processes:
            process.sample(100, None, None, job_stopped=False)
        roster.see(self.procs(10))
        assert [p.pid for p in roster.processes] == [10]

    def test_a_shell_left_alone_by_its_workers_takes_no_place(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11, 12, ppid=10))
        for process in roster.processes:
            process.sample(100, None, None, job_stopped=False)
        roster.see([ProcLook(10, 10, 1, "bash", worker=True)])
        assert [(p.pid, p.state) for p in roster.processes] == [(11, "X"), (12, "X")]
        roster.see([ProcLook(10, 10, 1, "bash"), *self.procs(20, ppid=10)])
        assert [p.pid for p in roster.processes] == [20, 12], "what it starts next takes the place"

    def test_d_counts_only_unbroken_and_is_told_late(self) -> None:
        roster = Roster(5)
        roster.see(self.procs(11))
        process = roster.processes[0]
        signs = []
        for at, state in ((100, "D"), (105, "S"), (110, "D"), (115, "D"), (120, "D")):
            process.sample(at, self.stat(11, state), None, job_stopped=False)
            signs.append(process.sign(at))
        assert signs == ["S", "S", "S", "S", "D"]
        assert process.held_s(120) == 10
