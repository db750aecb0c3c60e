"""Children that stay: one request in, one reply out, each with a deadline."""

from __future__ import annotations

import os
import selectors
import signal
import struct
from collections.abc import Callable

from ..clock import Clock
from ..log import say
from .children import MAX_ANSWER, Done, fork_into, reaped

_HEAD = struct.Struct("=I")


def fork_servant(serve: Callable[[int, int], None]) -> tuple[int, int, int]:
    """Fork a child that runs ``serve(requests, replies)``: (PID, our end for requests, our end for replies).

    Raises OSError. Our ends never block: a stopped child must not block the loop, and a full pipe is a fault
    like any other.
    """
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        for ours in fds[1:3]:
            os.set_blocking(ours, False)
        pid = fork_into(lambda fd: serve(fds[0], fd), fds[3], also=(fds[0],))
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    os.close(fds[0])
    os.close(fds[3])
    return pid, fds[1], fds[2]


def send(fd: int, data: bytes) -> None:
    """One request to a child that takes it by ``receive``, whole: it must fit into the empty pipe. Raises OSError."""
    if os.write(fd, _HEAD.pack(len(data)) + data) != _HEAD.size + len(data):
        raise OSError(0, "its pipe is full")


def receive(fd: int) -> bytes:
    """The next request; b"" once the pipe is closed."""
    head = _exactly(fd, _HEAD.size)
    return _exactly(fd, _HEAD.unpack(head)[0]) if head else b""


def _exactly(fd: int, count: int) -> bytes:
    """``count`` bytes, or none at the pipe's end."""
    data = b""
    while len(data) < count:
        part = os.read(fd, count - len(data))
        if not part:
            return b""
        data += part
    return data


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
            self._hanging = [pid for pid in self._hanging if not reaped(pid)]
            if len(self._hanging) > 2:
                return "hangs in the kernel"
            try:
                self._begin()
            except OSError as fault:
                return f"has no child: {fault.strerror}"
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
        if not reaped(self.pid, patience=100 if not kill else 20):
            os.kill(self.pid, signal.SIGKILL)
            if not reaped(self.pid, patience=20):
                self._hanging.append(self.pid)
                say(f"probe {self.kind} (PID {self.pid}) hangs in the kernel and is left behind")
        self.pid, self.until = 0, None
        self._data.clear()
        done, self._done = self._done, None
        if done:
            done([], why)

    def _begin(self) -> None:
        self.pid, self._ask, self._answer = fork_servant(self.serve)
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
        if len(self._data) > MAX_ANSWER:
            self.drop("answers without end")
        elif self._data.endswith(b"\n") and self._done:
            lines = bytes(self._data).split(b"\n")[:-1]
            self._data.clear()
            done, self._done, self.until = self._done, None, None
            done(lines, "")
