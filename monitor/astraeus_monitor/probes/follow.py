"""The child that follows a job's output files: what came since the last time, and what it says.

As ``tail``, it reads a user's files with his rights through descriptors that his processes hold, and keeps uid 0, so
that he can neither kill nor trace it. It stays, for a fork for each look would cost more than the reading; where it
stood in each file the monitor knows too, so that one that was killed loses no more than a line that had no end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

import msgspec

from ..host.procfs import Proc
from ..host.tree import Identity
from ..host.userfile import MAX_HOLDERS, become, open_regular, rights_of
from ..sources.chatter import Chatter, Repeats
from ..sources.ignored import BadPattern, Patterns
from ..sources.nccl_log import Log, Word
from .area import Area
from .children import encode_line, first_to_go
from .servant import receive

CHUNK = 256 << 10
BYTES_MAX, SECONDS_MAX = 64 << 20, 0.8
"""Of all files of a job at a look; what is left comes at the next one."""
BEHIND_MAX, BEHIND_KEPT = 256 << 20, 8 << 20
"""Bytes: a file that is further ahead is gone on with so much before its end."""
BEFORE = 32
"""Bytes before the place that must be as they were: else another file stands there."""
HELD_MAX = 4 << 20
"""Bytes of lines that are held against patterns at a look."""
ROOM = 96 << 20
"""Bytes of memory that the child may take beyond what it began with: patterns can want any amount."""
FORGET = 256
"""Files that are remembered."""


class FileAsk(msgspec.Struct, omit_defaults=True):
    """A file to be read on."""

    ino: int
    path: str
    """As /proc names what the holders have open."""
    holders: list[Identity]
    offset: int | None = None
    """None: what stands there now is not this attempt's; begin behind it."""
    pos: int = 0
    """Furthest position of its holders."""
    before: bytes = b""
    """What stood before ``offset``."""
    settle: bool = False
    """Nothing came since: a line without end is one."""
    ignore: tuple[str, ...] = ()
    tasks: int = 0
    """Ranks whose label a line may carry."""


class FollowAsk(msgspec.Struct):
    """What is to be read of a job now. ``now``: CLOCK_BOOTTIME seconds."""

    uid: int
    now: float
    files: list[FileAsk]


class FileRead(msgspec.Struct, tag="read", omit_defaults=True):
    """What was read of a file."""

    ino: int
    offset: int = 0
    before: bytes = b""
    restarted: bool = False
    """A launcher started its workers anew: words before it are of another attempt."""
    words: list[Word] = []
    """The first of each class, behind the restart if there was one."""
    skipped: int = 0
    """Bytes that were left out, for they came faster than they are read."""
    behind: bool = False
    """There is more to read."""
    rest: bool = False
    """A line has no end yet."""
    chatter: Chatter | None = None
    fault: str = ""


class Counted(msgspec.Struct, tag="counted", omit_defaults=True):
    """Whether what came of a file counts as output, beside the lines that are to be left out."""

    ino: int
    fresh: bool = False
    undecided: bool = False
    """All that came is a line without end."""
    fault: str = ""


DECODER = msgspec.json.Decoder(FileRead | Counted)
ASK_ENCODER = msgspec.msgpack.Encoder()
ASK_DECODER = msgspec.msgpack.Decoder(FollowAsk)


class Followed:
    """What is remembered of a file between two looks."""

    def __init__(self) -> None:
        self.log, self.repeats = Log(), Repeats()
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.fd: tuple[int, int] | None = None
        """(PID, descriptor) where it was found last."""

    def take(self, lines: bytes, *, hold: bool) -> None:
        self.repeats.add(lines)
        if hold and lines:
            self.held_bytes += len(lines)
            if self.held_bytes <= HELD_MAX:
                self.held.append(lines)


