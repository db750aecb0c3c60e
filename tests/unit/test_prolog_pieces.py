"""What the Prolog and Epilog pieces write and remove."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest
from astraeus_protocol.jobfile import parse_job
from astraeus_protocol.settings import OPTIONS, settings_from
from prolog_host import ENV_2411, EPILOG, LACKING_IN_2205, PROLOG, run, without_gpus


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def prolog(state: Path, env: dict[str, str] | None = None, **more: str) -> dict[str, str]:
    """Run the piece; what it wrote, {} when nothing."""
    run(PROLOG, state, "/nonexistent", env={**(ENV_2411 if env is None else env), **more})
    path = state / "jobs" / "111" / "job"
    return parse_job(path.read_text()) if path.exists() else {}


def test_a_gpu_job_without_options_is_handed_over(state: Path) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    job = prolog(state)
    assert before - 0.02 <= float(job.pop("at")) <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert len(job.pop("nonce")) == 36
    assert job.pop("boot") == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert job == {
        "v": "1", "version": "0.1.0", "job": "111", "node": "c1", "cluster": "hs", "uid": "1001", "gid": "1001",
        "user": "alice", "account": "default", "partition": "main", "nodelist": "c[1-2]", "nodes": "2",
        "gpus": "0", "restarts": "0", "start_time": "1795976607", "work_dir": "/home/alice",
        "stdout": "/home/alice/out-%j.txt", "by": "prolog",
    }


def test_modes(state: Path) -> None:
    prolog(state)
    modes = {str(p.relative_to(state)): stat.S_IMODE(p.stat().st_mode) for p in state.rglob("*")}
    assert modes == {"jobs": 0o711, "jobs/111": 0o711, "jobs/111/job": 0o600}


def test_slurm_2205_names_the_node_list_otherwise(state: Path) -> None:
    env = {k: v for k, v in ENV_2411.items() if k not in LACKING_IN_2205}
    job = prolog(state, env)
    assert job["nodelist"] == "c[1-2]"
    assert "start_time" not in job


def test_every_attempt_has_a_nonce_of_its_own(state: Path) -> None:
    assert prolog(state)["nonce"] != prolog(state)["nonce"]


def test_every_option_is_carried(state: Path) -> None:
    values = {"time": "60", "flag": "1", "choice": "restart", "metric": "loss", "number": "1e3", "ratio": "1.5",
              "port": "9000", "path": "/tmp/a%20b", "regex": "%5Ea", "signal": "USR1@300", "count": "3"}
    given = {option.key: values[option.kind] for option in OPTIONS if option.key != "no_stall_watch"}
    job = prolog(state, **{f"SPANK_ASTRAEUS_{key.upper()}": value for key, value in given.items()})
    assert {key: job.get(key) for key in given} == given
    assert job["asked"] == "1"
    settings = settings_from(job)
    assert (settings.stall_after, settings.stop_grace, settings.metrics_file) == (60, 300, "/tmp/a b")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_who_asks_is_watched_without_gpus(state: Path, option) -> None:
    job = prolog(state, without_gpus(), **{f"SPANK_ASTRAEUS_{option.key.upper()}": "1"})
    assert bool(job) == option.asks


@pytest.mark.parametrize("env", [
    without_gpus(),
    {**ENV_2411, "SLURM_JOB_GPUS": ""},
    {**ENV_2411, "SPANK_ASTRAEUS_NO_STALL_WATCH": "1", "SPANK_ASTRAEUS_STALL_AFTER": "60"},
    {**ENV_2411, "SLURM_JOB_ID": "../../etc"},
    {**ENV_2411, "SLURM_JOB_ID": ""},
    {},
], ids=["no gpus", "empty gpus", "no-stall-watch", "odd job id", "no job id", "nothing"])
def test_nothing_at_all_for_a_job_that_is_not_watched(state: Path, env: dict[str, str]) -> None:
    assert prolog(state, env) == {}
    assert os.listdir(state) == []


def test_what_an_earlier_attempt_left_is_removed(state: Path) -> None:
    old = state / "jobs" / "111"
    (old / "steps").mkdir(parents=True)
    (old / "steps" / "batch").write_text("old\n")
    (old / "cause").write_text("stalled\n")
    prolog(state)
    assert os.listdir(old) == ["job"]


def test_a_link_in_the_job_s_place_is_only_removed(state: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("as it was")
    (state / "jobs").mkdir()
    (state / "jobs" / "111").symlink_to(outside)
    assert prolog(state)["job"] == "111"
    assert os.listdir(outside) == ["file"]


OURS = "[astraeus: stalled 14:02-14:31, rank 5 on c3, restarted 1/10, cause={}]"


@pytest.mark.parametrize(("comment", "cause", "foreign"), [
    ("", "", ""),
    ("hello c", "", ""),
    (OURS.format("stalled"), "stalled", ""),
    ("mine " + OURS.format("failed"), "failed", ""),
    ("mine " + OURS.format("node_fail") + " and more", "node_fail", ""),
    ("[astraeus: cause=preempted x]", "preempted", ""),
    ("[astraeus: cause=requested]", "requested", ""),
    ("cause=stalled", "", ""),
    ("[astraeus: nothing said]", "", ""),
    ("mine [astraeus: cause=$(reboot)]", "", ""),
    ("mine [astraeus: cause=stalledness]", "", ""),
    ("mine [astraeus: because=stalled]", "", ""),
    ("mine [astraeus: cause=stalled", "", ""),
    # A forged piece before ours: ours stands last.
    ("[astraeus: cause=preempted] mine " + OURS.format("stalled"), "stalled", ""),
    ("a\nb|c [x] * ? $HOME `id` " + OURS.format("stalled"), "stalled", ""),
    ("größe 🚀 " + OURS.format("stalled"), "stalled", ""),
    ("mine [astraeus: " + "x" * 500 + " cause=stalled ]", "", ""),
    ('{"a": 1} ' + OURS.format("stalled"), "", "1"),
    ("[1, 2]", "", "1"),
    ("JS1:abc", "", "1"),
])
def test_the_cause_in_the_comment(state: Path, comment: str, cause: str, foreign: str) -> None:
    job = prolog(state, SLURM_JOB_COMMENT=comment, SLURM_JOB_RESTART_COUNT="1")
    assert (job.get("restart_cause", ""), job.get("comment_foreign", "")) == (cause, foreign)
    assert job["restarts"] == "1"


def test_a_first_start_has_no_cause(state: Path) -> None:
    """A job may be submitted with another job's comment."""
    assert "restart_cause" not in prolog(state, SLURM_JOB_COMMENT=OURS.format("stalled"))


