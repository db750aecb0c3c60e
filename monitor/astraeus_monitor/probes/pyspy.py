"""Runs py-spy on worker processes, one after the other, in a child that ends afterwards; judges what it prints.

py-spy reads another process's memory as root, and prints what the job's user may have made up: it gets no
environment of ours, no input, bounds on its time, memory and output, and its answer is taken for hostile.
Only ``--nonblocking``: blocking mode fails on a stopped process and hangs on one in D. A process that a debugger
holds, that is in D or that waits for storage is left alone: reading its memory or its program may hang as it does.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
from astraeus_protocol.readings import ThreadStack

from ..host.procfs import GONE, Proc
from ..host.tree import Identity
from ..plain import plain
from .children import first_to_go, reaped

DEADLINE_S, NATIVE_DEADLINE_S = 3.0, 5.0
"""For one process: a dump takes 15 ms, 115 ms on a busy machine; with native frames 235 ms."""
JOB_DEADLINE_S = 12.0
"""For all processes of a job."""
LATE_AT_MOST = 2
"""Once so many dumps of a job were late, the others are not tried."""
MAX_OUTPUT, MAX_ERROR = 256 << 10, 4 << 10
MAX_SPACE, MAX_SPACE_NATIVE, MAX_MEMORY = 1 << 30, 4 << 30, 128 << 20
"""Bytes of address space (with native frames it maps every library of the process), and of memory of its own: it takes
15 MiB, and the monitor's unit holds 256."""
MAX_FRAMES, MAX_FRAME, MAX_THREADS = 24, 120, 32
UNFIT = {"Z": "it is a zombie", "X": "it is gone", "t": "a debugger holds it",
         "D": "it is in uninterruptible sleep (state D): reading it could hang, too"}


class Target(msgspec.Struct):
    """A process to read. ``skip``: why it is not to be."""

    id: Identity
    skip: str = ""


class StackLook(msgspec.Struct, omit_defaults=True):
    """What py-spy told of a process, or why it did not."""

    pid: int
    start: int
    frames: list[str] = []
    threads: list[ThreadStack] = []
    unknown: str = ""
    hangs: int = 0
    """PID of a py-spy that can't be killed."""


class _Frame(msgspec.Struct):
    name: str = ""
    short_filename: str | None = None
    filename: str | None = None
    line: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] | None = None


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None


DECODER = msgspec.json.Decoder(StackLook)
_THREADS = msgspec.json.Decoder(list[_Thread])


def dump(proc: Proc, program: str, targets: list[Target], native: bool = False) -> Iterator[StackLook]:
    """A line per process. Only in a child that ends afterwards."""
    end, late, stuck = time.monotonic() + JOB_DEADLINE_S, 0, ""
    for target in targets:
        pid, start = target.id
        why = target.skip or _unfit(proc, pid, start, native=native) or stuck
        if not why and time.monotonic() >= end:
            why = "no time was left for it"
        if why:
            yield StackLook(pid, start, unknown=why)
            continue
        data, why, hangs = run(program, pid, native=native, until=min(
            end, time.monotonic() + (NATIVE_DEADLINE_S if native else DEADLINE_S)))
        after = proc.stat(pid)
        if hangs:
            stuck = "py-spy hangs in the kernel on another process of this job"
        elif time.monotonic() >= end or why.startswith("no answer"):
            late += 1
            stuck = "py-spy was late on other processes of this job" if late >= LATE_AT_MOST else ""
        if why:
            yield StackLook(pid, start, unknown=why, hangs=hangs)
        elif after is None or after.start != start:
            yield StackLook(pid, start, unknown="it has just ended")
        else:
            yield parse(data, pid, start, _main_ids(proc, pid))


def _unfit(proc: Proc, pid: int, start: int, *, native: bool) -> str:
    """Why the process is to be left alone now; "" where it may be read."""
    seen = proc.stat(pid)
    if seen is None or seen.start != start:
        return "it is gone"
    if seen.state in UNFIT:
        return UNFIT[seen.state]
    if seen.state == "T" and native:
        return "it is stopped (state T): its native frames can't be read"
    status = proc.status(pid)
    if status is None:
        return "it is gone"
    return UNFIT["t"] if status.tracer else ""


def _main_ids(proc: Proc, pid: int) -> set[int]:
    """Ids of its main thread: ours, and its own where it lives in a PID namespace."""
    try:
        text = proc.text(pid, "status", limit=8192)
    except GONE:
        return {pid}
    found = next((line for line in text.split(b"\n") if line.startswith(b"NSpid:")), b"")
    return {pid, *(int(one) for one in found.split()[1:])}


