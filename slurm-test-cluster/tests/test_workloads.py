"""The workloads on this machine alone, started by their launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[1] / "workloads"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def launch(home: Path, *arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    environment |= {"HOME": str(home), "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    command = [sys.executable, "-u", str(WORKLOADS / "launcher.py"), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def lines_until(process: subprocess.Popen[str], wanted: str, timeout: float = 20) -> list[str]:
    """Read lines until one contains `wanted`."""
    seen: list[str] = []
    assert process.stdout is not None
    deadline = time.monotonic() + timeout
    for line in process.stdout:
        seen.append(line.rstrip())
        if wanted in line:
            return seen
        assert time.monotonic() < deadline, seen
    raise AssertionError(f"no {wanted!r} in {seen}")


def worker_pids(lines: list[str]) -> dict[int, int]:
    starts = [line.split() for line in lines if " as PID " in line]
    return {int(words[1]): int(words[-1]) for words in starts}


@pytest.fixture
def gang(home: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes to end when the test is over."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.kill()
        process.wait()


def test_a_ring_runs_its_steps(home: Path):
    process = launch(home, "--workers", "3", "--", "ring.py", "--steps", "5", "--step-seconds", "0.02")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert [line for line in out.splitlines() if line.startswith("step ")] == [
        f"step {n}" for n in range(1, 6)
    ]
    assert "workers left with [0, 0, 0]" in out


def test_a_restarted_ring_is_short(home: Path):
    arguments = ("--workers", "2", "--", "ring.py", "--step-seconds", "0.01", "--short-if-restarted", "4")
    out, _ = launch(home, *arguments, restarts=1).communicate(timeout=20)
    assert "rank 0 done after 4 steps" in out


def test_term_saves_and_leaves_with_0(home: Path, monkeypatch: pytest.MonkeyPatch):
    stop = home / "stop"
    stop.write_text("cause: stalled\n")
    monkeypatch.setenv("ASTRAEUS_STOP_FILE", str(stop))
    process = launch(
        home,
        "--workers",
        "2",
        "--",
        "ring.py",
        "--step-seconds",
        "0.02",
        "--save-on-term",
        "0.1",
        "--print-env",
    )
    seen = lines_until(process, "step 3")
    process.terminate()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"rank 0 env ASTRAEUS_STOP_FILE={stop}" in seen
    for rank in (0, 1):
        assert f"rank {rank} got TERM\n" in out
        assert f"rank {rank} stop file: cause: stalled\n" in out
        assert int((home / f"checkpoint.77.rank-{rank}").read_text()) >= 2


def voluntary_switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_a_lost_neighbour_makes_the_others_spin_without_a_switch(
    home: Path, gang: list[subprocess.Popen[str]]
):
    process = launch(home, "--workers", "2", "--", "ring.py", "--step-seconds", "0.02", "--spin-on-loss")
    gang.append(process)
    pids = worker_pids(lines_until(process, "step 2"))
    os.kill(pids[1], signal.SIGKILL)
    lines_until(process, "rank 0 lost a neighbour")
    before = voluntary_switches(pids[0])
    time.sleep(0.5)
    assert voluntary_switches(pids[0]) == before


def test_a_silent_neighbour_makes_it_spin_until_it_speaks(home: Path, gang: list[subprocess.Popen[str]]):
    process = launch(home, "--workers", "2", "--", "ring.py", "--step-seconds", "0.02", "--spin-on-loss")
    gang.append(process)
    pids = worker_pids(lines_until(process, "step 2"))
    os.kill(pids[1], signal.SIGSTOP)
    lines_until(process, "rank 0 spins")
    before = voluntary_switches(pids[0])
    time.sleep(0.5)
    assert voluntary_switches(pids[0]) == before
    os.kill(pids[1], signal.SIGCONT)
    lines_until(process, "step ")


def test_quitters_leave_and_the_rest_works_on(home: Path):
    arguments = ["-n", "3", "--quitters", "2", "--quitter-command", "independent.py --exit-after 0.1"]
    worker = ["--", "independent.py", "--burn", "0.2", "--exit-after", "0.5"]
    out, _ = launch(home, *arguments, *worker).communicate(timeout=20)
    assert "workers left with [0, 0, 0]" in out


def test_options_after_the_dashes_are_the_rings(home: Path):
    out, _ = launch(home, "-n", "2", "--", "--steps", "3", "--step-seconds", "0.01").communicate(timeout=20)
    assert "rank 1 done after 3 steps" in out
