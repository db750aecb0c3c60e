"""The end of an output, read in a child with its user's rights; which file it is, and when."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.userfile import become
from astraeus_monitor.probes.children import Probes, fork_into
from astraeus_monitor.probes.tail import DECODER, LINES, LONGER_TAIL, TailAsk, TailLook, lines, read
from astraeus_monitor.rounds import tails
from astraeus_monitor.rounds.looks import Looks

from .conftest import FakeProc
from .test_job import Lab
from .test_probes import Rig

NOBODY = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's rights")
WARNING = "[rank{}]:[W2 ProcessGroupNCCL.cpp:1538] WARNING: destroy_process_group() was not called before program exit"


class Holder:
    """A process that holds a file as its output."""

    def __init__(self, path: Path, user: int | None = None) -> None:
        self.path = path
        with open(path, "ab") as out:
            self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out,
                                            user=user, group=user, extra_groups=None if user is None else [])
        stat = Proc().stat(self.process.pid)
        assert stat
        self.id = stat.pid, stat.start

    def ask(self, uid: int = os.geteuid(), **more: object) -> TailAsk:
        values = {"uid": uid, "path": str(self.path), "holders": [self.id], "fds": (1, 2), "ranks": 4} | more
        return TailAsk(**values)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.selector.close()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    found: list[Holder] = []
    yield found
    for one in found:
        one.process.kill()
        one.process.communicate()


def answer(rig: Rig, ask: TailAsk, how: Callable[[Proc, TailAsk], Iterator[TailLook]] = read) -> TailLook:
    """What a child says."""
    count = len(rig.got)
    assert Probes(rig.selector, rig.clock).start("tail 7", lambda: how(Proc(), ask), rig.done) == ""
    rig.until(lambda: len(rig.got) > count)
    got, why = rig.got[-1]
    assert why == ""
    [line] = got
    return DECODER.decode(line)


def test_the_end_of_a_file_that_a_process_holds(rig: Rig, holders: list[Holder], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"step 1\n" * 9000 + b"Training done\n")
    holders.append(Holder(out))
    assert answer(rig, holders[0].ask()) == TailLook("over", "Training done")
    assert answer(rig, holders[0].ask(fds=None)) == TailLook("over", "Training done")
    with out.open("a") as file:
        file.write("".join(WARNING.format(0) + "\n" for _ in range(200)))
    assert out.stat().st_size < LONGER_TAIL + 63000
    assert answer(rig, holders[0].ask()) == TailLook("over", "Training done"), "behind 20 KiB of noise"
    with out.open("a") as file:
        file.write("".join(WARNING.format(0) + "\n" for _ in range(600)))
    assert answer(rig, holders[0].ask()) == TailLook("only_noise")
    with out.open("a") as file:
        file.write("step 2\n")
    assert answer(rig, holders[0].ask()) == TailLook("goes_on")
    out.unlink()
    assert answer(rig, holders[0].ask(path=f"{out} (deleted)")).what == "goes_on"


def test_the_last_lines_for_people(rig: Rig, holders: list[Holder], tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(b"".join(b"step %d\n" % n for n in range(90)) + b"a\x1b[31mb\r\0c\n\n" + b"x" * 500)
    holders.append(Holder(path))
    found = answer(rig, holders[0].ask(), lines)
    assert found.lines[-4:] == ["step 89", "ab", "c", "x" * 200]
    assert (len(found.lines), found.fault) == (LINES, "")


def test_what_can_t_be_read(rig: Rig, holders: list[Holder], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("Training done")
    holders.append(Holder(out))
    one = holders[0]
    pid, start = one.id
    assert answer(rig, one.ask(holders=[])).fault == "no process holds it any more"
    assert answer(rig, one.ask(holders=[(pid, start + 1)])).fault == "no process holds it any more", "another's PID"
    assert answer(rig, one.ask(path="/elsewhere")).fault == "no process holds it any more"
    assert answer(rig, one.ask(uid=4711)).fault == "its holder is not the job's user's"
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    holders.append(Holder(tmp_path / "fifo"))
    assert answer(rig, holders[1].ask()).fault == "it is no regular file"
    os.close(reader)


@ROOT
def test_read_with_the_user_s_rights_alone(rig: Rig, holders: list[Holder], tmp_path: Path) -> None:
    for name, owner in (("his", NOBODY), ("not-his", 0)):
        path = tmp_path / name
        path.write_text("Training done")
        os.chown(path, owner, owner)
        path.chmod(0o600)
        holders.append(Holder(path, NOBODY))
    his, not_his = holders
    assert answer(rig, his.ask(NOBODY)) == TailLook("over", "Training done")
    assert answer(rig, not_his.ask(NOBODY)) == TailLook(fault="Permission denied"), "root's, though he holds it"
    assert answer(rig, his.ask(0)).fault == "its holder is not the job's user's"


@ROOT
def test_the_child_stays_root_s_to_signal() -> None:
    reading, writing = os.pipe()

    def work(fd: int) -> None:
        become(NOBODY, NOBODY, [12, 13])
        status = Path("/proc/self/status").read_text()
        os.write(fd, "|".join(line.partition(":")[2].strip() for line in status.splitlines()
                              if line.startswith(("Uid", "Gid", "Groups"))).encode())

    pid = fork_into(work, writing)
    os.close(writing)
    os.waitpid(pid, 0)
    uid, gid, groups = os.read(reading, 1000).decode().split("|")
    os.close(reading)
    assert (uid.split(), gid.split(), groups.split()) == (
        ["0", "0", "0", "65534"], ["0", "0", "0", "65534"], ["12", "13"])


class TestWhichAndWhen:
    """A gang whose output goes through srun on this node."""

    @pytest.fixture
    def lab(self, proc: FakeProc, tmp_path: Path) -> Lab:
        proc.add(5, comm="slurmstepd")
        for pid in (102, 103):
            proc.add(pid, 5)
        lab = Lab(proc, tmp_path / "7")
        lab.job.facts = {**lab.job.facts, "uid": str(os.geteuid())}
        lab.job.steps["0"].sruns = [(50, 50)]
        for name in ("out", "out-2", "err-2", "out-3"):
            (lab.path / name).touch()
        return lab

    def srun(self, lab: Lab, pos: int, pid: int = 50) -> None:
        lab.proc.add(pid, 40, comm="srun", fds={1: str(lab.path / "out")}, pos={1: pos}, wchar=9000 + pos)

    def asked(self, lab: Lab) -> TailAsk | None:
        return tails.ask(lab.job, lab.job.steps["0"], lab.now)

    def test_once_after_it_moved_and_fell_quiet(self, lab: Lab) -> None:
        self.srun(lab, 0)
        lab.look()
        lab.tick(60)
        assert self.asked(lab) is None, "nothing was written yet"
        self.srun(lab, 100)
        lab.look()
        lab.tick(10)
        assert self.asked(lab) is None
        lab.tick(5)
        assert self.asked(lab) == TailAsk(os.geteuid(), str(lab.path / "out"), [(50, 50)], None, 4)
        assert self.asked(lab) is None, "it is being read"
        marks = lab.job.marks(lab.now)
        tails.take(lab.job.steps["0"], [msgspec.json.encode(TailLook("over", "Training done"))], "")
        assert lab.job.marks(lab.now) != marks, "told at once"
        lab.tick(600)
        assert self.asked(lab) is None
        told = lab.record().steps[0].finished
        assert told is not None
        assert (told.line, told.s) == ("Training done", 615)
        self.srun(lab, 200)
        lab.look()
        assert self.asked(lab) is not None, "more was written"
        tails.take(lab.job.steps["0"], [msgspec.json.encode(TailLook("goes_on"))], "")
        assert lab.record().steps[0].finished is None

    @pytest.mark.parametrize(("lines", "why", "fault"), [
        ([], "no answer before the deadline", "no answer before the deadline"), ([], "", "no answer"),
        ([b"\xff"], "", "the answer can't be read"), ([b'{"what": 3}'], "", "the answer can't be read"),
        ([b'{"what": "over", "line": "' + b"x" * 5000 + b'"}'], "", ""),
        ([b'{"fault": "Permission denied"}'], "", "Permission denied"),
    ])
    def test_an_answer_is_another_s_text(self, lab: Lab, lines: list[bytes], why: str, fault: str) -> None:
        tails.take(lab.job.steps["0"], lines, why)
        step = lab.record().steps[0]
        assert [u.reason for u in step.unknown if u.source == "finished"] == ([fault] if fault else [])
        assert step.finished is None if fault else step.finished and len(step.finished.line) == 200

    def test_a_file_of_two_steps_tells_nothing(self, lab: Lab) -> None:
        self.srun(lab, 100)
        lab.look()
        lab.tick(20)
        lab.job.feed("1", [("step", {**lab.header, "step": "1"})], lab.now)
        lab.job.steps["1"].growth.path = str(lab.path / "out")
        assert self.asked(lab) is None
        lab.job.steps["1"].end(lab.now)
        assert self.asked(lab) is not None

    def test_the_newest_of_the_files_of_its_tasks(self, lab: Lab) -> None:
        lab.job.steps["0"].sruns = []
        for pos in (0, 10):
            lab.proc.add(102, 5, fds={1: f"{lab.path}/out-2", 2: f"{lab.path}/err-2"}, pos={1: 5, 2: 5 + pos})
            lab.proc.add(103, 5, fds={1: f"{lab.path}/out-3"}, pos={1: 7})
            lab.look()
            lab.tick(5)
        lab.tick(15)
        asked = self.asked(lab)
        assert asked is not None
        assert (asked.path, asked.holders, asked.fds) == (f"{lab.path}/err-2", [(102, 102)], None)

    def test_output_to_nowhere_is_unknown(self, lab: Lab) -> None:
        lab.job.steps["0"].sruns = []
        lab.proc.add(102, 5, fds={1: "/dev/null"})
        lab.proc.add(103, 5, fds={1: "pipe:[9]"})
        lab.look()
        lab.tick(60)
        assert self.asked(lab) is None
        assert lab.record().steps[0].finished is None

    def test_looks_read_it(self, lab: Lab) -> None:
        (lab.path / "out").write_text("step 1\nTraining done")
        self.srun(lab, 20)
        lab.look()
        lab.tick(20)
        rig, seen = Rig(), []
        looks = Looks(rig.selector, Clock(), lab.proc, lambda: seen.append(1))
        looks.jobs[7] = lab.job
        (lab.proc.path / "50" / "status").write_text("Name:\tsrun\nUid:\t{0}\t{0}\t{0}\t{0}\nGid:\t0\t0\t0\t0\n".format(
            os.geteuid()))
        looks._read_tails(lab.now)
        rig.until(lambda: bool(seen))
        told = lab.record().steps[0].finished
        assert told is not None
        assert told.line == "Training done"
        looks.stop()
        rig.selector.close()


