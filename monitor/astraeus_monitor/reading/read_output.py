"""``read output PATH…``: who holds a file open to write, where each stands in it, and when it last grew.

Positions are asked of the kernel; the file system only for the size and the time of the last write, by a child that is
left behind where it does not answer.
"""

from __future__ import annotations

import os
import select
import signal
import stat as modes
import time
from collections.abc import Callable, Sequence

import msgspec

from ..host.outputs import DELETED, place_of
from ..host.procfs import Proc
from ..sources.output import WORDS

ANSWER_S = 2.0
"""How long a file system has to answer."""
HOLDERS_MAX = 64
KINDS = ((modes.S_ISREG, "file"), (modes.S_ISFIFO, "fifo"), (modes.S_ISDIR, "directory"), (modes.S_ISSOCK, "socket"))
REASONS = {**WORDS, "directory": "it is a directory", "missing": "there is no such file, and no process has it open",
           "hung": f"its file system does not answer within {ANSWER_S:.0f} s, and no process is seen to have it open"}


class Holder(msgspec.Struct, omit_defaults=True):
    """A process that has it open to write."""

    pid: int
    comm: str
    fd: int
    pos: int
    appends: bool = False


class Output(msgspec.Struct, omit_defaults=True):
    """One path. ``kind``: file, fifo, null, pty, device, directory, missing, hung (its file system does not answer)."""

    path: str
    kind: str
    size: int | None = None
    """Bytes; None: the file system did not say."""
    age_s: float | None = None
    """Since it last grew, seconds: by its holders' positions where they moved between two looks, else by the file's
    time of change; None: not known."""
    grew: int | None = None
    """Bytes by which its furthest holder, or its size, moved between two looks; None: there was one look only."""
    holders: list[Holder] = []
    unknown: str = ""


class Outputs(msgspec.Struct, tag="outputs", omit_defaults=True):
    """All that were asked for."""

    files: list[Output]


class Seen(msgspec.Struct):
    """What a file system said of a path."""

    kind: str
    size: int = 0
    changed: float = 0.0
    """Unix time of the last write."""
    real: str = ""
    """The path without links."""


def read(paths: Sequence[str], watch_s: float, proc: Proc, sleep: Callable[[float], None],
         ask: Callable[[str], Seen] | None = None) -> Outputs:
    """One look at each, or two ``watch_s`` seconds apart."""
    ask = ask or asked
    wanted = [os.path.abspath(path) for path in paths]
    first = look(wanted, proc, ask)
    if not watch_s:
        return Outputs(first)
    sleep(watch_s)
    second = look(wanted, proc, ask)
    for old, new in zip(first, second, strict=True):
        if not new.unknown and not old.unknown:
            new.grew = moved(old, new)
            if new.grew:
                new.age_s = min(new.age_s if new.age_s is not None else watch_s, watch_s)
            elif new.age_s is not None:
                new.age_s = max(new.age_s, watch_s)
    return Outputs(second)


def moved(old: Output, new: Output) -> int:
    """Bytes by which it grew, or was cut, between two looks; 0: it stood still."""
    before = {(h.pid, h.fd): h.pos for h in old.holders}
    steps = [abs(h.pos - before[h.pid, h.fd]) for h in new.holders if (h.pid, h.fd) in before]
    steps += [abs(new.size - old.size)] if new.size is not None and old.size is not None else []
    return max(steps, default=0)


def look(paths: Sequence[str], proc: Proc, ask: Callable[[str], Seen]) -> list[Output]:
    """Each path as it stands."""
    seen = {path: ask(path) for path in paths}
    names: dict[str, set[str]] = {}
    for path, said in seen.items():
        for name in {path, said.real} - {""}:
            if not name.startswith("/dev/"):
                names.setdefault(name, set()).add(path)
    found, hidden = held(names, proc)
    return [_output(path, seen[path], found.get(path, []), hidden) for path in paths]


def held(names: dict[str, set[str]], proc: Proc) -> tuple[dict[str, list[Holder]], bool]:
    """Path to who has it open to write; whether some processes may not be looked into. ``names``: how /proc may call
    a path, to the paths that were asked for."""
    found: dict[str, list[Holder]] = {}
    hidden = False
    for pid in proc.pids():
        try:
            for fd in proc.fds(pid):
                target = proc.link(pid, "fd", fd)
                paths = names.get(target.removesuffix(DELETED))
                info = proc.fdinfo(pid, fd) if paths else None
                if paths and info and info.writes:
                    stat = proc.stat(pid)
                    holder = Holder(pid, stat.comm if stat else "", fd, info.pos, bool(info.flags & os.O_APPEND))
                    for path in paths:
                        if len(found.setdefault(path, [])) < HOLDERS_MAX:
                            found[path].append(holder)
        except OSError:
            hidden |= os.geteuid() != 0
    return found, hidden


def _output(path: str, said: Seen, holders: list[Holder], hidden: bool) -> Output:
    kind = place_of(Proc("/nowhere"), {}, 0, 0, path)[0] if path.startswith("/dev/") else said.kind
    if kind in ("missing", "hung") and any(holder.pos for holder in holders):
        kind = "file"  # deleted, or on a file system that hangs: what has a position is regular
    found = Output(path, kind, holders=sorted(holders, key=lambda h: (h.pid, h.fd)))
    if kind == "file":
        if said.kind == "file":
            found.size, found.age_s = said.size, round(max(0.0, time.time() - said.changed), 2)
        return found
    found.unknown = REASONS.get(kind, WORDS["other"])
    if hidden and not holders and kind in ("missing", "hung"):
        found.unknown += "; not all processes may be looked into: run it as root"
    return found


def asked(path: str) -> Seen:
    """What the file system says, or that it does not answer."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        try:
            os.write(theirs, msgspec.json.encode(_stat(path)))
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        ready, _, _ = select.select([ours], [], [], ANSWER_S)
        data = os.read(ours, 65536) if ready else b""
        return msgspec.json.decode(data, type=Seen) if data else Seen("hung")
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0 if ready else os.WNOHANG)  # one in D can't be waited for


def _stat(path: str) -> Seen:
    try:
        said = os.stat(path)
    except OSError:
        return Seen("missing")
    kind = next((kind for test, kind in KINDS if test(said.st_mode)), "other")
    return Seen(kind, said.st_size, said.st_mtime, os.path.realpath(path))


def text(found: Outputs) -> str:
    """For people."""
    lines = []
    for one in found.files:
        if one.unknown:
            lines.append(f"output: {one.path}: unknown: {one.unknown}")
        else:
            words = [f"{one.size} bytes" if one.size is not None else "its file system tells no size"]
            words += [f"last grew {one.age_s:.0f} s ago"] if one.age_s is not None else []
            words += [("grew by {} bytes" if one.grew else "did not grow").format(one.grew)] if (
                one.grew is not None) else []
            lines.append(f"output: {one.path}: regular file, {', '.join(words)}"
                         + ("" if one.holders else "; no process has it open to write"))
        lines += [f"  PID {h.pid} ({h.comm}), descriptor {h.fd}, at {h.pos}" + (", appends" if h.appends else "")
                  for h in one.holders]
    return "\n".join(lines)
