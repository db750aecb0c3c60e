"""A text file that a task writes, read with its user's rights; only in a child that ends afterwards."""

from __future__ import annotations

import os

from .procfs import Proc
from .tree import Identity
from .userfile import NotRegular, become, open_regular, rights_of

MAX_BYTES = 1 << 20


class Unreadable(Exception):
    """It can't be read; the message says why, in a few words."""


def why_of(fault: Exception, place: str) -> str:
    """The reason in words; of an OSError with the place that it came from."""
    return f"{place}: {fault.strerror}" if isinstance(fault, OSError) else str(fault)


def text_file(proc: Proc, pid: int, path: str, uid: int) -> tuple[Identity, bytes]:
    """(the task, the file's text), the path as the task sees it: in its container, from its working directory.

    Raises Unreadable, OSError. A link leads no further than its user could go himself.
    """
    stat = proc.stat(pid)
    if stat is None:
        raise Unreadable("its task has just ended")
    become(uid, *rights_of(proc, pid, uid))
    base = "root" if path.startswith("/") else "cwd"
    try:
        file = open_regular(f"{proc.root}/{pid}/{base}/{path.lstrip('/')}")
    except NotRegular:
        raise Unreadable(f"{path} is no regular file") from None
    try:
        text = b""
        while len(text) <= MAX_BYTES and (part := os.read(file, MAX_BYTES + 1 - len(text))):
            text += part
    finally:
        os.close(file)
    if len(text) > MAX_BYTES:
        raise Unreadable(f"{path} holds more than 1 MiB")
    return (pid, stat.start), text
