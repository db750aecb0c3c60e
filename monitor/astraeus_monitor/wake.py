"""The FIFO that wakes the monitor: a byte in it means that jobs/ has news."""

from __future__ import annotations

import contextlib
import os
import selectors
import stat
from collections.abc import Callable
from pathlib import Path


class Wake:
    """Makes the FIFO (for its owner only) and calls ``woken`` when something was written into it."""

    def __init__(self, path: Path, selector: selectors.BaseSelector, woken: Callable[[], None]) -> None:
        """Raises OSError when it can't be made."""
        self.woken = woken
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISFIFO(os.lstat(path).st_mode):
                path.unlink()
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for writing too: else it would be readable for ever once the first writer has left.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        selector.register(self.fd, selectors.EVENT_READ, self._readable)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass
        self.woken()
