"""Everything that may block is read by children with deadlines.

``Probes`` forks a short-lived child for each look; never two of the same kind at once; a late one is killed,
one that can't be killed (it hangs in the kernel) is left behind and counted. ``Servant`` is one child that
stays, for NVML: it ends when its pipe closes.
"""

from __future__ import annotations

import fcntl
import gc
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable

import msgspec

from .clock import Clock
from .log import say

LOOK_DEADLINE_S = 2.0
ENDS_WITHIN_S = 1.0
MAX_ANSWER = 8 << 20
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
        low = 3
        for keep in sorted((fd, *also)):
            os.closerange(low, keep)
            low = keep + 1
        os.closerange(low, 1 << 20)
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
        if kind in self.running:
            return "the look before has not ended"
        if kind in self.left_behind and not _reaped(self.left_behind[kind]):
            return "the look before hangs in the kernel"
        self.left_behind.pop(kind, None)
        self._reap()
        reading, writing = os.pipe()
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

    def next_deadline(self) -> float | None:
        """When ``sweep`` has something to do."""
        return min((child.until for child in self.running.values()), default=None)

    def sweep(self) -> None:
        """End the looks that are late."""
        now = self.clock.boot()
        for child in [c for c in self.running.values() if c.until <= now]:
            self._end(child, "no answer before the deadline")
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
            os.kill(child.pid, signal.SIGKILL)
            if not _reaped(child.pid, patience=20):
                self._leave(child.kind, child.pid)
        else:
            self.ending[f"{child.kind} {child.pid}"] = child.pid, self.clock.boot()
        lines = bytes(child.data).split(b"\n")[:-1]
        child.done(lines, why)


    def _reap(self) -> None:
        """See the children end that have said all; it takes them a moment."""
        for kind, (pid, since) in list(self.ending.items()):
            if _reaped(pid):
                del self.ending[kind]
            elif self.clock.boot() - since > ENDS_WITHIN_S:
                del self.ending[kind]
                os.kill(pid, signal.SIGKILL)
                if not _reaped(pid, patience=20):
                    self._leave(kind.rpartition(" ")[0], pid)

    def _leave(self, kind: str, pid: int) -> None:
        self.left_behind[kind] = pid
        self.stuck += 1
        say(f"probe {kind} (PID {pid}) hangs in the kernel and is left behind")


class Servant:
    """A child that stays: one request line in, one reply line out, each with a deadline."""

    def __init__(self, kind: str, serve: Callable[[int, int], None], selector: selectors.BaseSelector,
                 clock: Clock, deadline_s: float = 5.0, rest_s: float = 60.0) -> None:
        self.kind, self.serve, self.selector, self.clock = kind, serve, selector, clock
        self.deadline_s, self.rest_s = deadline_s, rest_s
        self.pid = 0
        self.not_before = 0.0
        self.until: float | None = None
        self.stuck = 0
        self._ask = self._answer = -1
        self._data = bytearray()
        self._done: Done | None = None
        self._hanging: list[int] = []

    def ask(self, request: bytes, done: Done) -> str:
        """Send a request. Returns "" or why it can't be sent."""
        if self.until is not None:
            return "the question before has no answer yet"
        if not self.pid:
            if self.clock.boot() < self.not_before:
                return "did not answer and rests"
            self._hanging = [pid for pid in self._hanging if not _reaped(pid)]
            if len(self._hanging) > 2:
                return "hangs in the kernel"
            self._begin()
        self._done, self.until = done, self.clock.boot() + self.deadline_s
        try:
            os.write(self._ask, request + b"\n")
        except OSError:
            self.drop("ended")
            return "ended"
        return ""

    def sweep(self) -> None:
        """Drop it when its answer is late."""
        if self.until is not None and self.until <= self.clock.boot():
            self.stuck += 1
            self.not_before = self.clock.boot() + self.rest_s
            self.drop("does not answer")

    def stop(self) -> None:
        """Let it end: its pipe closes, it closes the driver; killed when it does not."""
        self._done = None
        self.drop("stopped", kill=False)

    def drop(self, why: str, *, kill: bool = True) -> None:
        """Close its pipes and see it end."""
        if not self.pid:
            return
        self.selector.unregister(self._answer)
        os.close(self._ask)
        os.close(self._answer)
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        if not _reaped(self.pid, patience=100 if not kill else 20):
            os.kill(self.pid, signal.SIGKILL)
            if not _reaped(self.pid, patience=20):
                self._hanging.append(self.pid)
                say(f"probe {self.kind} (PID {self.pid}) hangs in the kernel and is left behind")
        self.pid, self.until = 0, None
        self._data.clear()
        done, self._done = self._done, None
        if done:
            done([], why)

    def _begin(self) -> None:
        request_out, self._ask = os.pipe()
        self._answer, reply_in = os.pipe()
        # A stopped child must not block the loop: a full pipe is a fault like any other.
        os.set_blocking(self._ask, False)
        self.pid = fork_into(lambda fd: self.serve(request_out, fd), reply_in, also=(request_out,))
        os.close(request_out)
        os.close(reply_in)
        os.set_blocking(self._answer, False)
        self.selector.register(self._answer, selectors.EVENT_READ, self._readable)

    def _readable(self) -> None:
        try:
            part = os.read(self._answer, 1 << 16)
        except BlockingIOError:
            return
        if not part:
            self.not_before = self.clock.boot() + self.rest_s
            self.drop("ended")
            return
        self._data += part
        if self._data.endswith(b"\n") and self._done:
            lines = bytes(self._data).split(b"\n")[:-1]
            self._data.clear()
            done, self._done, self.until = self._done, None, None
            done(lines, "")


def _write_lines(fd: int, lines: Lines) -> None:
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    for line in lines():
        data = memoryview(_ENCODE(line) + b"\n")
        while data:
            data = data[os.write(fd, data):]


def _reaped(pid: int, patience: int = 0) -> bool:
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
