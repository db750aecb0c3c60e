"""A user's file, opened with his rights, by a child that keeps uid 0, so that he can neither kill nor trace it."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterable

from .procfs import GONE, Proc

MAX_HOLDERS = 64
"""Processes that are tried for a descriptor of it."""


class NotRegular(OSError):
    """It is a FIFO, a device, a folder."""


def open_regular(place: str) -> int:
    """A descriptor to read a user's file with. Raises NotRegular, OSError.

    What is there is seen before it is opened: opening a FIFO or a device would do something.
    """
    handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        if not modes.S_ISREG(os.fstat(handle).st_mode):
            raise NotRegular(0, "it is no regular file")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def rights_of(proc: Proc, pid: int, uid: int) -> tuple[int, list[int]]:
    """Group and supplementary groups of a process that is the user's whole. Raises OSError where it is not."""
    try:
        lines = proc.text(pid, "status", limit=1 << 20).split(b"\n")
    except GONE:
        raise OSError(0, "its holder has just ended") from None
    fields = {name: rest.split() for name, _, rest in (line.partition(b":") for line in lines)}
    if {int(one) for one in fields.get(b"Uid", [])} != {uid}:
        raise OSError(0, "its holder is not the job's user's")
    gids = [int(one) for one in fields.get(b"Gid", [])]
    return (gids[1] if len(gids) > 1 else 65534), [int(one) for one in fields.get(b"Groups", [])]


def become(uid: int, gid: int, groups: Iterable[int]) -> None:
    """Take a user's rights on file systems, for the rest of this process's life. Raises PermissionError."""
    if os.geteuid():
        if os.geteuid() != uid:
            raise PermissionError(0, "the monitor must run as root")
        return
    import ctypes  # only here: the monitor itself does without

    library = ctypes.CDLL(None)
    os.setgroups(list(groups))
    for call, number in ((library.setfsgid, gid), (library.setfsuid, uid)):
        call.argtypes, call.restype = [ctypes.c_uint], ctypes.c_int
        call(number)
        # They say nothing when they fail, but what held before: asked with a number that never is, what holds.
        if call(0xFFFFFFFF) != number:
            raise PermissionError(0, "the rights of the job's user can't be taken")
