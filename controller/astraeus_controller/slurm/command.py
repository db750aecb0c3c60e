"""Slurm's command line: argument lists, no shell, a deadline, a clean environment.

What Slurm answers falls into three kinds: an answer, a refusal (Slurm's own words; nothing was changed), and
silence (slurmctld away, the deadline missed): then nobody knows whether a change happened, and the caller
reads the state again before it repeats anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

AWAY_WORDS = (
    "Unable to contact slurm controller", "Connection refused", "timed out", "Zero Bytes were transmitted",
    "Transport endpoint", "Unable to establish", "Protocol authentication error", "Munge", "munge",
    "communication failure", "Communication connection failure", "Slurm backup controller in standby mode",
    "Resource temporarily unavailable", "Connection timed out", "Unable to connect to database",
)
"""Words of an answer that says nothing about the job: somebody could not be reached."""
KILLED_S = 2.0
"""How long a killed command is waited for: one whose file system hangs dies later, or never."""
KEPT = ("SLURM_CONF",)
"""The only SLURM_* variable that a command may see: SLURM_TIME_FORMAT, SQUEUE_FORMAT, SLURM_CLUSTERS and
their like change what is printed, or whom it is about."""


class Refused(Exception):
    """Slurm refused; the text is its own, one line. Nothing was changed."""


class Away(Exception):
    """Slurm could not be asked, or did not answer in time; whether a change happened is not known."""


def clean_environment(environ: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for Slurm's commands: times in UTC, bytes as they are, no site or user formats."""
    source = dict(os.environ) if environ is None else environ
    kept = {key: source[key] for key in ("PATH", "HOME", *KEPT) if source.get(key)}
    kept.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def to_bytes(text: str) -> bytes:
    """Text as Slurm stores it: any byte, also such as are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """The inverse of to_bytes; every byte survives the round trip."""
    return data.decode("utf-8", "surrogateescape")


class Commands:
    """Runs squeue, scontrol, scancel, sacct, sacctmgr. ``bin``: their directory, empty for PATH; seconds."""

    def __init__(self, bin_dir: str = "", timeout_s: float = 15) -> None:
        self.bin_dir = bin_dir
        self.timeout_s = timeout_s
        self.environment = clean_environment()

    async def run(self, *args: str, timeout_s: float | None = None) -> str:
        """What the command prints. Raises Refused or Away."""
        name = args[0]
        path = str(Path(self.bin_dir) / name) if self.bin_dir else name
        argv = [to_bytes(path), *(to_bytes(arg) for arg in args[1:])]
        deadline = timeout_s or self.timeout_s
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, env=self.environment, start_new_session=True)
        except OSError as fault:
            raise Away(f"can't run {path}: {fault.strerror}") from None
        try:
            async with asyncio.timeout(deadline):
                out, err = await process.communicate()
        except TimeoutError:
            raise Away(f"{name} gave no answer within {deadline:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KILLED_S):
                        await process.wait()
        if process.returncode:
            raise _fault(name, process.returncode, err, argv)
        return to_text(out)


def _fault(name: str, status: int, err: bytes, argv: Sequence[bytes]) -> Refused | Away:
    words = " ".join(err.decode("utf-8", "replace").split()) or f"{name} ended with status {status}"
    if status < 0 or any(word in words for word in AWAY_WORDS):
        return Away(words)
    return Refused(words)
