"""What may go wrong on one rank of train.py: a function each, called once, or at each step from its beginning on."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import pdb
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

FOR_EVER = 1_000_000
STORE = Path("/mnt/store")


class Trigger:
    """Says whether the fault has begun, on the rank that has it."""

    def __init__(self, go: Path, fault: str, guilty: bool) -> None:
        self.go, self.fault, self.guilty, self.begun = go, fault, guilty, False

    def pulled(self) -> bool:
        if self.guilty and not self.begun:
            self.begun = self.go.exists()
        return self.begun

    def at_helper(self) -> None:
        """In the rank, before it takes a batch of its data loader's worker."""
        if self.fault == "dl_stop" and self.pulled():
            for helper in multiprocessing.active_children():
                os.kill(helper.pid or 0, signal.SIGSTOP)

    def in_helper(self) -> None:
        """In the data loader's worker."""
        if self.fault == "dl_deadlock" and self.pulled():
            lock()


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


def spin() -> None:
    while True:
        pass


def join() -> None:
    waited_for = threading.Thread(target=time.sleep, args=(FOR_EVER,))
    waited_for.start()
    waited_for.join()


def flock() -> None:
    """Two descriptions of one file exclude each other, also within a process."""
    with tempfile.NamedTemporaryFile() as first, open(first.name, "w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def fifo() -> None:
    path = f"{tempfile.mkdtemp()}/fifo"
    os.mkfifo(path)
    Path(path).read_bytes()


def http() -> None:
    """A server that accepts and never answers."""
    silent = socket.create_server(("127.0.0.1", 0))
    asking = socket.create_connection(silent.getsockname())
    asking.sendall(b"GET /batch HTTP/1.0\r\n\r\n")
    asking.recv(1)


def quiet_stdin() -> None:
    """A standard input that is open and says nothing, as a pipe or a terminal; srun's is at its end."""
    reads, _ = os.pipe()
    os.dup2(reads, 0)


def ask() -> None:
    quiet_stdin()
    input("? ")


def debug() -> None:
    quiet_stdin()
    pdb.set_trace()


def matmul() -> None:
    """One long call into compiled code: somebody got a huge batch."""
    import torch

    big = torch.randn(4000, 4000)
    for _ in range(10_000):
        big = (big @ big).clamp_(-1, 1)


def checkpoint() -> None:
    """Saves again and again: that is progress."""
    with tempfile.NamedTemporaryFile(prefix="checkpoint-") as file:
        piece = os.urandom(1 << 20)
        while True:
            file.seek(0)
            for _ in range(24):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.3)


def busy() -> None:
    value, until = 1, time.monotonic() + 0.3
    while time.monotonic() < until:
        value = value * 1103515245 % 2147483647 + 1


def store() -> None:
    """Saves to the shared store and reads it back."""
    file = STORE / f"{os.environ.get('SLURM_JOB_ID')}.checkpoint"
    file.write_bytes(b"x" * 4096)
    file.read_bytes()


FAULTS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(FOR_EVER),
    "lock": lock,
    "spin": spin,
    "emptyq": lambda: queue.Queue().get(),
    "join": join,
    "flock": flock,
    "fifo": fifo,
    "http": http,
    "input": ask,
    "pdb": debug,
    "subproc": lambda: subprocess.run(["sleep", str(FOR_EVER)], check=False),
    "gilhold": lambda: ctypes.PyDLL(None).sleep(FOR_EVER),
    "matmul": matmul,
    "ckpt": checkpoint,
    "slow": lambda: time.sleep(0.3),
    "slowcpu": busy,
    "store": store,
    "sigstop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(0),
}
EACH_STEP = ("slow", "slowcpu", "store")
LOADER_FAULTS = ("dl_stop", "dl_deadlock")
