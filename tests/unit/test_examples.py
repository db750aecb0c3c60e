"""The training loop of examples/ saves when it is asked to, and goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).parents[2] / "examples" / "train_with_checkpoint.py"


def start(tmp_path: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(TRAIN)], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                            env={**os.environ, "STEPS": "500", "STEP_SECONDS": "0.01", "SLURM_PROCID": "0", **env})


def write(stop: Path) -> None:
    stop.with_suffix(".new").write_text("cause: stalled\nreason: no output since 14:02 UTC\n")
    stop.with_suffix(".new").rename(stop)


def test_goes_on_where_nobody_stops_it(tmp_path: Path) -> None:
    write(tmp_path / "stop")
    training = start(tmp_path, ASTRAEUS_STOP_FILE=str(tmp_path / "stop"), STOP_WAIT_SECONDS="0.2", STEPS="120")
    out, _ = training.communicate(timeout=20)
    assert out.count("stopping at step 1: ") == 1
    assert "nobody stopped us: going on" in out
    assert out.splitlines()[-1] == "done"


@pytest.mark.parametrize("by", ["file", "signal"])
def test_saves_when_asked_and_goes_on(tmp_path: Path, by: str) -> None:
    stop = tmp_path / "stop"
    first = start(tmp_path, ASTRAEUS_STOP_FILE=str(stop))
    assert first.stdout is not None
    assert first.stdout.readline().startswith("step 100 ")
    out = ""
    if by == "file":
        write(stop)
        while "stopping" not in out:
            line = first.stdout.readline()
            assert line, "it ended before it was stopped"
            out += line
        assert first.poll() is None, "an exit before the TERM ends the job for good"
    first.send_signal(signal.SIGTERM)
    out += first.communicate(timeout=10)[0]
    assert first.returncode == 0
    assert "stopping at step 1" in out, out
    assert ("no output since 14:02 UTC" in out) == (by == "file")
    saved = json.loads((tmp_path / "checkpoint-0.json").read_text())["step"]
    assert saved >= 101

    second = start(tmp_path, ASTRAEUS_RESTART_CAUSE="stalled", ASTRAEUS_RESTART_COUNT="1", STEPS=str(int(saved) + 1))
    out, _ = second.communicate(timeout=20)
    assert out.splitlines()[0] == f"restart 1 (stalled), from step {saved:.0f}"
    assert out.splitlines()[-1] == "done"
