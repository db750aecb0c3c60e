"""One line per happening on standard error; whoever started the monitor decides where that goes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_JOURNAL = bool(os.environ.get("JOURNAL_STREAM"))
_last: dict[str, str] = {}


def say(text: str) -> None:
    """Write one line, with the time in UTC unless the journal adds its own."""
    stamp = "" if _JOURNAL else time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime())
    line = f"{stamp}{text}\n".encode(errors="backslashreplace")
    try:
        os.write(2, line)
    except OSError:
        sys.stderr = None  # the log is gone (its disk is full, its reader left); the watch goes on without it


def fenced(what: str, work: Callable[[], T], otherwise: T) -> T:
    """What ``work`` returns; where it fails, that is said once and ``otherwise`` stands.

    What one job's files and processes hold must never end the watch of the others.
    """
    try:
        return work()
    except Exception as fault:
        say_once(what, f"{what} failed: {type(fault).__name__}: {fault}")
        return otherwise


def say_once(topic: str, text: str) -> None:
    """Write a line unless it is what was last said of this topic: a fault that lasts is one line."""
    if not text:
        _last.pop(topic, None)
    elif _last.get(topic) != text:
        _last[topic] = text
        say(text)
