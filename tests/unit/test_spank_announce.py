"""A step that asks by itself, in a job that Prolog did not announce; and links in the plugin's way."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from astraeus_protocol.jobfile import parse_job
from spank_host import handed_over, lines, node_step, on_node, started, task


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state" / "jobs").mkdir(parents=True)
    return tmp_path / "state"


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def start_monitor(tmp_path: Path) -> Path:
    """Stands for start-monitor: notes its descriptors, its session and its environment."""
    script = tmp_path / "start-monitor"
    script.write_text(f"#!/bin/sh\nls -l /proc/$$/fd >{tmp_path}/fds\nenv >{tmp_path}/env\n"
                      f"cut -d' ' -f1,6 /proc/$$/stat >{tmp_path}/new && mv {tmp_path}/new {tmp_path}/session\n")
    script.chmod(0o755)
    return script


def wait_for(path: Path, seconds: float = 5) -> str:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.02)
    return path.read_text()


def test_a_user_comes_through_to_the_stop_file_whatever_the_umask(tmp_path: Path, start_monitor: Path) -> None:
    before = os.umask(0o077)
    try:
        on_node(tmp_path / "run", [*node_step(), *started(("stall-after", "60s"))], start_monitor)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("run", "run/jobs", "run/jobs/123")]
    assert modes == [0o755, 0o711, 0o711]


def test_a_step_that_asks_announces_its_job(state: Path, start_monitor: Path) -> None:
    environment = {"SLURM_JOB_USER": "alice", "SLURM_JOB_ACCOUNT": "physics\nuid=0", "SLURM_CLUSTER_NAME": "hs",
                   "SLURM_JOB_NODELIST": "c[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_HET_JOB_ID": "120",
                   "SECRET": "x"}
    before = boottime()
    on_node(state, [*node_step(restarts=1, env=environment), *started(("stall-after", "60s"))],
            start_monitor)
    session = wait_for(start_monitor.parent / "session").split()
    folder = state / "jobs" / "123"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
    assert stat.S_IMODE((folder / "job").stat().st_mode) == 0o600
    assert sorted(os.listdir(folder)) == ["job", "steps", "used"]
    job = parse_job((folder / "job").read_text())
    assert len(job.pop("nonce")) == 32
    assert job.pop("boot") == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert before - 0.02 <= float(job.pop("at")) <= boottime()
    assert job == {"v": "1", "version": "0.1.0", "job": "123", "node": "c1", "uid": "1001", "gid": "1001",
                   "restarts": "1", "by": "plugin", "asked": "0", "cluster": "hs", "user": "alice",
                   "account": "physics", "nodes": "2", "leader": "120", "nodelist": "c[1-2]"}
    assert lines(folder)[0][1]["stall_after"] == "60"
    # The monitor's starter holds nothing of the step and leads its own session.
    assert session[0] == session[1]
    fds = (start_monitor.parent / "fds").read_text()
    assert "/dev/null" in fds
    assert "pipe:" not in fds  # the host's own stdin and stdout are pipes
    assert "SECRET" not in (start_monitor.parent / "env").read_text()


def test_a_later_step_of_such_a_job_is_watched_only_if_it_asks(state: Path) -> None:
    on_node(state, [*node_step(step=0), *started(("stall-after", "60s"))])
    on_node(state, [*node_step(step=1), *started()])
    on_node(state, [*node_step(step=2), *started(("no-stall-watch", "(null)"), ("stall-action", "alert"))])
    assert sorted(os.listdir(state / "jobs" / "123" / "steps")) == ["0", "2"]


def test_the_state_directory_is_made_where_it_is_missing(tmp_path: Path) -> None:
    state = tmp_path / "run" / "astraeus"
    state.parent.mkdir()
    on_node(state, [*node_step(), *started(("stall-after", "60s"))])
    assert lines(state / "jobs" / "123")[0][0] == "step"
    assert stat.S_IMODE(state.stat().st_mode) == 0o755


def test_an_option_that_does_not_ask_announces_nothing(state: Path) -> None:
    on_node(state, [*node_step(), *started(("metrics-port", "9000"))])
    assert os.listdir(state / "jobs") == []


@pytest.mark.parametrize("planted", ["jobs/123", "jobs/123/steps", "jobs/123/steps/0", "jobs/123/used"])
def test_no_link_is_followed(state: Path, tmp_path: Path, planted: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "file"
    target.write_text("as it was")
    if planted != "jobs/123":
        handed_over(state)
    path = state / planted
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside if planted in ("jobs/123", "jobs/123/steps") else target)
    on_node(state, [*node_step(), *started(("stall-after", "60s")), *task(0, 0, os.getpid()),
                    ("call", "slurm_spank_task_post_fork")])
    assert os.listdir(outside) == ["file"]
    assert target.read_text() == "as it was"
