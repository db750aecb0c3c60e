"""Where a task's output goes, over fake trees: each way that a script may send it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from astraeus_monitor.host import survey
from astraeus_monitor.host.outputs import log_like
from astraeus_monitor.host.procfs import FdInfo
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.probes.look import Ask, Memory, SrunAsk, SrunLook, TaskAsk, TaskLook, look
from astraeus_monitor.reading import read_output
from astraeus_monitor.sources import output as out

from .conftest import FakeProc
from .test_job import Lab

APPEND, READ, BOTH = "0102001", "0100000", "0100002"
SLURM, NULL = "/home/a/slurm-7.out", "/dev/null"
SHELL = {1: SLURM, 2: SLURM}


def seen(proc: FakeProc, step: str = "0", *, known: list[int] | None = None, outs: dict[Any, list[int]] | None = None,
         ) -> TaskLook:
    """A look at the task of process 10."""
    settled = dict.fromkeys([(pid, pid) for pid in known or []], False)
    ask = Ask(1, [TaskAsk(step, 0, 10, 10, known=known or [])], [], 1000, settled, {}, outs=outs or {})
    return next(line for line in look(proc, ask, Memory()) if isinstance(line, TaskLook))


def found(look: TaskLook) -> dict[str, int]:
    """Path to position of the files that count."""
    return {file.path: file.pos for file in look.files}


# What a process of the tree is: (comm, fds, positions, flags by descriptor)
Way = list[tuple[str, dict[int, str], dict[int, int], dict[int, str]]]
WAYS: dict[str, tuple[str, Way, dict[str, int], str]] = {
    "a file of its own": ("0", [("python3", {1: "/o/x.0", 2: "/o/x.0"}, {1: 7, 2: 7}, {})], {"/o/x.0": 7}, ""),
    "through srun": ("0", [("python3", {1: "pipe:[1]", 2: "pipe:[2]"}, {}, {})], {}, "pipe"),
    "srun's terminal": ("0", [("python3", {1: "/dev/pts/3", 2: "/dev/pts/3"}, {}, {})], {}, "pty"),
    "redirected in the script": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: "/o/run.log", 2: SLURM}, {1: 7, 2: 90}, {})],
        {SLURM: 90, "/o/run.log": 7}, ""),
    "to nobody, and a wrapper's file says nothing of it": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: NULL, 2: NULL}, {}, {})], {SLURM: 90}, "null"),
    "standard output to nobody, errors to a file": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: NULL, 2: SLURM}, {2: 90}, {})], {SLURM: 90}, ""),
    "to nobody, but a log": ("0", [
        ("python3", {1: NULL, 2: NULL, 5: "/o/train.log", 6: "/o/step_9.pt", 7: "/o/a.db", 8: "/o/cache"},
         {5: 7, 6: 9, 7: 9, 8: 9}, {5: APPEND, 7: BOTH})], {"/o/train.log": 7}, ""),
    "closed": ("0", [("python3", {}, {}, {})], {}, "nothing"),
    "a FIFO that nobody here reads": ("batch", [("python3", {1: "FIFO", 2: "FIFO"}, {}, {})], {}, "fifo"),
    "a FIFO that cat reads": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: "FIFO", 2: "FIFO"}, {}, {}),
        ("cat", {0: "FIFO", 1: "/o/log", 2: SLURM}, {1: 7, 2: 90}, {0: READ})], {SLURM: 90, "/o/log": 7}, ""),
    "tee to a log, the rest to nobody": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: "pipe:[1]", 2: "pipe:[1]"}, {}, {}),
        ("tee", {0: "pipe:[1]", 1: NULL, 2: SLURM, 3: "/o/any"}, {2: 90, 3: 7}, {0: READ})],
        {SLURM: 90, "/o/any": 7}, ""),
    "cat to nobody, its errors to a file": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: "FIFO", 2: "FIFO"}, {}, {}),
        ("cat", {0: "FIFO", 1: NULL, 2: SLURM}, {2: 90}, {0: READ})], {SLURM: 90}, "null"),
    "grep, then tee": ("batch", [
        ("python3", {1: "pipe:[1]", 2: "pipe:[1]"}, {}, {}),
        ("grep", {0: "pipe:[1]", 1: "pipe:[2]", 2: NULL}, {}, {0: READ}),
        ("tee", {0: "pipe:[2]", 1: NULL, 2: NULL, 3: "/o/any"}, {3: 7}, {0: READ})], {"/o/any": 7}, ""),
    "tee inside an srun task": ("0", [
        ("bash", {1: "pipe:[8]", 2: "pipe:[9]"}, {}, {}), ("python3", {1: "pipe:[1]", 2: "pipe:[1]"}, {}, {}),
        ("tee", {0: "pipe:[1]", 1: "pipe:[8]", 2: "pipe:[9]", 3: "/o/log"}, {3: 7}, {0: READ})], {"/o/log": 7}, "pipe"),
    "a launcher that reads its rank's terminal": ("batch", [
        ("mpirun", {1: SLURM, 2: SLURM, 9: "/dev/ptmx"}, {1: 90, 2: 90}, {9: BOTH}),
        ("python3", {1: "/dev/pts/4", 2: "/dev/pts/4"}, {}, {})], {SLURM: 90}, ""),
    "script": ("batch", [
        ("script", {1: NULL, 2: NULL, 3: "/o/typescript", 4: "/dev/ptmx"}, {3: 7}, {4: BOTH}),
        ("python3", {1: "/dev/pts/4", 2: "/dev/pts/4"}, {}, {})], {"/o/typescript": 7}, ""),
    "a meter beside it": ("batch", [
        ("bash", SHELL, {1: 90, 2: 90}, {}), ("python3", {1: SLURM, 2: SLURM}, {1: 90, 2: 90}, {}),
        ("nvidia-smi", {1: "/o/gpu.log", 2: SLURM}, {1: 7, 2: 90}, {})], {SLURM: 90}, ""),
    "deleted while it is open": ("0", [
        ("python3", {1: "/o/log (deleted)", 2: NULL}, {1: 7}, {})], {"/o/log (deleted)": 7}, ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_where_it_goes(proc: FakeProc, tmp_path: Path, way: str) -> None:
    step, tree, files, to = WAYS[way]
    os.mkfifo(tmp_path / "fifo")
    for place, (comm, fds, pos, flags) in enumerate(tree):
        fds = {fd: str(tmp_path / "fifo") if target == "FIFO" else target for fd, target in fds.items()}
        proc.add(10 + place, 10 if place else 5, comm=comm, fds=fds, pos=pos, modes=flags, ttys={
            fd: 4 for fd, target in fds.items() if target == "/dev/ptmx"})
    look = seen(proc, step)
    assert (found(look), look.to) == (files, to)
    outs = {p.id: p.outs for p in look.procs}
    again = seen(proc, step, known=[p.pid for p in look.procs], outs=outs)
    assert (found(again), again.to) == (files, None), "a shallow look reads the same files, and asks no more"


@pytest.mark.parametrize(("path", "flags", "is_log"), [
    ("/o/train.log", APPEND, True), ("/o/metrics", APPEND, True), ("/o/train.log", "0100001", True),
    ("/o/training_log_2026_9_1.txt", "0100001", True), ("/o/nccl.c1.42.log", "0100001", True),
    ("/o/train.log (deleted)", "0100001", True), ("/o/log.jsonl", BOTH, False), ("/o/train.log", READ, False),
    ("/o/step_100.pt", "0100001", False), ("/o/step_100.pt", APPEND, False), ("/o/data.tar", APPEND, False),
    ("/o/mlruns.db", BOTH, False), ("/o/a.db-wal", APPEND, False), ("/o/a.db-journal", APPEND, False),
    ("/o/__0_0.distcp", "0100001", False), ("/o/prologue", "0100001", False), ("/o/out.safetensors", "0100001", False),
])
def test_logs_and_what_looks_like_one(path: str, flags: str, is_log: bool) -> None:
    assert log_like(path, FdInfo(0, int(flags, 8), 1)) is is_log


def test_growth_of_a_file_that_is_renamed_deleted_or_bulky() -> None:
    def file(path: str, pos: int, **more: Any) -> list[out.File]:
        return [out.File(path, 5, pos, 1, **more)]

    growth = out.Growth(0)
    growth.moved(file("/o/log", 500), 10)
    assert growth.moved(file("/o/log.1", 500), 25) is None, "rotated by renaming"
    assert growth.path == "/o/log.1"
    assert growth.moved(file("/o/log.1 (deleted)", 500), 40) is None
    assert growth.moved(file("/o/log.1 (deleted)", 90), 55) == 410, "cut, and written from its beginning"
    logs = out.Growth(0)
    logs.moved(file("/o/cache", 500, log=True), 10)
    assert logs.moved(file("/o/cache", 500 + (1 << 20), log=True), 25) is None, "data that is appended"
    assert logs.moved(file("/o/cache", 600 + (1 << 20), log=True), 40) == 100
    old = out.Growth(0)  # a kernel that tells no inode
    old.moved([out.File("/o/log", 0, 5)], 10)
    assert old.moved([out.File("/o/log (deleted)", 0, 5)], 25) is None


def test_who_writes_nothing_prints_nothing() -> None:
    def procs(*counts: int | None, aside: int | None = None) -> list[ProcLook]:
        return [ProcLook(10 + n, 10 + n, 1, "python", wchar=count, aside=n == aside) for n, count in enumerate(counts)]

    quiet = out.Quiet(0)
    assert quiet.seconds(5) is None
    steps = [(10, procs(100, 50), 0), (25, procs(100, 50), 15), (40, procs(100, 51), 0), (55, procs(100, 51, 0), 15),
             (70, procs(100, 51, 3), 0), (85, procs(100, 51), 15), (100, procs(103, 51), 0),
             (115, procs(103, 51, 900, aside=2), 15), (130, procs(103, None), None)]
    for at, procs_, said in steps:
        quiet.see(procs_, at)
        assert quiet.seconds(at) == said, at
    again = out.Quiet(500)
    quiet.see(procs(103, 51), 145)
    again.load(quiet.save())
    again.see(procs(103, 51), 160)
    assert again.seconds(160) == quiet.seconds(160)


def test_dev_null_is_told_with_its_quiet(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(5, comm="slurmstepd")

    def at(wchar: int) -> None:
        for pid in (102, 103):
            proc.add(pid, 5, fds={1: NULL, 2: NULL}, wchar=wchar)

    at(100)
    lab = Lab(proc, tmp_path / "7")
    lab.look()
    for wchar, quiet in ((180, 0), (180, 15), (180, 30)):
        at(wchar)
        lab.tick(15)
        lab.look()
        worker = lab.worker()
        assert (worker.output_s, worker.output_to, worker.quiet_s) == (None, "null", quiet)
    job = lab.begin()
    job.load(lab.job.save())
    assert job.record(lab.now, "c1").steps[0].workers[0].output_to == "null", "a monitor that is started again knows"


def test_srun_into_tee_in_the_batch_script(proc: FakeProc, tmp_path: Path) -> None:
    """``srun train.py | tee log``: the step's output is what tee writes."""
    proc.add(5, comm="slurmstepd")
    lab = Lab(proc, tmp_path / "7")
    lab.job.feed("batch", [("step", {**lab.header, "step": "batch", "launch": "", "tasks": "1"}),
                           ("task", {"rank": "0", "local": "0", "pid": "40", "start": "40"})], lab.now)
    lab.job.steps["0"].sruns = [(50, 50)]

    def wrote(count: int) -> None:
        proc.add(50, 40, comm="srun", fds={1: "pipe:[9]", 2: "pipe:[9]"}, wchar=9000 + count)
        proc.add(60, 40, comm="tee", fds={0: "pipe:[9]", 1: NULL, 2: NULL, 3: "/o/log"}, pos={3: count},
                 modes={0: READ})

    for pid in (102, 103):
        proc.add(pid, 5, fds={1: "pipe:[1]", 2: "pipe:[2]"})
    proc.add(40, 4, comm="bash", fds=SHELL, pos={1: 90, 2: 90})
    wrote(100)
    lab.look()
    assert lab.record().steps[0].output_to == "pipe", "who reads it is known from the look at the batch script on"
    for count, age in ((100, 15), (300, 0), (300, 15)):
        wrote(count)
        lab.tick(15)
        lab.look()
        step = lab.record().steps[0]
        if count == 300:
            assert (step.output_s, step.output_to, step.log) == (age, "", "/o/log")
    assert lab.job.steps["0"].holders == [(50, 50), (60, 60)]


