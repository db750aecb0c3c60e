"""The last bytes of a step's output file, read in a child as the job's user, and what they say.

The file is reached through a descriptor that a process of the job holds: no path of the user's is walked, so no
link leads elsewhere. It is opened with the user's rights (a home that trusts no root answers, and nothing is read
that he could not read), by a child that keeps uid 0, so that he can neither kill nor trace it. What it says is
judged in the child: of the file's text one line goes back.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterable, Iterator

import msgspec

from .procfs import GONE, Proc
from .sources.finished import ONLY_NOISE, Verdict, classify
from .tree import Identity

TAIL, LONGER_TAIL = 8 << 10, 64 << 10
"""Bytes that are read; and where they are nothing but exit noise."""
MAX_HOLDERS = 64


class TailAsk(msgspec.Struct):
    """Whose file is to be read. ``fds`` None: any descriptor."""

    uid: int
    path: str
    """As /proc names what the holders have open."""
    holders: list[Identity]
    fds: tuple[int, ...] | None
    ranks: int
    """About how many processes write there."""


class TailLook(msgspec.Struct, omit_defaults=True):
    """What the file says (a verdict of ``sources.finished``), or why it could not be read."""

    what: str = ""
    line: str = ""
    fault: str = ""


DECODER = msgspec.json.Decoder(TailLook)


class NotRegular(OSError):
    """It is a FIFO, a device, a folder."""


def read(proc: Proc, ask: TailAsk) -> Iterator[TailLook]:
    """One answer. Only in a child that ends afterwards: it gives the user's rights never back."""
    for pid, start in ask.holders[:MAX_HOLDERS]:
        seen = proc.stat(pid)
        if seen is None or seen.start != start or seen.state in "ZX":
            continue
        for fd in ask.fds or proc.fds(pid):
            if proc.link(pid, "fd", fd) == ask.path:
                try:
                    verdict = _judge(proc, pid, fd, ask)
                except OSError as fault:
                    yield TailLook(fault=fault.strerror or "it can't be read")
                else:
                    yield TailLook(verdict.what, verdict.line)
                return
    yield TailLook(fault="no process holds it any more")


def _judge(proc: Proc, pid: int, fd: int, ask: TailAsk) -> Verdict:
    become(ask.uid, *rights_of(proc, pid, ask.uid))
    file = open_regular(f"{proc.root}/{pid}/fd/{fd}")
    size = os.fstat(file).st_size
    verdict = classify(_last(file, size, TAIL), whole=size <= TAIL, ranks=ask.ranks)
    if verdict.what == ONLY_NOISE:
        verdict = classify(_last(file, size, LONGER_TAIL), whole=size <= LONGER_TAIL, ranks=ask.ranks)
    return verdict


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


def _last(file: int, size: int, count: int) -> bytes:
    """The last ``count`` bytes; fewer where the file is cut meanwhile."""
    at, data = max(0, size - count), b""
    while len(data) < count and (part := os.pread(file, count - len(data), at + len(data))):
        data += part
    return data


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
