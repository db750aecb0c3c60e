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
    return {k: v for k, v in play(commands, state).env.items() if k.startswith("ASTRAEUS_")}


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
