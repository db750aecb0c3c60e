"""How processes that are nobody's business to wait for ended: a descriptor per process tells at once.

Linux 6.15 and later keep the wait status with the descriptor; before that only a zombie that its parent has
not fetched shows it. Where neither did, the status stays unknown.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
from collections.abc import Callable

from .procfs import may_open

PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=QQ11Ii")
MAX_WATCHED = min(1024, may_open() // 2)
"""Half of the descriptors that we may open at most: the rest of the monitor needs some too."""


class Exits:
    """Descriptors of processes (pidfd), and who is to be told."""

    def __init__(self, selector: selectors.BaseSelector, told: Callable[[], None]) -> None:
        self.selector, self.told = selector, told
        self.fds: dict[tuple[int, int], int] = {}
        self.ended: set[tuple[int, int]] = set()

    def watch(self, pid: int, start: int) -> None:
        """Begin to watch a process that was just seen alive; does nothing where the kernel can't."""
        key = (pid, start)
        if key in self.fds or len(self.fds) >= MAX_WATCHED or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        self.fds[key] = fd
        self.selector.register(fd, selectors.EVENT_READ, lambda: self._end(key))

    def keep(self, keys: set[tuple[int, int]]) -> None:
        """Close the descriptors of all others."""
        for key in [key for key in self.fds if key not in keys]:
            self._forget(key)

    def status(self, pid: int, start: int) -> int | None:
        """Wait status of a process that is gone, if the kernel kept it."""
        fd = self.fds.get((pid, start))
        if fd is None:
            return None
        info = bytearray(_INFO.pack(PIDFD_INFO_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(fd, PIDFD_GET_INFO, info)
        except OSError:
            return None
        fields = _INFO.unpack(info)
        return fields[-1] if fields[0] & PIDFD_INFO_EXIT else None

    def _end(self, key: tuple[int, int]) -> None:
        # Readable for ever from now on: no more wake-ups by it, the descriptor stays for its status.
        self.selector.unregister(self.fds[key])
        self.ended.add(key)
        self.told()

    def _forget(self, key: tuple[int, int]) -> None:
        fd = self.fds.pop(key)
        if key not in self.ended:
            self.selector.unregister(fd)
        self.ended.discard(key)
        os.close(fd)
