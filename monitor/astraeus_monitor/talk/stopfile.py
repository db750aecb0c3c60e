"""What the controller asks to have written into a job's directory: its stop file, its restart cause."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..plain import plain

STOP, CAUSE = "stop", "cause"


def put(path: Path, data: bytes, mode: int, uid: int | None = None) -> None:
    """Write a file in one step: a new one under another name, then the rename. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if uid is not None and uid != os.geteuid():
                os.fchown(fd, uid, -1)
            os.fchmod(fd, mode)
        os.rename(new, path)
    except (OSError, OverflowError):  # OverflowError: no user has such a number
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def write_stop(directory: Path, uid: int, lines: dict[str, str]) -> None:
    """The stop file: ``key: value`` lines that the job's user alone can read."""
    text = "".join(f"{_line(key)}: {_line(value)}\n" for key, value in lines.items())
    put(directory / STOP, text.encode(errors="replace"), 0o400, uid)


def write_cause(directory: Path, cause: str) -> None:
    """The attempt's restart cause, for the plugin."""
    put(directory / CAUSE, (_line(cause) + "\n").encode(errors="replace"), 0o600)


def _line(text: str) -> str:
    """One line: what would break it becomes a space."""
    return " ".join(plain(text).split())
