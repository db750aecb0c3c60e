"""Progress lines for a person who watches: what happens now, and how long it has been going on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_start = time.monotonic()


def say(text: str) -> None:
    """One line, with the seconds since the program started."""
    print(f"[{time.monotonic() - _start:6.1f} s] {text}", file=sys.stderr, flush=True)


class Note:
    """The newest detail of something that takes long; the heartbeat shows it."""

    detail = ""


@contextmanager
def heartbeat(what: str, every: float = 10.0) -> Iterator[Note]:
    """Say `what` now and again each `every` seconds with the newest detail, until the block ends."""
    say(what)
    note, done = Note(), threading.Event()

    def beat() -> None:
        while not done.wait(every):
            detail = note.detail.strip()[:90]
            say(f"  still {what}" + (f": {detail}" if detail else ""))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield note
    finally:
        done.set()
        thread.join()
