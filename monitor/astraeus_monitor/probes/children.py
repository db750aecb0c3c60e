"""Everything that may block is read by children with deadlines.

``Probes`` forks a short-lived child for each question; never two of the same kind at once; a late one is killed,
one that can't be killed (it hangs in the kernel) is left behind and counted. Children that stay: ``servant``
(NVML) and ``looker`` (processes).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable

import msgspec

from ..clock import Clock
from ..log import say

LOOK_DEADLINE_S = 2.0
LATE = "no answer before the deadline"
ENDS_WITHIN_S = 1.0
MAX_ANSWER = 8 << 20
BUSY = "the look before has not ended"
_ENCODE = msgspec.json.Encoder().encode

Lines = Callable[[], Iterable[msgspec.Struct]]
Done = Callable[[list[bytes], str], None]
"""Called with the lines that came, and "" or why there are no more."""


class _Child:
    def __init__(self, kind: str, pid: int, fd: int, until: float, done: Done) -> None:
        self.kind, self.pid, self.fd, self.until, self.done = kind, pid, fd, until, done
        self.data = bytearray()


def fork_into(work: Callable[[int], None], fd: int, also: tuple[int, ...] = (), alarm_s: float = 0) -> int:
    """Fork; the child runs ``work(fd)`` with no other descriptor than 0 to 2, ``fd`` and ``also``, and ends.

    It must not keep the monitor's lock, sockets or signal handling. Returns the child's PID.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        for other in map(int, os.listdir("/proc/self/fd")):
            if other > 2 and other != fd and other not in also:
                with contextlib.suppress(OSError):  # the listing's own
                    os.close(other)
        if alarm_s:
            signal.setitimer(signal.ITIMER_REAL, alarm_s)  # should the monitor die meanwhile
        work(fd)
    except BaseException as fault:
        say(f"a probe failed: {type(fault).__name__}: {fault}")
    finally:
        os._exit(0)
    return 0


class Probes:
    """Short-lived children and their answers."""

    def __init__(self, selector: selectors.BaseSelector, clock: Clock) -> None:
        self.selector, self.clock = selector, clock
        self.running: dict[str, _Child] = {}
        self.ending: dict[str, tuple[int, float]] = {}
        """Kind and PID to PID and time, of children that have said all and are about to end."""
        self.left_behind: dict[str, int] = {}
        """Kind to PID of a child that can't be killed."""
        self.stuck = 0
        """How many were ever left behind."""

    def start(self, kind: str, lines: Lines, done: Done, deadline_s: float = LOOK_DEADLINE_S) -> str:
        """Begin a look. Returns "" or why it can't begin."""
        why = BUSY if kind in self.running else self.hangs(kind)
        if why:
            return why
        self._reap()
        try:
            reading, writing = os.pipe()
        except OSError as fault:
            return f"no child for it: {fault.strerror}"
        try:
            pid = fork_into(lambda fd: _write_lines(fd, lines), writing, alarm_s=deadline_s + 1)
        except OSError as fault:
            os.close(reading)
            return f"no child for it: {fault.strerror}"
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        child = _Child(kind, pid, reading, self.clock.boot() + deadline_s, done)
        self.running[kind] = child
        self.selector.register(reading, selectors.EVENT_READ, lambda: self._readable(child))
        return ""

    def hangs(self, kind: str) -> str:
        """Why no child of this kind may begin: the one before can't be killed. "" where one may."""
        if kind in self.left_behind and not reaped(self.left_behind[kind]):
            return "the look before hangs in the kernel"
        self.left_behind.pop(kind, None)
        return ""

    def kill(self, kind: str, pid: int) -> None:
        """End a child; one that can't be killed is left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if not reaped(pid, patience=20):
            self.left_behind[kind] = pid
            self.stuck += 1
            say(f"probe {kind} (PID {pid}) hangs in the kernel and is left behind")

    @property
    def children(self) -> bool:
        """Whether one runs, is about to end or was left behind."""
        return bool(self.running or self.ending or self.left_behind)

    def next_deadline(self) -> float | None:
        """When ``sweep`` has something to do."""
        return min((child.until for child in self.running.values()), default=None)

    def sweep(self) -> None:
        """End the looks that are late."""
        now = self.clock.boot()
        for child in [c for c in self.running.values() if c.until <= now]:
            self._end(child, LATE)
        self._reap()

    def stop(self) -> None:
        """Kill what runs."""
        self._reap()
        for child in list(self.running.values()):
            child.done = lambda lines, why: None
            self._end(child, "the monitor leaves")

    def _readable(self, child: _Child) -> None:
        try:
            part = os.read(child.fd, 1 << 16)
        except BlockingIOError:
            return
        child.data += part
        if not part:
            self._end(child, "")
        elif len(child.data) > MAX_ANSWER:
            self._end(child, "the answer is too long")

    def _end(self, child: _Child, why: str) -> None:
        del self.running[child.kind]
        self.selector.unregister(child.fd)
        os.close(child.fd)
        if why:
            self.kill(child.kind, child.pid)
        else:
            self.ending[f"{child.kind} {child.pid}"] = child.pid, self.clock.boot()
        lines = bytes(child.data).split(b"\n")[:-1]
        child.done(lines, why)

    def _reap(self) -> None:
        """See the children end that have said all; it takes them a moment. One that was left behind may end after its
        job has, and nobody asks for its kind again."""
        for kind in [kind for kind, pid in self.left_behind.items() if reaped(pid)]:
            del self.left_behind[kind]
        for kind, (pid, since) in list(self.ending.items()):
            if reaped(pid):
                del self.ending[kind]
            elif self.clock.boot() - since > ENDS_WITHIN_S:
                del self.ending[kind]
                self.kill(kind.rpartition(" ")[0], pid)


def first_to_go() -> None:
    """In a child: where memory runs out all the same, it and not the monitor is killed."""
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"1000")
        os.close(fd)


def encode_line(line: msgspec.Struct) -> bytes:
    """One line of an answer."""
    return _ENCODE(line) + b"\n"


def _write_lines(fd: int, lines: Lines) -> None:
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    for line in lines():
        data = memoryview(encode_line(line))
        while data:
            data = data[os.write(fd, data):]


def reaped(pid: int, patience: int = 0) -> bool:
    """Whether the child is gone; waits ``patience`` milliseconds at most for one that is just ending."""
    for _ in range(patience + 1):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        if patience:
            time.sleep(0.001)
    return False
