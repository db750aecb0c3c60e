"""Step files, stop files, config, reports that are too long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from astraeus_monitor import config
from astraeus_monitor.registry import Registry
from astraeus_monitor.talk import build, stopfile
from astraeus_protocol import report


def job_dir(state: Path, job: int, nonce: str = "n1") -> Path:
    path = state / "jobs" / str(job)
    (path / "steps").mkdir(parents=True, exist_ok=True)
    (path / "job").write_text(f"v=1\njob={job}\nnonce={nonce}\nuid=0\n")
    return path


class TestRegistry:
    def test_jobs_come_and_leave(self, tmp_path: Path) -> None:
        registry = Registry(tmp_path)
        assert registry.scan() == ([], [])
        path = job_dir(tmp_path, 7)
        (came, left) = registry.scan()
        assert ([e.job for e in came], left) == ([7], [])
        assert registry.scan() == ([], [])
        job_dir(tmp_path, 7, "n2")
        came, left = registry.scan()
        assert ([e.nonce for e in came], [e.nonce for e in left]) == (["n2"], ["n1"])
        (path / "steps").rmdir()
        (path / "job").unlink()
        path.rmdir()
        came, left = registry.scan()
        assert (came, [e.job for e in left]) == ([], [7])

    def test_a_job_file_without_a_nonce_waits(self, tmp_path: Path) -> None:
        path = job_dir(tmp_path, 7)
        (path / "job").write_text("v=1\njob=7\n")
        assert Registry(tmp_path).scan() == ([], [])

    def test_a_torn_last_line_waits_for_its_end(self, tmp_path: Path) -> None:
        path = job_dir(tmp_path, 7)
        registry = Registry(tmp_path)
        entry = registry.scan()[0][0]
        file = path / "steps" / "0"
        file.write_text("step v=1 step=0\ntask rank=0 pid=1")
        assert dict(entry.news()) == {"0": [("step", {"v": "1", "step": "0"})]}
        assert dict(entry.news()) == {}
        with file.open("a") as more:
            more.write("2 start=5\nexit rank=0")
        assert dict(entry.news()) == {"0": [("task", {"rank": "0", "pid": "12", "start": "5"})]}

    def test_too_many_tasks(self, tmp_path: Path) -> None:
        path = job_dir(tmp_path, 7)
        entry = Registry(tmp_path).scan()[0][0]
        (path / "steps" / "0").write_text("task rank=1 pid=2 start=3\n" * 170_000)
        list(entry.news())
        (path / "steps" / "0").open("a").write("task rank=1 pid=2 start=3\n")
        list(entry.news())
        list(entry.news())
        assert entry.too_much

    def test_links_and_strange_names_are_left_alone(self, tmp_path: Path) -> None:
        path = job_dir(tmp_path, 7)
        entry = Registry(tmp_path).scan()[0][0]
        (path / "steps" / "extern").write_text("step v=1\n")
        os.symlink("/etc/hostname", path / "steps" / "3")
        assert dict(entry.news()) == {}


class TestStopFile:
    def test_mode_owner_and_lines(self, tmp_path: Path) -> None:
        stopfile.write_stop(tmp_path, 12345 if os.geteuid() == 0 else os.geteuid(),
                            {"cause": "stalled", "reason": "two\nlines: here\r", "grace_seconds": "30"})
        path = tmp_path / "stop"
        assert path.read_text() == "cause: stalled\nreason: two lines: here\ngrace_seconds: 30\n"
        assert path.stat().st_mode & 0o7777 == 0o400
        if os.geteuid() == 0:
            assert path.stat().st_uid == 12345
        stopfile.write_stop(tmp_path, os.geteuid(), {"cause": "failed"})
        assert path.read_text() == "cause: failed\n"
        assert [p.name for p in tmp_path.iterdir()] == ["stop"]

    def test_a_link_in_its_place_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_text("mine")
        os.symlink(tmp_path / "victim", tmp_path / "stop")
        os.symlink(tmp_path / "victim", tmp_path / ".stop.new")
        stopfile.write_stop(tmp_path, os.geteuid(), {"cause": "stalled"})
        assert (tmp_path / "victim").read_text() == "mine"
        assert not (tmp_path / "stop").is_symlink()

    def test_cause(self, tmp_path: Path) -> None:
        stopfile.write_cause(tmp_path, "stalled")
        assert (tmp_path / "cause").read_text() == "stalled\n"
        assert (tmp_path / "cause").stat().st_mode & 0o7777 == 0o600


class TestConfig:
    def test_defaults_and_values(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text('[monitor]\ncontroller = "http://ctl:6831"\ninterval_s = 10\n[controller]\nmode = "act"\n')
        read = config.load(path)
        assert (read.controller, read.interval_s, read.pulse_s) == ("http://ctl:6831", 10, 5)
        assert {key.name: key.default for key in config.KEYS} == {
            name: getattr(config.Config(), name) for name in config.Config.__struct_fields__}

    @pytest.mark.parametrize(("text", "said"), [
        ("[monitor]\nintervall_s = 5\n", "has no key intervall_s; its keys are controller"),
        ('[monitor]\ninterval_s = "5"\n', "must be a number"),
        ("[monitor]\ninterval_s = 500\n", "write a number from 5 to 60"),
        ("[monitor]\ninterval_s = true\n", "must be a number"),
        ('[monitor]\ncontroller = "ctl:6831"\n', "must start with http://"),
        ("monitor = 3\n", "write [monitor]"), ("[monitor\n", "is no TOML")])
    def test_faults_say_what_to_write(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "a.toml"
        path.write_text(text)
        with pytest.raises(config.ConfigFault) as fault:
            config.load(path)
        assert said in str(fault.value)
        assert "\n" not in str(fault.value).partition("TOML")[0]

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(config.ConfigFault, match="No such file"):
            config.load(tmp_path / "none.toml")


def test_a_report_that_is_too_long_keeps_what_is_wrong() -> None:
    def worker(rank: int) -> report.Worker:
        return report.Worker(rank, processes=[
            report.Process(rank * 100 + n, 5, state="T" if rank == n == 0 else "S", ties=list(range(32)))
            for n in range(8)])

    made = report.Report("c1", "b", "s", 1, "n", 0, jobs=[
        report.Job(7, "n", steps=[report.Step("0", workers=[worker(r) for r in range(64)])])])
    limit = 10_000
    assert len(report.ENCODER.encode(made)) > limit
    data = build.encode(made, limit)
    assert len(data) <= limit
    workers = report.REPORT_DECODER.decode(data).jobs[0].steps[0].workers
    assert [p.state for p in workers[0].processes] == ["T"]
    assert workers[5].processes == []
    assert workers[5].unknown == [report.Unknown("process", "too many tasks")]
