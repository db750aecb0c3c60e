"""Which NCCL a process has loaded, read from its files and never asked of it: some versions crash when asked.

The file may be the user's, in a container, on a storage that hangs: for children with deadlines only.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from .procfs import GONE, Proc

Version = tuple[int, int, int]
Stamp = str
"""A file as it stands: device, inode, size and time of its last change."""
SCAN_MAX = 3 << 30
"""Bytes of a library that are searched: libtorch_cuda.so, which may hold NCCL, has 1.5 GB."""
PIECE = 4 << 20
_LIBRARY = re.compile(rb"/libnccl\.so[0-9.]*$")
_HOLDERS = re.compile(rb"/(?:libtorch_cuda|_pywrap_tensorflow_internal|xla_cuda_plugin)[^/]*\.so[0-9.]*$")
"""What may have NCCL in itself, where no file of its own is mapped."""
_NAMED = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
_DIST = re.compile(r"^nvidia_nccl_cu\d+-(\d+)\.(\d+)\.(\d+)(?:\.[^-]*)?\.dist-info$")
_WORDS = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)")


def parse(text: str) -> Version | None:
    """``2.29.2`` as numbers."""
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def spelt(version: Version) -> str:
    """``2.29.2``"""
    return ".".join(map(str, version))


def version_of(proc: Proc, pid: int, known: Mapping[Stamp, str]) -> tuple[str, Stamp, str]:
    """(version, the file's stamp, why there is none). ``known``: what was found in files before. Raises
    PermissionError."""
    paths = {line[5].removesuffix(b" (deleted)") for line in
             (row.split(None, 5) for row in proc.maps(pid).splitlines()) if len(line) == 6}
    found = sorted(path for path in paths if _LIBRARY.search(path)) or sorted(
        path for path in paths if _HOLDERS.search(path))
    why = "it has no NCCL loaded"
    for path in found:
        version, stamp, why = _of_file(proc, pid, os.fsdecode(path), known)
        if version:
            return version, stamp, ""
    return "", "", why


def _of_file(proc: Proc, pid: int, path: str, known: Mapping[Stamp, str]) -> tuple[str, Stamp, str]:
    inside = f"{proc.root}/{pid}/root{path}"
    try:
        fd = os.open(inside, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except PermissionError:
        raise
    except OSError as fault:
        return "", "", f"the version of {path} can't be read: {fault.strerror}"
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            return "", "", f"{path} is no regular file"
        stamp = f"{seen.st_dev}:{seen.st_ino}:{seen.st_size}:{seen.st_mtime_ns}"
        version = known.get(stamp) or _by_name(path) or _by_package(inside) or _by_words(fd)
    finally:
        os.close(fd)
    return (version, stamp, "") if version else ("", "", f"{path} does not tell which version it is")


def _by_name(path: str) -> str:
    found = _NAMED.search(path)
    return spelt((int(found[1]), int(found[2]), int(found[3]))) if found else ""


def _by_package(inside: str) -> str:
    """Of a wheel: …/nvidia/nccl/lib/libnccl.so.2 beside …/nvidia_nccl_cu13-2.30.7.dist-info; only where there is one,
    for an upgrade may have left another."""
    folder, _, rest = inside.rpartition("/nvidia/nccl/lib/")
    if not rest:
        return ""
    try:
        found = [match for name in os.listdir(folder) if (match := _DIST.match(name))]
    except (*GONE, OSError):
        return ""
    return spelt((int(found[0][1]), int(found[0][2]), int(found[0][3]))) if len(found) == 1 else ""


def _by_words(fd: int) -> str:
    """What it would print of itself."""
    at, tail = 0, b""
    while at < SCAN_MAX:
        piece = os.pread(fd, PIECE, at)
        if not piece:
            break
        found = _WORDS.search(tail + piece)
        if found:
            return spelt((int(found[1]), int(found[2]), int(found[3])))
        at, tail = at + len(piece), piece[-64:]
    return ""
