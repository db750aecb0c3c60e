"""A look's lines, by what they speak of."""

from __future__ import annotations

import contextlib

import msgspec

from ..host.tree import Identity
from ..probes.look import DECODER, Began, SrunLook, TaskLook
from ..probes.waits import WaitSeen


def waits_in(lines: list[bytes]) -> dict[Identity, WaitSeen]:
    """What processes were seen to wait for, among a look's lines."""
    found: dict[Identity, WaitSeen] = {}
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            wait = DECODER.decode(line)
            if isinstance(wait, WaitSeen):
                found[wait.pid, wait.start] = wait
    return found


def sort_lines(lines: list[bytes]) -> tuple[list[TaskLook], list[SrunLook], list[Began]]:
    """A look's lines by kind; what can't be read is left out."""
    tasks: list[TaskLook] = []
    sruns: list[SrunLook] = []
    began: list[Began] = []
    for line in lines:
        try:
            found = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(found, TaskLook):
            tasks.append(found)
        elif isinstance(found, SrunLook):
            sruns.append(found)
        elif isinstance(found, Began):
            began.append(found)
    return tasks, sruns, began
