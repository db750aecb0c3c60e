"""A text file that a task writes, read with its user's rights; only in a child that ends afterwards."""

from __future__ import annotations

import os
import stat as modes

from .procfs import Proc
from .tail import become, rights_of
from .tree import Identity

MAX_BYTES = 1 << 20


class Unreadable(Exception):
    """It can't be read; the message says why, in a few words."""


def text_file(proc: Proc, pid: int, path: str, uid: int) -> tuple[Identity, bytes]:
    """(the task, the file's text), the path as the task sees it: in its container, from its working directory.

    Raises Unreadable, OSError. A link leads no further than its user could go himself.
    """
    stat = proc.stat(pid)
    if stat is None:
        raise Unreadable("its task has just ended")
    become(uid, *rights_of(proc, pid, uid))
    base = "root" if path.startswith("/") else "cwd"
    # What is there is seen before it is opened: opening a FIFO or a device would do something.
    handle = os.open(f"{proc.root}/{pid}/{base}/{path.lstrip('/')}", os.O_PATH | os.O_CLOEXEC)
    try:
        if not modes.S_ISREG(os.fstat(handle).st_mode):
            raise Unreadable(f"{path} is no regular file")
        return (pid, stat.start), _whole(f"/proc/self/fd/{handle}", path)
    finally:
        os.close(handle)


def _whole(place: str, path: str) -> bytes:
    file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        text = b""
        while len(text) <= MAX_BYTES and (part := os.read(file, MAX_BYTES + 1 - len(text))):
            text += part
    finally:
        os.close(file)
    if len(text) > MAX_BYTES:
        raise Unreadable(f"{path} holds more than 1 MiB")
    return text
