"""``stat`` and ``status`` of processes that are sampled every few seconds, from descriptors that stay open.

Such a descriptor is bound to its process, not to its PID: it answers ESRCH once that process is gone, and then
whoever has the PID now is opened anew. One pread costs a third of open, read and close.

``stat`` adds up the times of all threads: of a rank with sixty it costs twice what ``status`` does, which has the
state, too. One that switches on is well, so its line is read each third time only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from .parse import Stat, Status, parse_stat, parse_status
from .procfs import GONE, Proc, may_open

WHOLE_EVERY = 3
"""Rounds between two readings of the stat line of a process that switches on."""
T = TypeVar("T")
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
MAX_KEPT = 256
"""Processes at most, and an eighth of the descriptors that we may open."""


class Kept(Proc):
    """A proc tree whose sampled files stay open; ``tidy`` closes those that nobody asked for any more."""

    def __init__(self, proc: Proc, *, keep: bool | None = None) -> None:
        self.proc, self.root, self.walks = proc, proc.root, proc.walks
        self.limit = min(MAX_KEPT, may_open() // 8) if (proc.root == "/proc" if keep is None else keep) else 0
        self.files: dict[int, tuple[int, int]] = {}
        self.lines: dict[int, tuple[bytes, Stat | None]] = {}
        self.read_in: dict[int, int] = {}
        """The round in which that line was read."""
        self.beats: dict[int, Status] = {}
        """Of the round before; only of those whose status is asked for."""
        self.now: dict[int, Status] = {}
        """Of this round."""
        self.round = 0
        self.used: set[int] = set()

    def stat(self, pid: int) -> Stat | None:
        """As Proc's; what is not ``fresh`` has its state of now, and the rest of a round or two ago."""
        self.used.add(pid)
        known = self.lines.get(pid)
        if known and known[1] and pid in self.beats and self.round - self.read_in[pid] < WHOLE_EVERY:
            before, beat = self.beats[pid], self._status(pid)
            # Whoever switched runs or sleeps as he did: a zombie, a new program, one that waits is read whole.
            if beat and pid in self.lines and beat.switches != before.switches and beat.state in "RSDTt" \
                    and beat.comm == known[1].comm.encode():
                return structs.replace(known[1], state=beat.state, fresh=False)
        data = self._read(pid, 0, 1024, self.proc.stat)
        if not isinstance(data, bytes):
            return data
        self.read_in[pid] = self.round
        known = self.lines.get(pid)
        if known is None or known[0] != data:  # one that sleeps has the same line each time
            known = self.lines[pid] = data, parse_stat(pid, data)
        return known[1]

    def status(self, pid: int) -> Status | None:
        """As Proc's; once a round."""
        found = self._status(pid)
        if found is not None and pid in self.files:
            self.beats.setdefault(pid, found)
        return found

    def _status(self, pid: int) -> Status | None:
        if pid not in self.now:
            data = self._read(pid, 1, 8192, self.proc.status)
            found = parse_status(data) if isinstance(data, bytes) else data
            if found is None or not isinstance(data, bytes):
                return found
            self.now[pid] = found
        return self.now[pid]

    def tidy(self) -> None:
        """Close what was not asked for since the tidying before."""
        for pid in [pid for pid in self.files if pid not in self.used]:
            self._close(pid)
        self.used.clear()
        self.beats.update({pid: status for pid, status in self.now.items() if pid in self.beats})
        self.now.clear()
        self.round += 1

    def close(self) -> None:
        """Close all."""
        self.used.clear()
        self.tidy()

    def _read(self, pid: int, which: int, size: int, plain: Callable[[int], T]) -> bytes | T:
        fds = self.files.get(pid)
        if fds is not None:
            try:
                return os.pread(fds[which], size, 0)
            except GONE:
                self._close(pid)
        if len(self.files) >= self.limit or not self._open(pid):
            return plain(pid)
        try:
            return os.pread(self.files[pid][which], size, 0)
        except GONE:
            self._close(pid)
            return plain(pid)

    def _open(self, pid: int) -> bool:
        """Both files through one folder: they are of the same process whatever becomes of the PID."""
        try:
            folder = os.open(f"{self.root}/{pid}", FLAGS | os.O_DIRECTORY)
        except OSError:
            return False
        fds: list[int] = []
        try:
            for name in ("stat", "status"):
                fds.append(os.open(name, FLAGS, dir_fd=folder))
        except OSError:
            for fd in fds:
                os.close(fd)
            return False
        finally:
            os.close(folder)
        self.files[pid] = fds[0], fds[1]
        return True

    def _close(self, pid: int) -> None:
        for fd in self.files.pop(pid):
            os.close(fd)
        for kept in (self.lines, self.read_in, self.beats, self.now):
            kept.pop(pid, None)
