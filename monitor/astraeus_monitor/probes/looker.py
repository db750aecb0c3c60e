"""The child that looks at processes and stays: a fork for each look would cost more than the look itself.

It is asked through a pipe and answers into memory that it shares with the monitor: what it wrote before it
hung is there, and the monitor wakes up once a look, not once a line. One that misses its deadline is killed and
a new one forked; one that can't be killed is left behind with the job that it hangs on.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
from collections.abc import Callable, Iterator

import msgspec

from ..clock import Clock
from ..host.procfs import Proc
from . import rails
from .area import Area
from .children import BUSY, LATE, LOOK_DEADLINE_S, Done, Probes, encode_line
from .look import Ask, Memory, look
from .servant import fork_servant, receive, send

MAX_ASK = 60_000
"""Bytes that an empty pipe takes at once; a longer ask is for a child of its own."""
FORGET_S = 600.0
"""The child forgets a job that it was not asked about for so long."""
TIDY_EVERY = 256
"""Looks between two collections of garbage in the child."""
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODER = msgspec.msgpack.Decoder(Ask | rails.RailAsk)


class Looker:
    """Looks at one job at a time, or at the node's rails. ``memories`` gives each job's at the time of the fork."""

    def __init__(self, proc: Proc, selector: selectors.BaseSelector, clock: Clock, probes: Probes,
                 memories: Callable[[], dict[int, Memory]]) -> None:
        self.proc, self.selector, self.clock, self.probes = proc, selector, clock, probes
        self.memories = memories
        self.pid = 0
        self.kind = ""
        """What it looks at now."""
        self.until: float | None = None
        self._ask = self._answer = -1
        self._area: Area | None = None
        self._done: Done | None = None

    @property
    def busy(self) -> bool:
        """Whether a look is under way."""
        return self.until is not None

    def start(self, kind: str, ask: Ask | rails.RailAsk, done: Done, deadline_s: float = LOOK_DEADLINE_S) -> str:
        """Begin a look. Returns "" or why it can't begin."""
        if self.busy:
            return BUSY
        why = self.probes.hangs(kind)
        if why:
            return why
        data = _ENCODE(ask)
        if len(data) > MAX_ASK:
            return self.probes.start(kind, lambda: lines_of(self.proc, ask, self.memories()), done, deadline_s)
        try:
            if not self.pid:
                self._begin(deadline_s)
            assert self._area
            self._area.begin()
            send(self._ask, data)
        except OSError as fault:
            self.stop()
            return f"no child for it: {fault.strerror}"
        self.kind, self._done, self.until = kind, done, self.clock.boot() + deadline_s
        return ""

    def sweep(self) -> None:
        """End a look that is late."""
        if self.until is not None and self.until <= self.clock.boot():
            self._end(LATE, kill=True)

    def stop(self) -> None:
        """Let the child go, whatever it does."""
        self._done = None
        if self.pid:
            self._end("", kill=True)

    def _begin(self, deadline_s: float) -> None:
        area, memories = Area(), self.memories()
        self.pid, self._ask, self._answer = fork_servant(
            lambda asks, answers: serve(self.proc, memories, area, asks, answers, deadline_s + 1))
        self._area = area
        self.selector.register(self._answer, selectors.EVENT_READ, self._readable)

    def _readable(self) -> None:
        try:
            part = os.read(self._answer, 64)
        except BlockingIOError:
            return
        self._end("", kill=not part or not self.busy)

    def _end(self, why: str, *, kill: bool) -> None:
        """The look is over, as far as it came; the child goes too where it is of no more use."""
        data = self._area.take() if self._area and self.busy else b""
        if kill:
            self.selector.unregister(self._answer)
            os.close(self._ask)
            os.close(self._answer)
            self.probes.kill(self.kind or "look", self.pid)
            if self._area:
                self._area.close()
            self.pid, self._area = 0, None
        done, self._done, self.until, self.kind = self._done, None, None, ""
        if done:
            done(data.split(b"\n")[:-1] if data is not None else [],
                 why if data is not None else "the answer is too long")


def serve(proc: Proc, memories: dict[int, Memory], area: Area, ask_fd: int, answer_fd: int,
          alarm_s: float) -> None:
    """The child: a look for each ask, until the monitor closes its pipe."""
    looks, newest = 0, 0.0
    while data := receive(ask_fd):
        ask = _DECODER.decode(data)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)  # should the monitor die meanwhile
        for line in lines_of(proc, ask, memories):
            area.add(encode_line(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        newest = ask.now if isinstance(ask, Ask) else newest
        os.write(answer_fd, b".")
        looks += 1
        if looks % TIDY_EVERY == 0:
            for job in [job for job, memory in memories.items() if newest - memory.used > FORGET_S]:
                del memories[job]
            gc.collect()


def lines_of(proc: Proc, ask: Ask | rails.RailAsk, memories: dict[int, Memory]) -> Iterator[msgspec.Struct]:
    """What a look sees, line by line."""
    if isinstance(ask, rails.RailAsk):
        return rails.look(ask)
    return look(proc, ask, memories.setdefault(ask.job, Memory()))