class Follow:
    """Reads files on. One per child."""

    def __init__(self, proc: Proc, clock: Callable[[], float] = time.monotonic) -> None:
        self.proc, self.clock = proc, clock
        self.files: dict[int, Followed] = {}
        self.patterns: dict[tuple[str, ...], Patterns] = {}
        self.became = False

    def look(self, ask: FollowAsk) -> Iterator[FileRead | Counted]:
        """First what was read of every file, then what of it counts: a pattern may never end."""
        until, room = self.clock() + SECONDS_MAX, BYTES_MAX
        for one in ask.files:
            file = self.files.pop(one.ino, None) or Followed()
            self.files[one.ino] = file
            try:
                read = self._read(ask, one, file, until, room)
                room -= max(0, read.offset - (one.offset or 0)) if one.offset is not None else 0
            except OSError as fault:
                read = FileRead(one.ino, fault=fault.strerror or "it can't be read")
            yield read
        while len(self.files) > FORGET:
            del self.files[next(iter(self.files))]
        for one in ask.files:
            if one.ignore:
                yield self._count(one, self.files[one.ino])

    def _read(self, ask: FollowAsk, one: FileAsk, file: Followed, until: float, room: int) -> FileRead:
        fd = self._open(ask.uid, one, file)
        try:
            return read_on(fd, one, file, ask.now, room=room, late=lambda: self.clock() >= until)
        finally:
            os.close(fd)

    def _open(self, uid: int, one: FileAsk, file: Followed) -> int:
        for pid, fd in self._places(one, file):
            if self.proc.link(pid, "fd", fd) != one.path:
                continue
            if not self.became:
                become(uid, *rights_of(self.proc, pid, uid))
                self.became = True
            handle = open_regular(f"{self.proc.root}/{pid}/fd/{fd}")
            if os.fstat(handle).st_ino == one.ino:
                file.fd = pid, fd
                return handle
            os.close(handle)
        raise OSError(0, "no process holds it any more")

    def _places(self, one: FileAsk, file: Followed) -> Iterator[tuple[int, int]]:
        holders = dict(one.holders[:MAX_HOLDERS])
        if file.fd and file.fd[0] in holders:
            yield file.fd
        for pid, start in holders.items():
            seen = self.proc.stat(pid)
            if seen is not None and seen.start == start and seen.state not in "ZX":
                yield from ((pid, fd) for fd in (1, 2))
        for pid in holders:
            yield from ((pid, fd) for fd in self.proc.fds(pid))

    def _count(self, one: FileAsk, file: Followed) -> Counted:
        lines, much = b"".join(file.held), file.held_bytes > HELD_MAX
        file.held, file.held_bytes = [], 0
        if much:
            return Counted(one.ino, True, fault="more came than can be held against its patterns")
        try:
            patterns = self.patterns.get(one.ignore) or Patterns(one.ignore)
        except BadPattern as fault:
            return Counted(one.ino, True, fault=str(fault))
        self.patterns[one.ignore] = patterns
        return Counted(one.ino, not patterns.all_match(lines, tasks=one.tasks), not lines.strip())


def read_on(fd: int, one: FileAsk, file: Followed, now: float, *, room: int = BYTES_MAX,
            late: Callable[[], bool] = lambda: False, skips: bool = True) -> FileRead:
    """What came of an open file since ``one.offset``, ``room`` bytes at most, until ``late``. Raises OSError."""
    size = os.fstat(fd).st_size
    if one.offset is None:
        # Who appends stands at 0 until he writes, whatever an attempt before has left there.
        at = max(one.pos, size)
        return FileRead(one.ino, at, before_place(fd, at))
    at, skipped = _place(fd, one, size), 0
    if not at:
        file.log.begin()
    if skips and size - at > BEHIND_MAX and size - at - hole_after(fd, at, size) > BEHIND_MAX:
        skipped = size - BEHIND_KEPT - at
        at = size - BEHIND_KEPT
        file.log.begin()
    while at < size and room > 0 and not late():
        if size - at > CHUNK:
            at = data_at(fd, at, size)
        part = os.pread(fd, min(CHUNK, size - at), at)
        if not part:
            break
        at, room = at + len(part), room - len(part)
        part = part.replace(b"\0", b"")  # a file that was cut while its writer went on has a hole there
        file.take(file.log.feed(part), hold=bool(one.ignore))
    if one.settle and at >= size:
        file.take(file.log.end(), hold=bool(one.ignore))
    before = before_place(fd, at)
    restarted, words = file.log.take()
    file.repeats.look(now)
    return FileRead(one.ino, at, before, restarted, words, skipped, at < size, bool(file.log.rest.strip()),
                    file.repeats.record(now))


def _place(fd: int, one: FileAsk, size: int) -> int:
    """Where to read on: 0 in a file that was cut or written anew."""
    at = one.offset or 0
    if size < at:
        return 0
    there = before_place(fd, at)
    return at if there == one.before or not there.strip(b"\0") else 0


def before_place(fd: int, at: int) -> bytes:
    """The bytes right before a place, none of those behind it: what was appended since is no other file's."""
    begin = max(0, at - BEFORE)
    return os.pread(fd, at - begin, begin) if at else b""


def data_at(fd: int, at: int, size: int) -> int:
    """The next place that holds data: a hole of a terabyte costs one question, where the file system tells."""
    with contextlib.suppress(OSError):
        return min(os.lseek(fd, at, os.SEEK_DATA), size)
    return at


def hole_after(fd: int, at: int, size: int) -> int:
    """Bytes of the next hole."""
    with contextlib.suppress(OSError):
        hole = os.lseek(fd, at, os.SEEK_HOLE)
        return data_at(fd, hole, size) - hole if hole < size else 0
    return 0


def serve(proc: Proc, area: Area, asks: int, answers: int, alarm_s: float) -> None:
    """The child: lines into ``area`` for each ask, then a byte, until the monitor closes its pipe."""
    used = os.sysconf("SC_PAGE_SIZE") * int(proc.text("self", "statm", limit=128).split()[0])
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    first_to_go()
    follow = Follow(proc)
    while data := receive(asks):
        ask = ASK_DECODER.decode(data)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)  # should the monitor die meanwhile
        for line in follow.look(ask):
            area.add(encode_line(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(answers, b".")
