"""The Prolog piece and start-monitor see to it that a monitor runs; what the pieces cost."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prolog_host import ENV_2411, EPILOG, PROLOG, SHELL, START_MONITOR, run, without_gpus


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


without_our_unit = pytest.mark.skipif(
    any(Path("/etc/systemd/system").glob("*.wants/astraeus-monitor.*")),
    reason="systemd starts the monitor of this machine")


def fill(fifo: int) -> None:
    """Until not one byte more fits."""
    try:
        while True:
            os.write(fifo, b"x" * 4096)
    except BlockingIOError:
        return


# A monitor of a few lines: takes the lock, notes what it was given, waits.
MONITOR = """#!/usr/bin/env python3
import fcntl, os, signal, sys, time
folder = os.path.dirname(os.path.abspath(sys.argv[0]))
lock = open(folder + "/state/monitor.lock", "a+")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
lock.truncate(0)
print(os.getpid(), file=lock, flush=True)
if not os.path.exists(folder + "/state/wake"):
    os.mkfifo(folder + "/state/wake", 0o600)
fds = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
       if os.path.exists("/proc/self/fd/" + fd)]
with open(folder + "/started.new", "a") as note:
    print(os.getpid(), os.getsid(0), os.getpgid(0), sys.argv[1:], *fds, sep="|", file=note)
signal.signal(signal.SIGCONT, lambda *_: open(folder + "/woken", "a").write("x"))
os.rename(folder + "/started.new", folder + "/started")
until = time.monotonic() + 60
while time.monotonic() < until:
    time.sleep(1)
"""


@pytest.fixture
def monitor(tmp_path: Path, state: Path) -> Iterator[Path]:
    path = tmp_path / "astraeus-monitor"
    path.write_text(MONITOR)
    path.chmod(0o755)
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "start-monitor").write_text(
        f'#!/bin/sh\nexec {SHELL} {START_MONITOR} "$1" {path} {tmp_path}/log/monitor.log\n')
    (lib / "start-monitor").chmod(0o755)
    yield path
    if (tmp_path / "started").exists():
        os.kill(int((tmp_path / "started").read_text().split("|")[0]), signal.SIGKILL)


def wait_for(path: Path, seconds: float = 10) -> str:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.02)
    return path.read_text()


@without_our_unit
def test_prolog_starts_a_monitor_that_holds_nothing_and_outlives_its_group(
        state: Path, tmp_path: Path, monitor: Path) -> None:
    # As slurmd does it: own process group, pipes on 1 and 2, and the group killed at the end.
    child = subprocess.Popen([SHELL, PROLOG, state, tmp_path / "lib"], env=ENV_2411, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    output, _ = child.communicate(timeout=10)  # ends only when nobody holds the pipe
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    assert (child.returncode, output) == (0, b"")
    pid, session, group, arguments, *fds = wait_for(tmp_path / "started").strip().split("|")
    assert session == group != str(child.pid)
    assert arguments == "['run']"
    assert not any("pipe:" in fd or "start.lock" in fd for fd in fds)
    assert Path(f"/proc/{pid}").exists()

    # The next jobs find it and wake it, Prolog by a signal; no second one starts.
    fifo = os.open(state / "wake", os.O_RDONLY | os.O_NONBLOCK)
    try:
        run(PROLOG, state, tmp_path / "lib", env=ENV_2411)
        assert wait_for(tmp_path / "woken") == "x"
        run(START_MONITOR, state, monitor, tmp_path / "log" / "monitor.log")
        assert len(os.read(fifo, 10)) == 1
    finally:
        os.close(fifo)
    assert (tmp_path / "started").read_text().count("\n") == 1
    assert (tmp_path / "log" / "monitor.log").read_text() == ""


@without_our_unit
def test_a_dead_monitor_s_lock_file_does_not_stop_a_start(state: Path, tmp_path: Path, monitor: Path) -> None:
    (state / "monitor.lock").write_text(f"{os.getpid()}\n")  # a process, but no monitor
    run(PROLOG, state, tmp_path / "lib", env=ENV_2411)
    assert wait_for(tmp_path / "started")


def test_who_finds_the_start_lock_taken_leaves_it(state: Path, tmp_path: Path, monitor: Path) -> None:
    with open(state / "start.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(START_MONITOR, state, monitor, tmp_path / "log" / "monitor.log")
    assert not (state / "monitor.lock").exists()


@pytest.mark.parametrize("piece", [PROLOG, EPILOG, START_MONITOR], ids=lambda piece: piece.name)
def test_a_monitor_that_hangs_with_a_full_fifo_holds_nobody_up(state: Path, tmp_path: Path, piece: Path) -> None:
    os.mkfifo(state / "wake")
    fifo = os.open(state / "wake", os.O_RDWR | os.O_NONBLOCK)
    (state / "jobs" / "111").mkdir(parents=True)
    hung = subprocess.Popen(["bash", "-c", "exec -a astraeus-monitor sleep 60"])
    try:
        with open(state / "monitor.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print(hung.pid, file=lock, flush=True)
            fill(fifo)
            second = [] if piece == EPILOG else ["/bin/false"]
            run(piece, state, *second, env=ENV_2411, timeout=5)
    finally:
        os.close(fifo)
        hung.kill()
        hung.wait()


def test_cost(state: Path) -> None:
    """On top of what a shell takes to start: nothing for a job that is not watched, 5 ms else.

    The best of some runs, so that other work on the machine does not count; ``make bench`` says what is usual.
    """
    def took(env: dict[str, str], *command: object) -> float:
        start = time.perf_counter()
        subprocess.run([SHELL, *map(str, command)], env=env, stdin=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    os.mkfifo(state / "wake")
    fifo = os.open(state / "wake", os.O_RDWR | os.O_NONBLOCK)
    running = subprocess.Popen(["bash", "-c", "exec -a astraeus-monitor sleep 60"])
    try:
        (state / "monitor.lock").write_text(f"{running.pid}\n")
        shell = min(took({}, "-c", ":") for _ in range(5))
        for env, seconds in ((without_gpus(), 0.001), (ENV_2411, 0.005)):
            assert any(took(env, PROLOG, state, "/nonexistent") - shell < seconds for _ in range(50)), seconds
    finally:
        os.close(fifo)
        running.kill()
        running.wait()


def test_the_pieces_are_programs_of_posix_sh() -> None:
    for piece in (PROLOG, EPILOG, START_MONITOR):
        assert os.access(piece, os.X_OK)
        assert piece.read_text().startswith("#!/bin/sh\n")
        subprocess.run([SHELL, "-n", piece], check=True)
