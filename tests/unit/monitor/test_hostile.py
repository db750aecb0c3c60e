"""What users, full disks and broken files may hand to the monitor: the watch goes on, and unknown stays unknown."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor import config
from astraeus_monitor.clock import Clock
from astraeus_monitor.host import survey
from astraeus_monitor.host.exits import Exits
from astraeus_monitor.log import fenced
from astraeus_monitor.probes.look import Ask, Memory, SrunLook, TaskAsk, TaskLook, look
from astraeus_monitor.registry import Registry
from astraeus_monitor.rounds.looks import Looks
from astraeus_monitor.sampler import Sampler
from astraeus_monitor.sources import gpu_which
from astraeus_monitor.sources.output import Sruns
from astraeus_monitor.talk import build, obey, stopfile
from astraeus_monitor.talk.sender import parse
from astraeus_monitor.watch import clocks
from astraeus_monitor.watch.job import JobWatch
from astraeus_monitor.watch.step import integer, maybe_integer, seconds
from astraeus_protocol import report

from .conftest import FakeProc
from .test_files import job_dir
from .test_job import FACTS, Lab

ODD = ["²", "--5", "9" * 5000, "٣", "1_0", "1 0", ""]


@pytest.fixture
def lab(proc: FakeProc, tmp_path: Path) -> Lab:
    proc.add(5, comm="slurmstepd")
    for pid in (102, 103):
        proc.add(pid, 5)
    return Lab(proc, tmp_path / "7")


class TestNumbers:
    @pytest.mark.parametrize("text", ODD)
    def test_what_is_no_number(self, text: str) -> None:
        assert integer(text, -1) == -1
        assert maybe_integer(text) is None
        assert gpu_which.of_worker([0, 1], [text], {}).places == ((0, ""), (1, ""))

    @pytest.mark.parametrize(("text", "at"), [("nan", 50), ("inf", 50), ("-1", 50), ("x", 50), ("12.5", 12.5)])
    def test_times(self, text: str, at: float) -> None:
        assert seconds(text, 50) == at

    @pytest.mark.parametrize(("text", "found"), [
        ("", []), ("0,2-3", [0, 2, 3]), ("0-999999999", None), ("0-999", None), ("²", None), ("0,x", None)])
    def test_gpu_lists(self, text: str, found: list[int] | None) -> None:
        assert gpu_which.indices(text) == found

    def test_a_list_that_is_none_leaves_the_jobs_gpus(self, lab: Lab) -> None:
        lab.job.feed("0", [("gpus", {"rank": "2", "gpus": "0-999999999", "visible": "²"})], lab.now)
        assert [g.index for g in lab.worker().gpus] == [0, 1]

    def test_a_task_line_without_a_process_is_no_worker(self, lab: Lab) -> None:
        lab.job.feed("0", [("task", {"rank": "9", "pid": "x"}), ("task", {"rank": "8", "pid": "5"}),
                           ("task", {"rank": "²", "pid": "5", "start": "5"})], lab.now)
        assert sorted(lab.job.steps["0"].workers) == [2, 3]


class TestUsers:
    def test_a_name_of_any_bytes(self, proc: FakeProc, tmp_path: Path) -> None:
        log = os.fsencode(tmp_path) + b"/log\xff\n"
        with open(log, "wb") as file:
            file.write(b"x")
        for pid in (102, 103):
            proc.add(pid, 5, env={"RANK": "0"}, fds={1: os.fsdecode(log)}, pos={1: 5})
        proc.add(5, comm="slurmstepd")
        lab = Lab(proc, tmp_path / "7")
        lab.look()
        clocks.save(lab.job, "b")
        assert clocks.load(lab.begin(), "b")
        assert lab.record().steps[0].log.endswith("/log�\n")
        assert report.ENCODER.encode(lab.record())

    def test_visible_devices_of_any_length(self, proc: FakeProc, tmp_path: Path) -> None:
        for pid in (102, 103):
            proc.add(pid, 5, env={"RANK": "0", "CUDA_VISIBLE_DEVICES": "7" * 100_000})
        proc.add(5, comm="slurmstepd")
        lab = Lab(proc, tmp_path / "7")
        lab.look()
        assert len(lab.job.steps["0"].workers[2].roster.processes[0].visible or "") == 4096
        assert [g.index for g in lab.worker().gpus] == [0, 1]

    def test_a_users_slurmstepd_tells_nothing(self, proc: FakeProc) -> None:
        proc.add(30, comm="slurmstepd", uid=1001)
        (proc.path / "30" / "cmdline").write_bytes(b"slurmstepd: [7.3]\0")
        proc.add(31, 30, env={"SLURM_PROCID": "²", "SLURM_LOCALID": "9" * 50})
        assert list(survey.survey(proc)) == []
        proc.add(30, comm="slurmstepd")
        (proc.path / "30" / "cmdline").write_bytes(b"slurmstepd: [7.3]\0")
        assert [s.tasks for s in survey.survey(proc) if isinstance(s, survey.Stepd)] == [[(0, 0, 31, 31)]]

    def test_another_users_srun_is_nobodys(self, lab: Lab) -> None:
        sruns = [survey.Srun(50, 50, 1, 7, [40123], uid=1002), survey.Srun(51, 51, 1, 7, [], uid=1002)]
        lab.job.see_survey(sruns, [], lab.now)
        assert lab.job.steps["0"].sruns == []
        lab.job.see_survey([survey.Srun(50, 50, 1, 7, [40123], uid=1001)], [], lab.now)
        assert lab.job.steps["0"].sruns == [(50, 50)]


    def test_a_tree_of_six_hundred(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(5, comm="slurmstepd")
        proc.add(102, 5)
        proc.add(103, 5, env={"RANK": "3"})
        for pid in range(1000, 1600):
            (proc.path / str(pid)).mkdir()
            os.link(proc.path / "102" / "status", proc.path / str(pid) / "status")
            text = (proc.path / "102" / "stat").read_text().split()
            text[0], text[3], text[21] = str(pid), "102", str(pid)
            (proc.path / str(pid) / "stat").write_text(" ".join(text))
        lab = Lab(proc, tmp_path / "7")
        lab.look()
        first, second = lab.record().steps[0].workers
        assert first.unknown[0] == report.Unknown(
            "process", "too many processes: 601, the first 512 are read")
        assert [p.rank for p in second.processes] == ["3"]
        lab.tick()
        assert lab.worker(0).state == "running"


def looks_of(lab: Lab) -> Looks:
    """What a reply is obeyed with."""
    looks = Looks(selectors.DefaultSelector(), Clock(), lab.proc, lambda: None)
    looks.jobs[7] = lab.job
    return looks


class TestController:
    def test_odd_digits_in_a_reply_are_no_http(self) -> None:
        assert parse("HTTP/1.1 ² OK\r\n\r\n".encode("latin-1")) == (0, {}, b"")
        assert parse("HTTP/1.1 200 OK\r\nContent-Length: ²\r\n\r\nab".encode("latin-1"))[2] == b"ab"

    @pytest.mark.parametrize("url", ["http://h:99999", "http://h:0", "http://", "http://:6831"])
    def test_a_controller_that_is_no_place(self, url: str) -> None:
        with pytest.raises(config.ConfigFault, match="write"):
            config.check({"controller": url}, "a.toml")

    @pytest.mark.parametrize("uid", ["-5", "99999999999"])
    def test_a_stop_file_for_nobody(self, lab: Lab, uid: str) -> None:
        lab.job.facts = {**FACTS, "uid": uid}
        reply = report.Reply("n", commands=[report.StopFile(7, "n1", {"cause": "stalled"})])
        assert not obey.obey(reply, looks_of(lab))
        assert not lab.job.stop_file
        assert [p.name for p in lab.path.iterdir()] == []

    def test_no_room_is_said_once_and_tried_again(self, lab: Lab, monkeypatch: pytest.MonkeyPatch,
                                                  capfd: pytest.CaptureFixture[str]) -> None:
        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        put = stopfile.put
        monkeypatch.setattr(stopfile, "put", full)
        monkeypatch.setattr(clocks, "put", full)
        reply = report.Reply("n", commands=[report.StopFile(7, "n1", {"cause": "stalled"})],
                             causes={"7": "stalled", "²": "x"})
        for _ in range(3):
            assert not obey.obey(reply, looks_of(lab))
            clocks.save(lab.job, "b")
        said = capfd.readouterr().err
        assert said.count("can't write its stop file: No space left on device") == 1
        assert said.count("can't write its cause") == 1
        monkeypatch.setattr(stopfile, "put", put)
        assert obey.obey(reply, looks_of(lab))
        assert (lab.path / "stop").read_text() == "cause: stalled\n"


class TestStateDirectory:
    def test_links_and_odd_names_are_no_jobs(self, tmp_path: Path) -> None:
        real = job_dir(tmp_path, 7)
        elsewhere = job_dir(tmp_path / "home", 9)
        os.symlink(elsewhere, tmp_path / "jobs" / "9")
        for name in ("²", "x", "9" * 30, "-3"):
            (tmp_path / "jobs" / name).mkdir()
        (tmp_path / "jobs" / "8").write_text("nonce=n\n")
        registry = Registry(tmp_path)
        assert [e.job for e in registry.scan()[0]] == [7]
        (elsewhere / "steps" / "0").write_text("step v=1 step=0\n")
        (real / "steps").rmdir()
        os.symlink(elsewhere / "steps", real / "steps")
        assert dict(registry.jobs[7].news()) == {}

    def test_a_folder_that_cant_be_read_loses_no_job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job_dir(tmp_path, 7)
        registry = Registry(tmp_path)
        registry.scan()

        def full(path: object) -> Iterator[os.DirEntry[str]]:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(os, "scandir", full)
        assert registry.scan() == ([], [])
        assert list(registry.jobs) == [7]

    def test_it_vanishes_between_two_reads(self, tmp_path: Path, lab: Lab) -> None:
        path = job_dir(tmp_path, 7)
        (path / "steps" / "0").write_text("step v=1 step=0\n")
        entry = Registry(tmp_path).scan()[0][0]
        news = entry.news()
        assert next(news)[0] == "0"
        (path / "steps" / "0").unlink()
        (path / "steps").rmdir()
        assert list(news) == []
        assert dict(entry.news()) == {}
        lab.path.rmdir()
        clocks.save(lab.job, "b")  # Epilog was faster
        reply = report.Reply("n", commands=[report.StopFile(7, "n1", {"cause": "stalled"})])
        assert not obey.obey(reply, looks_of(lab))

    @pytest.mark.parametrize("steps", [
        {"0": {}}, {"0": []}, {"0": {"growth": {"last": "x"}}}, {"0": None}])
    def test_clocks_that_are_no_clocks(self, lab: Lab, steps: object) -> None:
        saved = {**lab.job.save(), "steps": steps}
        job = JobWatch(7, FACTS, lab.path, lab.now, 5)
        job.load(saved)  # its step is not known yet
        job.feed("0", [("step", lab.header), ("task", {"rank": "2", "pid": "102", "start": "102"})], lab.now)
        assert [w.rank for w in job.record(lab.now, "c1").steps[0].workers] == [2]

    def test_clocks_of_another_version(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clocks, "VERSION", clocks.VERSION + 1)
        clocks.save(lab.job, "b")
        monkeypatch.undo()
        assert not clocks.load(lab.begin(), "b")


class TestUnknownIsNotZero:
    def test_no_descriptor_is_no_end(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        lab.look()
        lab.tick()

        def full(*arguments: object, **more: object) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        import selectors

        sampler = Sampler(lab.proc, selectors.DefaultSelector(), lambda: None)
        monkeypatch.setattr(os, "open", full)
        for n in range(1, 4):
            assert sampler.sample([lab.job], lab.now + 5 * n, pulse=True) == []
        monkeypatch.undo()
        assert [(w.state, w.processes[0].state) for w in lab.record().steps[0].workers] == [("running", "S")] * 2

    def test_a_look_that_did_not_come_to_the_srun(self, lab: Lab) -> None:
        step = lab.job.steps["0"]
        step.shared_seen, step.growth.last = True, lab.now - 100
        assert lab.record().steps[0].output_s == 100
        lab.job.miss_shared("no answer before the deadline")
        told = lab.record().steps[0]
        assert told.output_s is None
        assert told.unknown == [report.Unknown("output", "no answer before the deadline")]

    def test_an_srun_that_one_look_missed_is_no_new_one(self) -> None:
        sruns = Sruns()
        sruns.wrote([SrunLook("0", 5, 5, 100, 10)])
        sruns.wrote([])
        assert sruns.wrote([SrunLook("0", 5, 5, 700, 12)]) == {"0": (600, 2)}

    def test_a_zombies_status_outlives_it(self, lab: Lab) -> None:
        class Blind(Exits):
            def __init__(self) -> None:
                pass

            def watch(self, pid: int, start: int) -> None:
                pass

            def status(self, pid: int, start: int) -> int | None:
                return None

        lab.look()
        lab.proc.add(103, 5, state="Z", exit_code=9)
        lab.job.sample(lab.proc, lab.now + 5, Blind())
        lab.proc.remove(103)
        lab.job.sample(lab.proc, lab.now + 10, Blind())
        process = lab.worker(1).processes[0]
        assert (process.state, process.exit_status) == ("X", 9)

    def test_a_job_that_cant_be_told_costs_no_other(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        other = JobWatch(8, {**FACTS, "nonce": "n8"}, lab.path, lab.now, 5)

        def fail(*arguments: object) -> None:
            raise ValueError("odd")

        monkeypatch.setattr(other, "record", fail)
        first, second = build.jobs([other, lab.job], lab.now, "c1")
        assert (first.job, first.nonce, first.unknown, first.steps) == (8, "n8", [build.UNTOLD], [])
        assert len(second.steps) == 1
        assert fenced("a thing", lambda: 1 // 0, 5) == 5


def test_a_monitor_that_may_read_nothing_of_a_rank_says_so(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(100, env={"RANK": "0"})

    def refuse(*_: object) -> bytes:
        raise PermissionError

    for name in ("io", "maps"):
        monkeypatch.setattr(proc, name, refuse)
    ask = Ask(job=7, now=200.0, tasks=[TaskAsk("0", 0, 100, 100, True)], sruns=[], settled={}, launchers={})
    [seen] = [line for line in look(proc, ask, Memory()) if isinstance(line, TaskLook)]
    assert [fault for _, fault in seen.faults] == ["may not read /proc/100: the monitor must run as root"]
