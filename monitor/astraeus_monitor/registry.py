"""What Prolog and the plugin wrote: job files once, step files as they grow."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from astraeus_protocol.jobfile import JOB_LIMIT, parse_job, parse_step_lines

from .lock import Lock
from .log import say_once

_NUMBER = re.compile(r"[0-9]{1,10}")
Lines = list[tuple[str, dict[str, str]]]


class StepFile:
    """How far one step's file has been read."""

    def __init__(self, path: str) -> None:
        self.path, self.offset, self.rest = path, 0, b""

    def new_lines(self) -> Lines:
        """Whole lines that came since; a torn last one waits for its end."""
        try:
            if os.stat(self.path).st_size == self.offset:
                return []
            data = _read(self.path, self.offset)
        except OSError:
            return []
        self.offset += len(data)
        whole, newline, rest = (self.rest + data).rpartition(b"\n")
        self.rest = rest
        return list(parse_step_lines((whole + newline).decode(errors="replace")))


class JobEntry:
    """One job's directory."""

    def __init__(self, path: Path, job: int, facts: dict[str, str]) -> None:
        self.path, self.job, self.facts, self.nonce = path, job, facts, facts.get("nonce", "")
        self.files: dict[str, StepFile] = {}
        self.too_much = False
        self.seen_at = 0

    def news(self, *, force: bool = True) -> Iterator[tuple[str, Lines]]:
        """(step, new lines) for each step with new lines, until the job's files pass their limit.

        ``force``: look for new files even where the folder's time of change did not move (it has the grain of
        a clock tick).
        """
        steps = f"{self.path}/steps"
        try:
            folder = os.lstat(steps)
            if not stat.S_ISDIR(folder.st_mode):
                return
            changed = folder.st_mtime_ns
            names = os.listdir(steps) if force or changed != self.seen_at else []
            self.seen_at = changed
        except OSError:
            return
        for name in names:
            if name == "batch" or _NUMBER.fullmatch(name):
                self.files.setdefault(name, StepFile(f"{steps}/{name}"))
        for name, file in self.files.items():
            if sum(f.offset for f in self.files.values()) > JOB_LIMIT:
                self.too_much = True
                return
            lines = file.new_lines()
            if lines:
                yield name, lines


class Registry:
    """The jobs of the state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.jobs_dir = state_dir / "jobs"
        self.jobs: dict[int, JobEntry] = {}
        self.seen: list[int] = []

    def _times(self) -> list[int]:
        """Times of change of the folder and of the known job files; -1 for what is gone."""
        times = []
        for path in (str(self.jobs_dir), *(f"{entry.path}/job" for entry in self.jobs.values())):
            try:
                times.append(os.stat(path).st_mtime_ns)
            except OSError:
                times.append(-1)
        return times

    def scan(self, *, force: bool = True) -> tuple[list[JobEntry], list[JobEntry]]:
        """(came, left) since the scan before; a job with a new nonce is both. ``force`` as for ``news``."""
        if not force and self._times() == self.seen:
            return [], []
        try:
            with os.scandir(self.jobs_dir) as folder:
                names = {int(entry.name) for entry in folder
                         if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)}
        except FileNotFoundError:
            names = set()
        except OSError as fault:
            say_once("jobs", f"can't read {self.jobs_dir}: {fault.strerror}")
            return [], []  # what is there is not known: nobody has left
        came: list[JobEntry] = []
        left = [self.jobs.pop(job) for job in list(self.jobs) if job not in names]
        for job in sorted(names):
            entry = self._entry(job)
            if entry is None:
                continue
            known = self.jobs.get(job)
            if known and known.nonce == entry.nonce:
                continue
            if known:
                left.append(known)
            self.jobs[job] = entry
            came.append(entry)
        self.seen = self._times()
        return came, left

    def _entry(self, job: int) -> JobEntry | None:
        path = self.jobs_dir / str(job)
        try:
            facts = parse_job(_read(path / "job").decode(errors="replace"))
        except FileNotFoundError:
            return None
        except OSError as fault:
            say_once(f"job {job}", f"job {job}: can't read {path / 'job'}: {fault.strerror}")
            return None
        if not facts.get("nonce"):
            return None  # being written
        return JobEntry(path, job, facts)


def may_leave(state_dir: Path, lock: Lock) -> bool:
    """Give the lock up, unless a job has come. Prolog writes the job first and looks at the lock then; so the lock
    goes first, then we look."""
    lock.release()
    came, _ = Registry(state_dir).scan()
    return not (came and lock.take())


def _read(path: Path | str, offset: int = 0, limit: int = JOB_LIMIT) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(fd, min(limit, max(0, os.fstat(fd).st_size - offset)), offset)
    finally:
        os.close(fd)
