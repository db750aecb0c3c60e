"""astraeus-controller as a process: config check, replay, start, SIGTERM, a slurmctld that is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from astraeus_controller import config_docs
from astraeus_controller.main import Formatter, main
from fake_slurm import FakeSlurm, install, job
from test_service import TOML, free_port

DOCS = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_of_settings_is_in_step() -> None:
    assert DOCS.read_text() == config_docs.markdown(), "run python -m astraeus_controller.config_docs"


@pytest.mark.parametrize(("toml", "words"), [
    ('[watch]\nmode = "acting"', "mode"), ("[watch]\nstall_after = '900'", "write 900s for seconds"),
    ("[wach]", "wach"), ("[slurm]\npoll_s = 1", "poll_s"), ("x =", "TOML"),
    ("[watch]\nstall_after = '8d'", "30s to 7d")])
def test_config_check(tmp_path: Path, capsys: pytest.CaptureFixture[str], toml: str, words: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(toml)
    assert main(["config", "check", "--config", str(path)]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    path.write_text('[watch]\nmode = "act"')
    assert main(["--config", str(path), "config", "check"]) == 0
    assert "in order; mode act" in capsys.readouterr().out
    assert main(["config", "check", "--config", str(tmp_path / "none")]) == 1


def test_replay_of_nothing_and_of_rubbish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r").write_text("")
    assert main(["replay", str(tmp_path / "r")]) == 0
    (tmp_path / "r").write_text("rubbish\n")
    assert main(["replay", str(tmp_path / "r")]) == 1
    assert main(["replay", str(tmp_path / "none")]) == 1
    assert "line 1" in capsys.readouterr().err


def test_a_log_line_is_one_line() -> None:
    import logging
    record = logging.LogRecord("x", logging.INFO, "", 0, "job %s", ("a\nb\x1b[0m",), None)
    assert Formatter("%(message)s").format(record) == "job a\\x0ab\\x1b[0m"


def wait_for(true: object, process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_process(tmp_path: Path) -> None:
    state = install(tmp_path / "bin", FakeSlurm(job(123), away=True))
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("k" * 48)
    config = tmp_path / "a.toml"
    config.write_text(TOML.format(port=free_port(), folder=tmp_path, mode="act", api_listen="").replace(
        "[slurm]", f'key = "{key}"\n[trust]\nuser = "root"\n[slurm]'))
    command = [sys.executable, "-m", "astraeus_controller.main", "--config", str(config)]
    process = subprocess.Popen([*command, "record", str(tmp_path / "recording")], stderr=subprocess.PIPE,
                               env=os.environ | {"SQUEUE_FORMAT": "%i"})
    wait_for(lambda: len(json.loads(state.read_text() or '{"log": []}')["log"]) > 0, process)
    away = json.loads(state.read_text())
    state.write_text(json.dumps(away | {"away": False}))
    wait_for((tmp_path / "api.sock").exists, process)
    wait_for(lambda: '"slurm"' in (tmp_path / "recording").read_text(), process)
    assert (tmp_path / "recording").stat().st_mode & 0o777 == 0o600
    again = subprocess.run([*command, "run"], capture_output=True, timeout=20, check=False)
    assert (again.returncode, b"another controller runs" in again.stderr) == (1, True)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert b"waiting for it" in err
    assert err.rstrip().endswith(b"stopped")
    assert not (tmp_path / "api.sock").exists()
    first = json.loads((tmp_path / "recording").read_text().splitlines()[0])
    assert (first["kind"], first["data"]["cluster"]) == ("meta", "test")


def test_a_key_that_others_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 48)
    key.chmod(0o644)
    (tmp_path / "a.toml").write_text(f'[controller]\nkey = "{key}"\n[trust]\nuser = "root"')
    assert main(["run", "--config", str(tmp_path / "a.toml")]) == 1
    assert "chmod 600" in capsys.readouterr().err
