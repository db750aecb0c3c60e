"""A fake /proc to build process trees in, and a clock that stands still until told."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc


class FakeClock(Clock):
    """A clock in the test's hands."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def boot(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class FakeProc(Proc):
    """A proc tree in a folder."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        super().__init__(str(path))
        self.path = path

    def add(self, pid: int, ppid: int = 1, *, comm: str = "python3", exe: str = "", cmd: str = "",
            env: dict[str, str] | None = None, state: str = "S", start: int = 0, ticks: int = 0,
            switches: int = 0, exit_code: int = 0, fds: dict[int, str] | None = None,
            pos: dict[int, int] | None = None, write_bytes: int = 0, wchar: int = 0, syscw: int = 0,
            tcp: list[str] | None = None, flags: str = "0100001", uid: int | None = None,
            image: int = 0, inos: dict[int, int] | None = None, modes: dict[int, str] | None = None,
            ttys: dict[int, int] | None = None) -> None:
        """Make or remake a process; ``fds`` maps descriptors to link targets, ``pos`` to positions, ``inos`` to
        inodes, ``modes`` to flags, ``ttys`` to the terminals that they are masters of."""
        home = self.path / str(pid)
        shutil.rmtree(home, ignore_errors=True)
        for name in ("fd", "fdinfo", "net", "ns"):
            (home / name).mkdir(parents=True)
        start = start or pid
        fields = ["0"] * 50
        owner = os.geteuid() if uid is None else uid
        fields[0], fields[1], fields[11], fields[19], fields[25], fields[49] = (
            state, str(ppid), str(ticks), str(start), str(image), str(exit_code))
        (home / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        (home / "status").write_text(
            f"Name:\t{comm}\nState:\t{state} (so)\nTracerPid:\t0\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n"
            f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t9\n")
        (home / "cmdline").write_bytes((cmd or comm).replace(" ", "\0").encode() + b"\0")
        (home / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in (env or {}).items()))
        (home / "io").write_text(f"rchar: 0\nwchar: {wchar}\nsyscr: 0\nsyscw: {syscw}\nread_bytes: 0\n"
                                 f"write_bytes: {write_bytes}\ncancelled_write_bytes: 0\n")
        os.symlink(exe or f"/usr/bin/{comm}", home / "exe")
        os.symlink("net:[1]", home / "ns" / "net")
        for fd, target in (fds or {}).items():
            os.symlink(target, home / "fd" / str(fd))
            (home / "fdinfo" / str(fd)).write_text(
                f"pos:\t{(pos or {}).get(fd, 0)}\nflags:\t{(modes or {}).get(fd, flags)}\nmnt_id:\t1\n"
                f"ino:\t{(inos or {}).get(fd, zlib.crc32(os.fsencode(target)))}\n"
                + (f"tty-index:\t{ttys[fd]}\n" if ttys and fd in ttys else ""))
        lines = ["  sl  local_address rem_address   st", *(tcp or [])]
        (home / "net" / "tcp").write_text("\n".join(lines) + "\n")

    def remove(self, pid: int) -> None:
        """The process is gone."""
        shutil.rmtree(self.path / str(pid))


def tcp_line(local: str, remote: str, state: str, inode: int) -> str:
    """A line of net/tcp."""
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """An empty proc tree."""
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def clock() -> FakeClock:
    """Stands at 1000 s."""
    return FakeClock()
