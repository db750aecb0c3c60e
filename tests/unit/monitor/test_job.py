"""A job's watch over a fake /proc: registration, samples, looks, ends, persisted clocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from astraeus_monitor.host import survey
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes.look import look
from astraeus_monitor.rounds.lines import sort_lines
from astraeus_monitor.watch import clocks
from astraeus_monitor.watch.job import JobWatch
from astraeus_protocol import report
from msgspec import json

from .conftest import FakeProc, tcp_line

STEP = {"v": "1", "job": "7", "step": "0", "nodes": "2", "node_id": "1", "tasks": "4", "nodelist": "c[1-2]",
        "stepd": "5", "stepd_start": "5", "launch": "c1:40123", "at": "990", "stall_after": "60"}
FACTS = {"nonce": "n1", "job": "7", "uid": "1001", "user": "alice", "gpus": "0,1", "at": "980",
         "stall_after": "60", "node": "c1"}


class Lab:
    """A job with one step of two tasks on this node."""

    def __init__(self, proc: FakeProc, path: Path, *, step: str = "0", launch: str = "c1:40123") -> None:
        self.proc, self.path, self.now, self.step = proc, path, 1000.0, step
        path.mkdir(exist_ok=True)
        self.header = {**STEP, "step": step, "launch": launch}
        self.job = self.begin()

    def begin(self) -> JobWatch:
        job = JobWatch(7, FACTS, self.path, self.now, 5)
        job.feed(self.step, [("step", self.header)], self.now)
        for rank in (2, 3):
            job.feed(self.step, [("task", {"rank": str(rank), "local": str(rank - 2), "pid": str(100 + rank),
                                           "start": str(100 + rank)})], self.now)
        return job

    def tick(self, seconds: float = 5) -> None:
        self.now += seconds
        self.job.sample(self.proc, self.now)

    def look(self) -> None:
        lines = [json.encode(line) for line in look(self.proc, self.job.ask(self.now), self.job.memory)]
        tasks, sruns, _ = sort_lines(lines)
        self.job.see(tasks, sruns, self.now)

    def record(self) -> report.Job:
        return self.job.record(self.now, "c1")

    def worker(self, place: int = 0) -> report.Worker:
        return self.record().steps[0].workers[place]


@pytest.fixture
def lab(proc: FakeProc, tmp_path: Path) -> Lab:
    proc.add(5, comm="slurmstepd")
    for pid in (102, 103):
        proc.add(pid, 5)
    return Lab(proc, tmp_path / "7")


def test_what_a_job_reports_at_first(lab: Lab) -> None:
    job = lab.record()
    assert (job.job, job.user, job.uid, job.gpus, job.settings, job.began_s) == (
        7, "alice", 1001, [0, 1], {"stall_after": "60"}, 20)
    step = job.steps[0]
    assert (step.nodes, step.tasks, step.node_id, step.settings) == (2, 4, 1, {"stall_after": "60"})
    assert [(w.rank, w.local, w.pid, w.state) for w in step.workers] == [
        (2, 0, 102, "running"), (3, 1, 103, "running")]
    assert step.workers[0].output_s is None
    assert {u.source for u in step.workers[0].unknown} == {"output", "written", "cpu", "gpu"}


def test_how_old_the_last_look_is(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.touch()
    lab.proc.add(102, 5, fds={1: str(out)}, pos={1: 10})
    lab.look()
    lab.tick()
    lab.tick()
    worker = lab.worker()
    assert (worker.output_s, worker.cpu_idle_s, worker.looked_s) == (10, 10, 10)
    lab.look()
    worker = lab.worker()
    assert (worker.output_s, worker.looked_s) == (10, 0)


def test_a_stopped_process(lab: Lab) -> None:
    lab.look()
    lab.tick()
    marks = lab.job.marks(lab.now)
    lab.proc.add(103, 5, state="T")
    lab.tick()
    assert lab.job.marks(lab.now) != marks
    process = lab.worker(1).processes[0]
    assert (process.state, process.state_s) == ("T", 0)
    lab.tick()
    assert lab.worker(1).processes[0].state_s == 5
    assert lab.record().stopped == []
    lab.proc.add(102, 5, state="T")
    lab.tick()
    lab.tick()
    assert lab.record().stopped == [(5, 0)]
    lab.proc.add(103, 5)
    lab.tick()
    assert lab.record().stopped == [(10, 0)]
    assert lab.worker(1).processes[0].state_s is None


def test_the_exit_line_tells_the_status(lab: Lab) -> None:
    lab.look()
    lab.proc.remove(103)
    lab.tick()
    assert lab.worker(1).state == "running"  # the plugin's line has a moment
    lab.job.feed("0", [("exit", {"rank": "3", "pid": "103", "status": "9", "at": "1004"})], lab.now)
    worker = lab.worker(1)
    assert (worker.state, worker.exit_status, worker.exit_s) == ("exited", 9, 1)
    assert (worker.processes[0].state, worker.processes[0].exit_status) == ("X", 9)


def test_a_zombie_that_was_waited_for_is_gone(lab: Lab) -> None:
    """A sample that falls between a task's death and slurmstepd's wait once left it a zombie for ever."""
    lab.look()
    lab.proc.add(103, 5, state="Z", exit_code=9)
    lab.tick()
    assert lab.worker(1).processes[0].state == "Z"
    lab.proc.remove(103)
    lab.job.feed("0", [("exit", {"rank": "3", "pid": "103", "status": "9", "at": "1005"})], lab.now)
    lab.tick()
    process = lab.worker(1).processes[0]
    assert (lab.worker(1).state, process.state, process.exit_status) == ("exited", "X", 9)


def test_gone_without_a_line(lab: Lab) -> None:
    lab.look()
    lab.proc.remove(103)
    lab.tick()
    lab.tick()
    worker = lab.worker(1)
    assert (worker.state, worker.exit_status, worker.exit_s) == ("gone", None, 5)
    assert worker.processes[0].state == "X"


def test_a_new_process_in_a_tasks_place(lab: Lab) -> None:
    lab.look()
    lab.tick()
    lab.job.feed("0", [("task", {"rank": "3", "local": "1", "pid": "203", "start": "203"})], lab.now)
    assert (lab.worker(1).pid, lab.worker(1).processes) == (203, [])


def test_the_end_of_a_step(lab: Lab) -> None:
    lab.job.feed("0", [("exit", {"rank": "2", "status": "0", "at": "1000"}), ("end", {"at": "1000"})], lab.now)
    step = lab.record().steps[0]
    assert step.ended
    assert [w.state for w in step.workers] == ["exited", "gone"]
    lab.now += 200
    lab.job.tidy(lab.now)
    assert lab.job.steps  # nobody has been told yet
    lab.job.steps["0"].end_told = True
    lab.job.tidy(lab.now)
    assert lab.job.steps == {}


def test_slurmstepd_gone_is_the_end(lab: Lab) -> None:
    lab.proc.remove(5)
    lab.tick()
    assert not lab.record().steps[0].ended
    lab.tick()
    assert lab.record().steps[0].ended


def test_an_own_file(proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x")
    proc.add(5, comm="slurmstepd")
    proc.add(103, 5, fds={1: "pipe:[1]", 2: "pipe:[2]"})
    for pos, at in ((10, 0), (10, 15), (20, 15), (20, 15)):
        proc.add(102, 5, fds={1: str(log), 2: "pipe:[3]"}, pos={1: pos})
        if not at:
            lab = Lab(proc, tmp_path / "7")
        lab.now += at
        lab.look()
    assert lab.worker(0).output_s == 15
    assert lab.record().steps[0].log == str(log)
    assert lab.worker(1).output_s is None
    assert lab.worker(1).unknown[-1].source == "gpu"  # its output goes to the step's file: nothing to say


def test_dev_null_is_unknown(proc: FakeProc, tmp_path: Path) -> None:
    for pid in (102, 103):
        proc.add(pid, 5, fds={1: "/dev/null", 2: "/dev/null"})
    lab = Lab(proc, tmp_path / "7")
    lab.look()
    assert lab.worker().output_s is None
    assert report.Unknown("output", "output goes to /dev/null") in lab.worker().unknown


class TestShared:
    """Two tasks whose output goes through srun on this node."""

    def srun(self, lab: Lab, pos: int, wchar: int, syscw: int = 1) -> None:
        lab.proc.add(50, 40, comm="srun", env={"SLURM_JOB_ID": "7"}, fds={1: str(lab.path / "out"),
                     9: "socket:[900]"}, pos={1: pos}, wchar=wchar, syscw=syscw,
                     tcp=[tcp_line("00000000:9CBB", "00000000:0000", "0A", 900)])

    @pytest.fixture
    def lab(self, proc: FakeProc, tmp_path: Path) -> Lab:
        proc.add(5, comm="slurmstepd")
        for pid in (102, 103):
            proc.add(pid, 5, fds={1: "pipe:[1]", 2: "pipe:[2]"})
        lab = Lab(proc, tmp_path / "7")
        (lab.path / "out").write_text("x")
        return lab

    def find(self, lab: Lab) -> None:
        found = list(survey.survey(lab.proc))
        lab.job.see_survey([f for f in found if isinstance(f, survey.Srun)],
                           [f for f in found if isinstance(f, survey.Stepd)], lab.now)

    def test_found_by_its_port_and_followed(self, lab: Lab) -> None:
        self.srun(lab, 100, 1000)
        assert lab.job.wants_survey("c1", lab.now)
        self.find(lab)
        assert lab.job.steps["0"].sruns == [(50, 50)]
        assert not lab.job.wants_survey("c1", lab.now)
        lab.look()
        for pos, wchar in ((150, 1050), (150, 1050)):
            lab.now += 15
            self.srun(lab, pos, wchar)
            lab.look()
        step = lab.record().steps[0]
        assert (step.output_s, step.log) == (15, str(lab.path / "out"))
        assert all(w.output_s is None for w in step.workers)

    def test_growth_by_others_is_not_the_steps(self, lab: Lab) -> None:
        self.srun(lab, 100, 1000)
        self.find(lab)
        lab.look()
        lab.now += 15
        self.srun(lab, 150, 1000)  # the file moved, this srun wrote nothing
        lab.look()
        assert lab.record().steps[0].output_s == 15

    def test_not_found_where_it_should_be(self, lab: Lab) -> None:
        self.find(lab)
        lab.look()
        said = lab.record().steps[0].unknown[0].reason
        assert said == "output goes through srun on c1, which the monitor does not find there"
        assert lab.job.record(lab.now, "c2").steps[0].unknown == []

    def test_the_only_srun_of_the_job_where_no_port_is_known(self, lab: Lab) -> None:
        lab.header.pop("launch")
        lab.job = lab.begin()
        self.srun(lab, 100, 1000)
        lab.proc.add(51, 50, comm="srun", env={"SLURM_JOB_ID": "7"})  # srun forks a copy of itself
        self.find(lab)
        assert sorted(lab.job.steps["0"].sruns) == [(50, 50), (51, 51)]

    def test_what_srun_writes_is_not_the_batch_steps(self, lab: Lab) -> None:
        def batch(pos: int) -> None:
            lab.proc.add(40, 39, comm="bash", fds={1: str(lab.path / "out")}, pos={1: pos})

        batch(100)
        self.srun(lab, 100, 1000)
        lab.job.feed("batch", [("step", {"step": "batch"}),
                               ("task", {"rank": "0", "pid": "40", "start": "40"})], lab.now)
        self.find(lab)
        lab.look()
        lab.now += 15
        batch(150)
        self.srun(lab, 150, 1050)
        lab.look()
        batch_worker = lab.record().steps[1].workers[0]
        assert batch_worker.output_s == 15
        assert lab.record().steps[0].output_s == 0
        lab.now += 15
        batch(190)
        self.srun(lab, 190, 1050)
        lab.look()
        assert lab.record().steps[1].workers[0].output_s == 0
        assert lab.record().steps[0].output_s == 15


def test_a_step_that_no_plugin_registered(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(30, comm="slurmstepd", cmd="slurmstepd: [7.3]")
    proc.add(31, 30, env={"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8"})
    proc.add(35, comm="slurmstepd", cmd="slurmstepd: [7.extern]")
    proc.add(36, comm="slurmstepd", cmd="slurmstepd: [8.0]")
    (proc.path / "30" / "cmdline").write_bytes(b"slurmstepd: [7.3]\0")
    (proc.path / "36" / "cmdline").write_bytes(b"slurmstepd: [8.0]\0")
    job = JobWatch(7, FACTS, tmp_path, 1000, 5)
    stepds = [f for f in survey.survey(proc) if isinstance(f, survey.Stepd)]
    assert sorted((s.job, s.step) for s in stepds) == [(7, "3"), (8, "0")]
    assert not job.wants_survey("c1", 1005)
    assert job.wants_survey("c1", 1010)
    job.see_survey([], stepds, 1010)
    step = job.record(1010, "c1").steps[0]
    assert (step.step, step.plugin, step.tasks, [(w.rank, w.local, w.pid) for w in step.workers]) == (
        "3", False, 8, [(5, 1, 31)])


class TestClocks:
    def test_a_killed_monitor_goes_on(self, lab: Lab) -> None:
        log = lab.path / "log"
        log.write_text("x")
        switches = 0

        def write(pos: int, state: str = "S") -> None:
            for pid in (102, 103):
                lab.proc.add(pid, 5, fds={1: str(log)}, pos={1: pos}, switches=switches, ticks=switches,
                             state=state if pid == 103 else "S")

        for n in range(8):
            switches += 500
            write(100 + n)
            lab.tick()
            lab.look()
        lab.job.gpus.clocks[0].busy_at, lab.job.gpus.clocks[0].ever_busy = 1020, True
        write(107, "T")
        for _ in range(3):
            lab.tick()
            lab.look()
        before = lab.record()
        clocks.save(lab.job, "boot")
        assert (lab.path / "clock").stat().st_mode & 0o7777 == 0o600

        lab.now += 8
        lab.job = lab.begin()
        assert clocks.load(lab.job, "boot")
        lab.look()
        lab.tick(0)
        after = lab.record()
        old, new = before.steps[0].workers, after.steps[0].workers
        assert new[0].output_s == (old[0].output_s or 0) + 8
        assert (new[1].processes[0].state, new[1].processes[0].state_s) == ("T", 10 + 8)
        assert (new[0].processes[0].pulse_gone_s, new[0].processes[0].pulse_base) == (15 + 8, 100)
        assert lab.job.gpus.clocks[0].ever_busy
        assert lab.job.gpus.clocks[0].busy_at == 1020
        write(120)
        lab.now += 15
        lab.look()
        assert lab.worker().output_s == 0

    def test_another_attempt_or_boot_begins_anew(self, lab: Lab) -> None:
        clocks.save(lab.job, "boot")
        assert not clocks.load(lab.begin(), "other boot")
        again = JobWatch(7, {**FACTS, "nonce": "n2"}, lab.path, 1000, 5)
        assert not clocks.load(again, "boot")

    def test_a_broken_file_begins_anew(self, lab: Lab) -> None:
        for text in ('{"v": 1', '{"v": 1, "nonce": "n1", "boot": "b", "job": {}}', "[]"):
            (lab.path / "clock").write_text(text)
            assert not clocks.load(lab.begin(), "b")

    def test_a_step_without_plugin_takes_its_clocks_when_found(self, proc: FakeProc, tmp_path: Path) -> None:
        found = survey.Stepd(30, 30, 7, "3", [(5, 1, 31, 31)])
        job = JobWatch(7, FACTS, tmp_path, 1000, 5)
        job.see_survey([], [found], 1010)
        job.steps["3"].workers[5].growth.last = 1005
        clocks.save(job, "b")
        again = JobWatch(7, FACTS, tmp_path, 1100, 5)
        assert clocks.load(again, "b")
        again.see_survey([], [found], 1120)
        assert again.steps["3"].workers[5].growth.last == 1005


def test_a_shallow_look_keeps_what_a_deep_one_found(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(5, comm="slurmstepd")
    proc.add(102, 5, comm="bash")
    proc.add(110, 102, fds={4: "/dev/nvidia1"})
    proc.add(111, 102)
    proc.add(103, 5)
    lab = Lab(proc, tmp_path / "7")
    lab.look()
    assert [p.pid for p in lab.worker().processes] == [110]
    lab.job.steps["0"].tied = True
    lab.job.restless = False
    lab.now += 70
    assert lab.job.ask(lab.now).settled == {}
    lab.now += 15
    ask = lab.job.ask(lab.now)
    assert ask.settled == {(102, 102): False, (110, 110): True, (111, 111): False, (103, 103): False}
    assert [task.known for task in ask.tasks] == [[102, 110, 111], [103]]
    proc.add(110, 102)  # its open files are not read: it still counts
    lab.job.restless = False
    lab.look()
    assert [p.pid for p in lab.worker().processes] == [110]


def test_a_tree_of_real_processes_deep_and_shallow() -> None:
    import subprocess

    shell = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 61 & echo; wait"], stdout=subprocess.PIPE)
    assert shell.stdout
    shell.stdout.readline()
    deep = Proc().tree(shell.pid)
    shallow = Proc().tree(shell.pid, [s.pid for s in deep])
    assert [s.pid for s in deep] == [s.pid for s in shallow]
    assert len(deep) == 3
    assert deep[0].pid == shell.pid
    for stat in deep:
        os.kill(stat.pid, 9)
    shell.wait(5)


def test_gpus_as_the_tasks_found_them(lab: Lab) -> None:
    def indices() -> list[list[int]]:
        return [[g.index for g in w.gpus] for w in lab.record().steps[0].workers]

    assert indices() == [[0, 1], [0, 1]]  # the job's, until the tasks have told
    lab.job.feed("0", [("gpus", {"rank": "2", "local": "0", "gpus": "0-1", "visible": "0"}),
                       ("gpus", {"rank": "3", "local": "1", "gpus": ""})], lab.now)
    assert indices() == [[0], []]


def test_a_full_directory_is_said(lab: Lab) -> None:
    lab.job.feed("0", [("full", {"at": "1000"})], lab.now)
    assert lab.record().unknown == [report.Unknown("registry", "too many tasks")]
