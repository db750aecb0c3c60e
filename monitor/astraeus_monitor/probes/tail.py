"""The last bytes of a step's output file, read in a child as the job's user, and what they say.

The file is reached through a descriptor that a process of the job holds: no path of the user's is walked, so no
link leads elsewhere. It is opened with the user's rights (a home that trusts no root answers, and nothing is read
that he could not read), by a child that keeps uid 0, so that he can neither kill nor trace it. What it says is
judged in the child: of the file's text one line goes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec

from ..host.procfs import Proc
from ..host.tree import Identity
from ..host.userfile import MAX_HOLDERS, become, open_regular, rights_of
from ..sources.finished import ONLY_NOISE, classify, lines_of, shown

TAIL, LONGER_TAIL = 8 << 10, 64 << 10
"""Bytes that are read; and where they are nothing but exit noise."""
LINES = 24
"""Lines that people are shown."""


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
    """What the file says (a verdict of ``sources.finished``), or its last lines; or why it could not be read."""

    what: str = ""
    line: str = ""
    fault: str = ""
    lines: list[str] = []


DECODER = msgspec.json.Decoder(TailLook)


def read(proc: Proc, ask: TailAsk) -> Iterator[TailLook]:
    """One answer. Only in a child that ends afterwards: it gives the user's rights never back."""
    yield _through(proc, ask, _judge)


def lines(proc: Proc, ask: TailAsk) -> Iterator[TailLook]:
    """Its last lines, for people. As ``read``."""
    yield _through(proc, ask, _lines)


def _through(proc: Proc, ask: TailAsk, what: Callable[[int, TailAsk], TailLook]) -> TailLook:
    for pid, start in ask.holders[:MAX_HOLDERS]:
        seen = proc.stat(pid)
        if seen is None or seen.start != start or seen.state in "ZX":
            continue
        for fd in ask.fds or proc.fds(pid):
            if proc.link(pid, "fd", fd) == ask.path:
                try:
                    become(ask.uid, *rights_of(proc, pid, ask.uid))
                    return what(open_regular(f"{proc.root}/{pid}/fd/{fd}"), ask)
                except OSError as fault:
                    return TailLook(fault=fault.strerror or "it can't be read")
    return TailLook(fault="no process holds it any more")


def _lines(file: int, ask: TailAsk) -> TailLook:
    size = os.fstat(file).st_size
    found = [shown(line) for line in lines_of(_last(file, size, TAIL), whole=size <= TAIL)]
    return TailLook(lines=[line for line in found if line][-LINES:])


def _judge(file: int, ask: TailAsk) -> TailLook:
    size = os.fstat(file).st_size
    verdict = classify(_last(file, size, TAIL), whole=size <= TAIL, ranks=ask.ranks)
    if verdict.what == ONLY_NOISE:
        verdict = classify(_last(file, size, LONGER_TAIL), whole=size <= LONGER_TAIL, ranks=ask.ranks)
    return TailLook(verdict.what, verdict.line)


def _last(file: int, size: int, count: int) -> bytes:
    """The last ``count`` bytes; fewer where the file is cut meanwhile."""
    at, data = max(0, size - count), b""
    while len(data) < count and (part := os.pread(file, count - len(data), at + len(data))):
        data += part
    return data