def run(program: str, pid: int, *, native: bool, until: float) -> tuple[bytes, str, int]:
    """(output, why there is none, PID of a py-spy that can't be killed) of one run that ends by ``until``."""
    out, out_end = os.pipe2(os.O_CLOEXEC)
    err, err_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        _become(program, pid, native, out_end, err_end, until - time.monotonic())
    os.close(out_end)
    os.close(err_end)
    data, fault, why = bytearray(), bytearray(), ""
    waiting = select.poll()
    for fd in (out, err):
        waiting.register(fd, select.POLLIN)
    left = {out: data, err: fault}
    while left and not why:
        ready = waiting.poll(max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            why = "no answer from py-spy before the deadline"
        for fd, _ in ready:
            part = os.read(fd, 1 << 16)
            left[fd] += part
            if not part:
                waiting.unregister(fd)
                del left[fd]
        if len(data) > MAX_OUTPUT or len(fault) > 16 * MAX_ERROR:
            why = f"py-spy's answer is longer than {MAX_OUTPUT >> 10} KiB"
    for fd in (out, err):
        os.close(fd)
    if not why:  # it has closed its outputs: it is about to end
        code = _code(child, until)
        if code is None:
            why = "no answer from py-spy before the deadline"
        elif code:
            why = _words(fault) or f"py-spy ended with {code}"
        if code is not None:
            return bytes(data), why, 0
    os.kill(child, signal.SIGKILL)
    return b"", why, 0 if reaped(child, patience=200) else child


def _code(child: int, until: float) -> int | None:
    """Exit code (negative: a signal) of a child that is ending; None where it does not."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.001)


def _become(program: str, pid: int, native: bool, out: int, err: int, seconds: float) -> None:
    """In the child: be py-spy, bounded. Never returns."""
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        for fd, place in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, place)
        os.chdir("/")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        first_to_go()
        space = MAX_SPACE_NATIVE if native else MAX_SPACE
        for what, most in ((resource.RLIMIT_AS, space), (resource.RLIMIT_DATA, MAX_MEMORY),
                           (resource.RLIMIT_CPU, int(seconds) + 1), (resource.RLIMIT_CORE, 0),
                           (resource.RLIMIT_FSIZE, 0)):
            resource.setrlimit(what, (most, most))
        # Should whoever waits for it be killed: a timer outlives exec.
        signal.setitimer(signal.ITIMER_REAL, max(0.1, seconds) + 1)
        mode = "--native" if native else "--nonblocking"
        os.execve(program, [program, "dump", "--json", mode, "--pid", str(pid)],
                  {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    except OSError as fault:
        os.write(2, f"{program} can't be run: {fault.strerror}".encode())
    finally:
        os._exit(127)


def parse(data: bytes, pid: int, start: int, main_ids: set[int]) -> StackLook:
    """What it printed."""
    try:
        threads = _THREADS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return StackLook(pid, start, unknown="py-spy's answer can't be read")
    main = [one for one in threads if one.os_thread_id in main_ids]
    if not main and len(threads) == 1:
        main = threads
    if not main:
        return StackLook(pid, start, unknown="its main thread runs no Python")
    others: dict[tuple[str, ...], list[str]] = {}
    for one in threads:
        if one is not main[0]:
            others.setdefault(tuple(_frames(one)), []).append(printable(one.thread_name or "", 40))
    found = [ThreadStack(names[0], len(names), list(frames)) for frames, names in others.items()]
    return StackLook(pid, start, _frames(main[0]), found[:MAX_THREADS])


def _frames(thread: _Thread) -> list[str]:
    """Leaf first: ``next_batch (loader.py:41)``; a native one without a symbol ``? (libc.so.6)``, for its address is
    another one in each process."""
    found = []
    for one in thread.frames[:MAX_FRAMES]:
        name = "?" if one.name.startswith("0x") else one.name
        line = f":{one.line}" if one.line else ""
        found.append(printable(f"{name} ({one.short_filename or one.filename or '?'}{line})", MAX_FRAME))
    return found


def printable(text: str, most: int) -> str:
    """Foreign text as one printable line."""
    line = " ".join(plain(text[:4 * most]).split())
    return line if len(line) <= most else line[:most - 1] + "…"


def _words(fault: bytearray) -> str:
    """Its own first line of what went wrong."""
    line = bytes(fault[:MAX_ERROR]).decode(errors="replace").strip().partition("\n")[0]
    line = printable(line.removeprefix("Error: "), 160)
    return f"py-spy: {line}" if line else ""