@pytest.mark.parametrize(("fds", "to", "why"), [
    ({1: NULL, 2: NULL}, "null", "srun's output goes to /dev/null"),
    ({1: "pipe:[9]", 2: "pipe:[9]"}, "pipe", "srun's output goes into a pipe that nobody of the job reads"),
    ({1: "/dev/pts/1", 2: "/dev/pts/1"}, "pty", "srun's output goes to a terminal")])
def test_srun_without_a_file(proc: FakeProc, tmp_path: Path, fds: dict[int, str], to: str, why: str) -> None:
    lab = Lab(proc, tmp_path / "7")
    for pid in (102, 103):
        proc.add(pid, 5, fds={1: "pipe:[1]", 2: "pipe:[2]"})
    lab.job.steps["0"].sruns = [(50, 50)]
    proc.add(50, 40, comm="srun", fds=fds)
    lab.look()
    step = lab.record().steps[0]
    assert (step.output_to, step.unknown[0].reason) == (to, why)


def test_read_output(proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 500)
    (tmp_path / "link").symlink_to(log)
    os.mkfifo(tmp_path / "fifo")
    proc.add(10, fds={1: str(log), 3: str(log)}, pos={1: 500}, modes={1: APPEND, 3: READ})
    proc.add(11, fds={1: "/hung/log"}, pos={1: 90})
    proc.add(12, fds={1: f"{tmp_path}/gone (deleted)"}, pos={1: 7})
    hung = read_output.Seen("hung")
    asked = {"/hung/log": hung, "/hung/other": hung}

    def read(*paths: str, grow: int = 0) -> list[read_output.Output]:
        def sleep(_: float) -> None:
            proc.add(11, fds={1: "/hung/log"}, pos={1: 90 + grow})
        found = read_output.read(paths, 5 if grow else 0, proc, sleep, lambda p: asked.get(p) or read_output.asked(p))
        return found.files

    [first, link] = read(str(log), f"{tmp_path}/link")
    assert (first.kind, first.size, first.holders) == ("file", 500, [read_output.Holder(10, "python3", 1, 500, True)])
    assert first.age_s is not None
    assert 0 <= first.age_s < 60
    assert link.holders == first.holders
    [grown] = read("/hung/log", grow=8)
    assert (grown.kind, grown.size, grown.grew, grown.age_s, grown.unknown) == ("file", None, 8, 5, "")
    [gone] = read(f"{tmp_path}/gone")
    assert (gone.kind, gone.size, [h.pos for h in gone.holders]) == ("file", None, [7])
    why = {one.path: one.unknown for one in read(
        NULL, f"{tmp_path}/fifo", str(tmp_path), f"{tmp_path}/none", "/hung/other", "/dev/pts/0")}
    assert why == {
        NULL: "output goes to /dev/null", f"{tmp_path}/fifo": "output goes to a FIFO",
        str(tmp_path): "it is a directory",
        f"{tmp_path}/none": "there is no such file, and no process has it open",
        "/hung/other": "its file system does not answer within 2 s, and no process is seen to have it open",
        "/dev/pts/0": "output goes to a terminal"}


@pytest.mark.parametrize(("words", "env", "drops"), [
    ("srun python train.py", {}, False), ("srun --output=none python", {}, True),
    ("srun --output none python", {}, True),
    ("srun -o none python", {}, True), ("srun -onone python", {}, True), ("srun -o none -e err.log python", {}, False),
    ("srun python", {"SLURM_STDOUTMODE": "none"}, True), ("srun -o none -e none python", {}, True),
    ("srun -o out.none python", {}, False)])
def test_an_srun_that_throws_output_away(words: str, env: dict[str, str], drops: bool) -> None:
    assert survey.drops_output(words.replace(" ", "\0"), env) is drops


def test_an_sruns_relay_that_is_gone_is_not_read(proc: FakeProc) -> None:
    proc.add(50, 40, comm="srun", fds={1: "pipe:[9]"})
    proc.add(60, 40, comm="tee", fds={3: "/o/log"}, pos={3: 5}, start=61)
    ask = Ask(1, [], [SrunAsk("0", 50, 50, [(60, 60, 3)])], 1000, {}, {})
    [look_] = [line for line in look(proc, ask, Memory()) if isinstance(line, SrunLook)]
    assert (look_.files, look_.into) == ([], ["pipe:[9]"])
