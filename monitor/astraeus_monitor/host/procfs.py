"""Reading /proc, and nothing else. ``stat`` and ``status`` never block; the rest is for probes.

Every method returns None (or nothing) for a process that is gone; other faults are OSError.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Iterator

import msgspec

from .parse import Stat, Status, address, number, parse_stat, parse_status

GONE = (FileNotFoundError, ProcessLookupError)
WRITING = (os.O_WRONLY, os.O_RDWR)
READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class FdInfo(msgspec.Struct, frozen=True):
    """Of /proc/PID/fdinfo/FD."""

    pos: int
    flags: int
    ino: int
    mnt: int = 0

    @property
    def writes(self) -> bool:
        """Whether it is open for writing."""
        return (self.flags & os.O_ACCMODE) in WRITING


class Socket(msgspec.Struct, frozen=True):
    """A line of /proc/PID/net/tcp or tcp6; addresses as ``ip:port`` in hex, IPv4-mapped ones as IPv4."""

    local: str
    remote: str
    state: int
    inode: int


class Proc:
    """A proc tree, by default the machine's own."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self.walks = os.path.exists(f"{root}/thread-self/children")

    def text(self, *names: object, limit: int = 65536) -> bytes:
        """The first ``limit`` bytes of a file below the root."""
        fd = os.open("/".join((self.root, *map(str, names))), READING)
        try:
            if limit <= 8192:
                return os.read(fd, limit)  # the kernel gives such files whole
            parts: list[bytes] = []
            while limit > 0:
                part = os.read(fd, min(limit, 65536))
                if not part:
                    break
                parts.append(part)
                limit -= len(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def stat(self, pid: int) -> Stat | None:
        """The process's stat line."""
        try:
            data = self.text(pid, "stat", limit=4096)
        except GONE:
            return None
        return parse_stat(pid, data)

    def status(self, pid: int) -> Status | None:
        """The process's switches and tracer."""
        try:
            data = self.text(pid, "status", limit=8192)
        except GONE:
            return None
        return parse_status(data)

    def uid(self, pid: int) -> int | None:
        """Effective uid. The owner of the folder does not tell it: a process can give that away to root."""
        data = self._maybe(pid, "status", 8192)
        at = data.find(b"\nUid:")
        return int(data[at + 5:].split(None, 2)[1]) if at >= 0 else None

    def pids(self) -> Iterator[int]:
        """Every process."""
        for name in os.listdir(self.root):
            if name.isdigit():
                yield int(name)

    def children(self, pid: int, *, main_only: bool = False) -> list[int]:
        """Children of all its threads, or of its main thread; call it only where ``walks`` is true."""
        if main_only:
            return list(map(int, self._maybe(pid, f"task/{pid}/children", 65536).split()))
        found: list[int] = []
        # One walk to the folder, not one a thread: with 60 threads these reads are most of what a look costs.
        try:
            folder = os.open(f"{self.root}/{pid}/task", READING | os.O_DIRECTORY)
        except GONE:
            return found
        try:
            with contextlib.suppress(*GONE):
                for thread in os.listdir(folder):
                    with contextlib.suppress(*GONE):
                        found.extend(map(int, _whole(f"{thread}/children", folder).split()))
        finally:
            os.close(folder)
        return found

    def tree(self, top: int, known: Iterable[int] = ()) -> list[Stat]:
        """``top`` and its living descendants, parents first. One pass over the machine where the kernel
        keeps no children files.

        With ``known``, its descendants of the look before, only those and new children of main threads are
        read: with many threads, asking each for its children is most of a look's cost.
        """
        if self.walks:
            return list(self._walk(top, set(known)))
        below: dict[int, list[Stat]] = {}
        for pid in sorted(self.pids()):
            stat = self.stat(pid)
            if stat:
                below.setdefault(stat.ppid, []).append(stat)
        first = self.stat(top)
        found = [first] if first else []
        for stat in found:
            found.extend(below.get(stat.pid, ()))
        return found

    def _walk(self, top: int, known: set[int]) -> Iterator[Stat]:
        remembered: dict[int, list[int]] = {}
        for pid in known - {top}:
            stat = self.stat(pid)
            if stat:
                remembered.setdefault(stat.ppid, []).append(pid)
        waiting, seen = [top], {top}
        while waiting:
            pid = waiting.pop(0)
            stat = self.stat(pid)
            if stat is None:
                continue
            yield stat
            below = {*self.children(pid, main_only=bool(known)), *remembered.get(pid, ())} - seen
            seen |= below
            waiting.extend(sorted(below))

    def cmdline(self, pid: int) -> bytes:
        """Its arguments with NUL between them, 4 KiB at most; empty when gone or a zombie."""
        return self._maybe(pid, "cmdline", 4096)

    def environ(self, pid: int) -> dict[str, str]:
        """Its environment as it was at exec."""
        pairs = (part.partition(b"=") for part in self._maybe(pid, "environ", 1 << 20).split(b"\0"))
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, sep, v in pairs if sep}

    def io(self, pid: int) -> dict[str, int]:
        """Its io counters."""
        lines = (line.partition(b":") for line in self._maybe(pid, "io", 4096).splitlines())
        return {k.decode(): int(v) for k, sep, v in lines if sep}

    def link(self, *names: object) -> str:
        """Target of a link below the root; empty when gone."""
        try:
            path = "/".join((self.root, *map(str, names)))
            return os.readlink(path.encode()).decode(errors="replace")  # a name can be any bytes
        except GONE:
            return ""

    def fds(self, pid: int) -> list[int]:
        """Its open file descriptors."""
        try:
            return [int(name) for name in os.listdir(f"{self.root}/{pid}/fd")]
        except GONE:
            return []

    def fdinfo(self, pid: int, fd: int) -> FdInfo | None:
        """Position and flags of an open file: asks the kernel, not the file system."""
        data = b"\n" + self._maybe(pid, f"fdinfo/{fd}", 4096)
        pos, flags = number(data, b"\npos:"), number(data, b"\nflags:", 8)
        if pos is None or flags is None:
            return None
        return FdInfo(pos, flags, number(data, b"\nino:") or 0, number(data, b"\nmnt_id:") or 0)

    def may_write(self, pid: int, fd: int) -> bool:
        """Whether an open file may be open for writing, by one question where ``fdinfo`` takes three."""
        try:
            return bool(os.lstat(f"{self.root}/{pid}/fd/{fd}").st_mode & 0o200)
        except GONE:
            return False

    def terminal(self, pid: int, fd: int) -> int | None:
        """Number of the terminal whose master an open file is: N of /dev/pts/N."""
        return number(b"\n" + self._maybe(pid, f"fdinfo/{fd}", 4096), b"\ntty-index:")

    def mount_of(self, pid: int, fd: int) -> int | None:
        """Id of the mount that an open file lies on, as in its mount table."""
        return number(b"\n" + self._maybe(pid, f"fdinfo/{fd}", 4096), b"\nmnt_id:")

    def sockets(self, pid: int) -> Iterator[Socket]:
        """TCP sockets of its network namespace."""
        for name in ("net/tcp", "net/tcp6"):
            for line in self._maybe(pid, name, 16 << 20).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9:
                    yield Socket(address(fields[1]), address(fields[2]), int(fields[3], 16), int(fields[9]))

    def maps(self, pid: int) -> bytes:
        """What it has mapped, as far as 4 MiB of text tell it; nothing where it has just ended."""
        return self._maybe(pid, "maps", 4 << 20)

    def _maybe(self, pid: int, name: str, limit: int) -> bytes:
        try:
            return self.text(pid, name, limit=limit)
        except GONE:
            return b""


def may_open() -> int:
    """How many descriptors this process may hold."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def _whole(name: str, folder: int) -> bytes:
    fd = os.open(name, READING, dir_fd=folder)
    try:
        data = b""
        while part := os.read(fd, 65536):
            data += part
        return data
    finally:
        os.close(fd)
