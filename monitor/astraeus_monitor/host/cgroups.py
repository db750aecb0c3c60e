"""Which cgroups a process is in, and their files: the ranks of a node share most of them, and few kernels have all."""

from __future__ import annotations

import os

from .procfs import READING, Proc

Cgroups = list[tuple[list[str], str]]
"""(controllers, path) of each hierarchy; no controllers: version 2."""


def cgroups_of(proc: Proc, pid: int) -> Cgroups:
    """Empty where it has just ended, or may not be read."""
    try:
        lines = proc.text(pid, "cgroup", limit=65536).decode(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        found.append((controllers.split(",") if controllers else [], path))
    return found


class CgroupFiles:
    """Files of cgroups, each read once a look. One that was not there is asked for again at a deep look."""

    def __init__(self, root: str = "/sys/fs/cgroup") -> None:
        self.root = root
        self._seen: dict[str, str] = {}
        self._absent: set[str] = set()

    def begin(self, *, deep: bool = False) -> None:
        """A new look."""
        self._seen.clear()
        if deep:
            self._absent.clear()

    def text(self, path: str) -> str:
        """The first 4 KiB of a file below the root; "" where it is not there or can't be read."""
        if path in self._absent:
            return ""
        if path not in self._seen:
            self._seen[path] = self._read(self.root + path)
        return self._seen[path]

    def _read(self, path: str) -> str:
        try:
            fd = os.open(path, READING)
        except OSError:
            self._absent.add(path[len(self.root):])
            return ""
        try:
            return os.read(fd, 4096).decode(errors="replace")  # a Python file object costs three times as much
        except OSError:
            return ""
        finally:
            os.close(fd)
