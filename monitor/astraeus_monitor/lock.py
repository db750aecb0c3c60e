"""One monitor per node: a lock on monitor.lock, our PID inside."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Lock:
    """``take`` it; it lasts until ``release`` or our end (children close it)."""

    def __init__(self, path: Path) -> None:
        self.path, self.fd = path, -1

    def take(self, *, wait: bool = False) -> bool:
        """False when another monitor holds it; with ``wait``, until it leaves. OSError when the file can't be made."""
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(self.fd)
            self.fd = -1
            return False
        os.ftruncate(self.fd, 0)
        os.write(self.fd, f"{os.getpid()}\n".encode())
        return True

    def release(self) -> None:
        """Let another take it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
