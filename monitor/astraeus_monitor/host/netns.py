"""Other processes' namespaces: the network, for a child that asks something in it; the PIDs that they see."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from .procfs import GONE, Proc

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def network_of(proc: Proc, pid: int) -> Iterator[None]:
    """In the network namespace of the process; sockets made inside stay there. Raises OSError."""
    if proc.link(pid, "ns", "net") == proc.link(os.getpid(), "ns", "net"):
        yield
        return
    own = os.open(f"{proc.root}/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    other = os.open(f"{proc.root}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(other)
        yield
    finally:
        _enter(own)
        os.close(own)
        os.close(other)


def _enter(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def inner_pid(proc: Proc, pid: int) -> int:
    """What a process calls itself, where that is another number (in a container); 0: the same, or it is gone."""
    try:
        data = proc.text(pid, "status", limit=8192)
    except GONE:
        return 0
    at = data.find(b"\nNSpid:")
    numbers = data[at + 7:].partition(b"\n")[0].split() if at >= 0 else []
    return int(numbers[-1]) if len(numbers) > 1 else 0
