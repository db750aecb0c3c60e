"""What a watched job's batch script and tasks find in their environment."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from spank_host import BATCH, node_step, play, started

STALE = {"ASTRAEUS_STOP_FILE": "/old", "ASTRAEUS_RESTART_CAUSE": "stalled", "ASTRAEUS_RESTART_COUNT": "7"}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "123"
    folder.mkdir(parents=True)
    return folder


def environment_of(folder: Path, job_file: str | None, *options: tuple[str, ...], restarts: int = 0,
                   step: int = BATCH, local: int = 0, env: dict[str, str] | None = None) -> dict[str, str]:
    if job_file is not None:
        (folder / "job").write_text(job_file)
    commands = [*node_step(step=step, restarts=restarts, env=env), *started(*options),
                ("item", "S_TASK_ID", local), ("call", "slurm_spank_task_init_privileged"), ("show-env",)]
    state = {"ASTRAEUS_STATE_DIR": str(folder.parents[1]), "ASTRAEUS_START_MONITOR": "/nonexistent"}
    return {k: v for k, v in play(commands, state).env.items() if k.startswith("ASTRAEUS_")
            and k != "ASTRAEUS_RAS_ADDR"}


def test_first_start(job: Path) -> None:
    found = environment_of(job, "by=prolog\nrestart_cause=stalled\n", env=STALE)
    assert found == {"ASTRAEUS_STOP_FILE": f"{job}/stop"}


@pytest.mark.parametrize("step", [BATCH, 0])
def test_second_attempt(job: Path, step: int) -> None:
    found = environment_of(job, "by=prolog\nrestart_cause=stalled\n", restarts=2, step=step)
    assert found == {"ASTRAEUS_STOP_FILE": f"{job}/stop", "ASTRAEUS_RESTART_CAUSE": "stalled",
                     "ASTRAEUS_RESTART_COUNT": "2"}


def test_prolog_s_restart_count_counts_where_slurm_tells_the_plugin_none(job: Path) -> None:
    found = environment_of(job, "by=prolog\nrestarts=3\nrestart_cause=failed\n", restarts=0)
    assert found["ASTRAEUS_RESTART_COUNT"] == "3"
    assert found["ASTRAEUS_RESTART_CAUSE"] == "failed"


@pytest.mark.parametrize("word", ["stalled", "failed", "node_fail", "preempted", "requested"])
def test_the_five_causes(job: Path, word: str) -> None:
    found = environment_of(job, f"by=prolog\nrestart_cause={word}\n", restarts=1)
    assert found["ASTRAEUS_RESTART_CAUSE"] == word


def test_another_word_is_no_cause(job: Path) -> None:
    found = environment_of(job, "by=prolog\nrestart_cause=$(reboot)\n", restarts=1, env=STALE)
    assert "ASTRAEUS_RESTART_CAUSE" not in found
    assert found["ASTRAEUS_RESTART_COUNT"] == "1"


def test_the_cause_file_speaks_where_the_comment_is_another_s(job: Path) -> None:
    (job / "cause").write_text("preempted\n")
    found = environment_of(job, "by=prolog\ncomment_foreign=1\n", restarts=1, step=3)
    assert found["ASTRAEUS_RESTART_CAUSE"] == "preempted"


def test_the_batch_step_waits_for_the_cause_file(job: Path) -> None:
    timer = threading.Timer(0.3, lambda: (job / "cause").write_text("stalled"))
    timer.start()
    found = environment_of(job, "by=prolog\ncomment_foreign=1\n", restarts=1)
    assert found["ASTRAEUS_RESTART_CAUSE"] == "stalled"


def test_it_waits_two_seconds_at_most(job: Path) -> None:
    start = time.monotonic()
    found = environment_of(job, "by=prolog\ncomment_foreign=1\n", restarts=1)
    assert 1.9 < time.monotonic() - start < 4
    assert "ASTRAEUS_RESTART_CAUSE" not in found


@pytest.mark.parametrize(("job_file", "restarts", "step"), [
    ("by=prolog\ncomment_foreign=1\n", 0, BATCH),
    ("by=prolog\ncomment_foreign=1\n", 1, 0),
    ("by=prolog\n", 1, BATCH),
])
def test_nobody_else_waits(job: Path, job_file: str, restarts: int, step: int) -> None:
    start = time.monotonic()
    environment_of(job, job_file, restarts=restarts, step=step)
    assert time.monotonic() - start < 1


def test_a_job_that_is_not_watched_has_nothing_stale(job: Path) -> None:
    assert environment_of(job, None, restarts=1, env=STALE) == {}


def test_metrics_port_is_the_task_s_own(job: Path) -> None:
    found = environment_of(job, "by=prolog\n", ("metrics-port", "9000"), step=0, local=3)
    assert found["ASTRAEUS_METRICS_PORT"] == "9003"


def test_no_port_beyond_the_last(job: Path) -> None:
    found = environment_of(job, "by=prolog\n", ("metrics-port", "65535"), step=0, local=1)
    assert "ASTRAEUS_METRICS_PORT" not in found


def test_a_step_that_says_no_still_hears_of_a_stop(job: Path) -> None:
    found = environment_of(job, "by=prolog\n", ("no-stall-watch", "(null)"), step=0)
    assert found == {"ASTRAEUS_STOP_FILE": f"{job}/stop"}


def ras_address(job: Path, *, watched: bool = True, step: int = 0, argument: str = "", number: int = 123,
                **env: str) -> str | None:
    """NCCL_RAS_ADDR as the step finds it; None: it has none."""
    if watched:
        (job / "job").write_text("by=prolog\n")
    hooks = ("slurm_spank_init", "slurm_spank_init_post_opt")
    commands = [*node_step(job=number, step=step, env=env), *(("call", hook) for hook in hooks),
                ("call", "slurm_spank_user_init", *([argument] if argument else [])), ("show-env",)]
    state = {"ASTRAEUS_STATE_DIR": str(job.parents[1]), "ASTRAEUS_START_MONITOR": "/nonexistent"}
    return play(commands, state).env.get("NCCL_RAS_ADDR")


def test_each_step_has_an_nccl_ras_of_its_own(job: Path) -> None:
    assert ras_address(job) == f"localhost:{16384 + 123}"
    assert ras_address(job, step=2) == f"localhost:{16384 + 123 + 2 * 1009}"
    assert ras_address(job, step=BATCH) == f"localhost:{16384 + (123 + 8191 * 1009) % 8192}"


@pytest.mark.parametrize(("env", "argument", "watched", "found"), [
    ({"NCCL_RAS_ADDR": "localhost:9999"}, "", True, "localhost:9999"),
    ({"NCCL_RAS_ADDR": "[::1]:" + "9" * 300}, "", True, "[::1]:" + "9" * 300),
    # Set for the batch script, or for the job that this one was submitted from: not the user's.
    ({"NCCL_RAS_ADDR": "localhost:17000", "ASTRAEUS_RAS_ADDR": "localhost:17000"}, "", True, "localhost:16507"),
    ({"NCCL_RAS_ADDR": "localhost:17000", "ASTRAEUS_RAS_ADDR": "localhost:17000"}, "", False, None),
    ({"NCCL_RAS_ADDR": "localhost:9999", "ASTRAEUS_RAS_ADDR": "localhost:17000"}, "", True, "localhost:9999"),
    ({}, "ras_addr=off", True, None),
    ({"NCCL_RAS_ADDR": "localhost:17000", "ASTRAEUS_RAS_ADDR": "localhost:17000"}, "ras_addr=off", True, None),
    ({}, "", False, None),
])
def test_what_the_user_or_the_site_says_of_nccl_s_ras_stands(job: Path, env: dict[str, str], argument: str,
                                                             watched: bool, found: str | None) -> None:
    assert ras_address(job, argument=argument, watched=watched, **env) == found