def test_the_cause_may_stand_before_a_comma(state: Path) -> None:
    job = prolog(state, SLURM_JOB_COMMENT="[astraeus: cause=stalled, rank 5 on c3]", SLURM_JOB_RESTART_COUNT="1")
    assert job["restart_cause"] == "stalled"


@pytest.mark.parametrize("comment", ["x" * 65_000, "[" * 65_000, "[astraeus: " * 5_900, "\n" * 65_000],
                         ids=["plain", "brackets", "pieces", "newlines"])
def test_a_comment_of_64_kib_is_quick(state: Path, comment: str) -> None:
    start = time.monotonic()
    job = prolog(state, SLURM_JOB_COMMENT=comment + " " + OURS.format("stalled"), SLURM_JOB_RESTART_COUNT="1")
    assert time.monotonic() - start < 0.5
    assert job.get("restart_cause", "") == ("" if comment.startswith("[[") else "stalled")


def test_hostile_values_stay_in_their_line(state: Path) -> None:
    job = prolog(state, SLURM_JOB_WORK_DIR="/home/a b/$(id)\nuid=0\nby=plugin", SLURM_JOB_STDOUT="\nuid=0",
                 SLURM_JOB_ACCOUNT="%s%n\\n", SLURM_JOB_USER="-n")
    assert job["work_dir"] == "/home/a b/$(id)"
    assert job["uid"] == "1001"
    assert job["by"] == "prolog"
    assert "stdout" not in job
    assert job["account"] == "%s%n\\n"
    assert job["user"] == "-n"


def test_a_state_directory_that_can_not_be_made_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run(PROLOG, tmp_path / "file" / "state", "/nonexistent", env=ENV_2411)


def test_the_epilog_removes_the_job_and_wakes_the_monitor(state: Path) -> None:
    prolog(state)
    (state / "jobs" / "111" / "steps").mkdir()
    (state / "jobs" / "112").mkdir()
    os.mkfifo(state / "wake")
    fifo = os.open(state / "wake", os.O_RDONLY | os.O_NONBLOCK)
    try:
        run(EPILOG, state, env=ENV_2411)
        assert os.listdir(state / "jobs") == ["112"]
        assert len(os.read(fifo, 10)) == 1
        run(EPILOG, state, env=ENV_2411)
        assert os.read(fifo, 10) == b""  # nothing to do, nothing done
    finally:
        os.close(fifo)


def test_the_epilog_waits_until_the_driver_is_closed(state: Path) -> None:
    """Only that of a job with GPUs, and for nobody who is gone."""
    def took_s(gpus: str, pid: int) -> float:
        prolog(state, SLURM_JOB_GPUS=gpus)
        (state / "driver").write_text(f"{pid}\n")
        began = time.monotonic()
        run(EPILOG, state, env=ENV_2411)
        return time.monotonic() - began

    assert took_s("", os.getpid()) < 1
    assert took_s("0,1", 999_999_999) < 1
    closer = threading.Timer(0.2, (state / "driver").unlink)
    closer.start()
    assert 0.2 <= took_s("0", os.getpid()) < 1.5


def test_the_epilog_does_without_a_monitor(state: Path) -> None:
    prolog(state)
    os.mkfifo(state / "wake")
    run(EPILOG, state, env=ENV_2411)
    assert os.listdir(state / "jobs") == []
    assert sorted(os.listdir(state)) == ["jobs", "wake"]
