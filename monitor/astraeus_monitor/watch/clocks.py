"""Clocks on disk: ``jobs/<id>/clock``, so that a kill of the monitor loses none. Keyed by nonce and boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..log import say, say_once
from ..talk.stopfile import put
from .job import JobWatch

CLOCK = "clock"
VERSION = 1
KEEP_EVERY_S = 20.0
"""Between two savings where nothing decisive happened: what grew since is seen to have grown anew, after a kill."""


def keep(job: JobWatch, boot: str, now: float, *, decisive: bool) -> None:
    """After a look: save the clocks, if something decisive changed or they are old."""
    if decisive or now - job.saved_at >= KEEP_EVERY_S:
        job.saved_at = now
        save(job, boot)


def save(job: JobWatch, boot: str) -> None:
    """Write the job's clocks; a full or lost directory is said and survived."""
    data = msgspec.json.encode({"v": VERSION, "nonce": job.nonce, "boot": boot, "job": job.save(),
                                "rails": job.rails.save()})
    try:
        put(job.path / CLOCK, data, 0o600)
    except FileNotFoundError:
        return  # Epilog took the directory away
    except OSError as fault:
        say_once("clocks", f"can't write {job.path / CLOCK}: {fault.strerror}")


def load(job: JobWatch, boot: str) -> bool:
    """Continue from the job's clocks, if they are of this attempt and this boot."""
    path: Path = job.path / CLOCK
    try:
        saved: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        if (saved["v"], saved["nonce"], saved["boot"]) != (VERSION, job.nonce, boot):
            return False
        job.load(saved["job"])
        job.rails.load(saved.get("rails", []))
    except FileNotFoundError:
        return False
    except (OSError, msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError) as fault:
        say(f"job {job.job}: its clocks in {path} can't be used ({fault}); they begin anew")
        return False
    return True
