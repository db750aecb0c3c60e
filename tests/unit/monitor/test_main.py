"""The command: options, one instance, leaving when there is nothing to do."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from astraeus_monitor import config, notify
from astraeus_monitor.lock import Lock
from astraeus_monitor.main import main, table

RUN = [sys.executable, "-m", "astraeus_monitor.main", "run"]
IMPATIENT = [sys.executable, "-c", """
import sys
import msgspec
from astraeus_monitor import config, main
config.KEYS = tuple(msgspec.structs.replace(key, low=1) if key.name == "leave_after_s" else key for key in config.KEYS)
sys.exit(main.main())""", "run"]
"""One that may be told to leave sooner than a site's may."""


def start(tmp_path: Path, *options: str, leave_after: int = 10, systemd: bool = False,
          run: list[str] = RUN) -> subprocess.Popen[str]:
    path = tmp_path / "a.toml"
    path.write_text(f'[monitor]\nleave_after_s = {leave_after}\ncontroller = "http://127.0.0.1:1"\n'
                    f'auth = "key"\nkey = "{tmp_path}/key"\n')
    environ = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "INVOCATION_ID")}
    if systemd:
        environ["INVOCATION_ID"] = "0"
    return subprocess.Popen([*run, "--config", str(path), "--state-dir", str(tmp_path / "run"), *options],
                            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def wait_for(true: Callable[[], object], seconds: float = 10) -> None:
    """Until it is true; a deadline, for a monitor on a busy machine."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def add_job(tmp_path: Path) -> None:
    steps = tmp_path / "run" / "jobs" / "7" / "steps"
    steps.mkdir(parents=True)
    (steps.parent / "job").write_text("nonce=n1\njob=7\nnode=c1\n")


def test_one_report_to_print(tmp_path: Path) -> None:
    add_job(tmp_path)
    monitor = start(tmp_path, "--print", "--once")
    out, err = monitor.communicate(timeout=10)
    assert monitor.returncode == 0, err
    assert '"job":7,"nonce":"n1"' in out
    assert (tmp_path / "run" / "jobs" / "7" / "clock").exists()


def test_one_instance(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = Lock(tmp_path / "run" / "monitor.lock")
    assert lock.take()
    assert (tmp_path / "run" / "monitor.lock").read_text() == f"{os.getpid()}\n"
    _, err = start(tmp_path).communicate(timeout=10)
    assert "another monitor holds" in err
    lock.release()
    assert lock.take()
    lock.release()


def test_systemds_monitor_waits_for_another_and_takes_its_place(tmp_path: Path) -> None:
    add_job(tmp_path)
    lock = Lock(tmp_path / "run" / "monitor.lock")
    assert lock.take()
    monitor = start(tmp_path, "--print", "--once", systemd=True)
    assert monitor.stderr is not None
    assert "waits for its end" in monitor.stderr.readline()
    assert not (tmp_path / "run" / "wake").exists()
    lock.release()
    out, err = monitor.communicate(timeout=10)
    assert (monitor.returncode, '"job":7,"nonce":"n1"' in out) == (0, True), err
    assert lock.path.read_text() == f"{monitor.pid}\n"


def test_it_sleeps_and_leaves_without_work(tmp_path: Path) -> None:
    monitor = start(tmp_path, leave_after=4, run=IMPATIENT)
    fifo = tmp_path / "run" / "wake"
    wait_for(fifo.exists)
    assert fifo.is_fifo()
    assert fifo.stat().st_mode & 0o777 == 0o600

    def wakeups() -> int:
        text = Path(f"/proc/{monitor.pid}/status").read_text()
        return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def in_a(seconds: float) -> int:
        before, end = wakeups(), time.monotonic() + seconds
        wait_for(lambda: time.monotonic() >= end)  # what is measured is a time
        return wakeups() - before

    wait_for(lambda: in_a(0.3) == 0, 5)  # its start is through
    assert in_a(2) <= 1
    _, err = monitor.communicate(timeout=15)
    assert "nothing to watch" in err
    assert monitor.returncode == 0


def test_no_key_is_one_sentence_and_no_end(tmp_path: Path) -> None:
    add_job(tmp_path)
    monitor = start(tmp_path)
    assert monitor.stderr
    os.set_blocking(monitor.stderr.fileno(), False)
    said = ""

    def refused() -> bool:
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            said += os.read(monitor.stderr.fileno(), 65536).decode() if monitor.stderr else ""
        return "can't read the report key" in said

    wait_for(refused)
    wait_for((tmp_path / "run" / "jobs" / "7" / "clock").exists)  # it watches all the same
    assert monitor.poll() is None
    monitor.terminate()
    _, rest = monitor.communicate(timeout=10)
    assert monitor.returncode == 0
    err = said + rest
    assert err.count("can't read the report key") == 1
    assert "chmod 600" in err


@pytest.mark.parametrize(("words", "said"), [
    ([], "write astraeus-monitor run"), (["run", "--frob"], "no option --frob"),
    (["run", "--config"], "--config needs a path")])
def test_bad_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_the_table_reads_back_as_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(table())
    assert config.load(path) == config.Config()


def test_systemd_hears_that_the_loop_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(where)
        channel.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", where)
        now = [1000.0]
        monkeypatch.setattr(notify.time, "monotonic", lambda: now[0])
        watchdog = notify.Watchdog()
        watchdog.ready()
        assert channel.recv(100) == b"READY=1\nWATCHDOG_USEC=300000000"
        watchdog.alive()
        now[0] += notify.EVERY_S
        watchdog.alive()
        watchdog.alive()
        assert channel.recv(100) == b"WATCHDOG=1"
        channel.setblocking(False)
        with pytest.raises(BlockingIOError):
            channel.recv(100)
