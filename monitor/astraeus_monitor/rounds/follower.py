"""The monitor's side of the child that follows a job's output: one per job, asked over a pipe, with a deadline.

One that is late is killed and what it had said until then is taken; one that can't be killed is left behind, and no
other is begun for its job until it is gone.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from ..clock import Clock
from ..host.procfs import Proc
from ..log import fenced
from ..probes.area import Area
from ..probes.children import BUSY, LATE, LOOK_DEADLINE_S, Done, Probes
from ..probes.follow import ASK_ENCODER, DECODER, Counted, FileRead, FollowAsk, serve
from ..probes.looker import MAX_ASK
from ..probes.servant import fork_servant, send
from ..watch.job import JobWatch
from ..watch.logs import count, take

MAX_FOLLOWERS = 8
"""Children at a time: of more jobs, who was not asked for the longest lets his go, and begins anew when he is."""


class Follower:
    """One job's child."""

    def __init__(self, kind: str, proc: Proc, selector: selectors.BaseSelector, clock: Clock, probes: Probes) -> None:
        self.kind, self.proc, self.selector, self.clock, self.probes = kind, proc, selector, clock, probes
        self.pid = 0
        self.until: float | None = None
        self.used = 0.0
        self._ask = self._answer = -1
        self._area: Area | None = None
        self._done: Done | None = None

    def ask(self, data: bytes, done: Done, deadline_s: float = LOOK_DEADLINE_S) -> str:
        """Have files read on; ``data``: a FollowAsk as it is sent. Returns "" or why it can't be."""
        if self.until is not None:
            return BUSY
        why = self.probes.hangs(self.kind)
        if why:
            return why
        try:
            area = self._area or self._begin(deadline_s)
            area.begin()
            send(self._ask, data)
        except OSError as fault:
            self.stop()
            return f"no child for it: {fault.strerror}"
        self._done, self.used = done, self.clock.boot()
        self.until = self.used + deadline_s
        return ""

    def sweep(self) -> None:
        """End one that is late."""
        if self.until is not None and self.until <= self.clock.boot():
            self._end(LATE, kill=True)

    def stop(self) -> None:
        """Let the child go, whatever it does."""
        self._done = None
        if self.pid:
            self._end("", kill=True)

    def _begin(self, deadline_s: float) -> Area:
        area = Area()
        self.pid, self._ask, self._answer = fork_servant(
            lambda asks, answers: serve(self.proc, area, asks, answers, deadline_s + 1))
        self._area = area
        self.selector.register(self._answer, selectors.EVENT_READ, self._readable)
        return area

    def _readable(self) -> None:
        try:
            part = os.read(self._answer, 64)
        except BlockingIOError:
            return
        self._end("" if part else "it ended", kill=not part or self.until is None)

    def _end(self, why: str, *, kill: bool) -> None:
        """The look is over, as far as it came; the child goes too where it is of no more use."""
        data = self._area.take() if self._area and self.until is not None else b""
        if data is None:
            why, kill = "the answer is too long", True
        if kill:
            self.selector.unregister(self._answer)
            os.close(self._ask)
            os.close(self._answer)
            self.probes.kill(self.kind, self.pid)
            if self._area:
                self._area.close()
            self.pid, self._area = 0, None
        done, self._done, self.until = self._done, None, None
        if done:
            done((data or b"").split(b"\n")[:-1], why)


class Followers:
    """All of a node. ``seen`` is called when something came that is told at once."""

    def __init__(self, proc: Proc, selector: selectors.BaseSelector, clock: Clock, probes: Probes,
                 seen: Callable[[], None]) -> None:
        self.make = partial(Follower, proc=proc, selector=selector, clock=clock, probes=probes)
        self.clock, self.seen = clock, seen
        self.of: dict[int, Follower] = {}

    def follow(self, job: JobWatch, *, looked: bool = True) -> None:
        """Have what came of a job's files read, if anything did. ``looked``: a look has just told how they stand."""
        fenced(f"job {job.job}: following its output", partial(self._follow, job, looked=looked), None)

    def _follow(self, job: JobWatch, *, looked: bool) -> None:
        follower = self.of.get(job.job)
        if follower and follower.until is not None:
            return
        now = self.clock.boot()
        ask = None if job.dropped else job.logs.ask(job, now, looked=looked)
        if looked:  # what nobody is asked about counts at once
            count(job, {one.ino: None for one in ask.files} if ask else {})
        if ask is None:
            if follower and not job.running():
                self.left(job.job)
            return
        while len(data := ASK_ENCODER.encode(ask)) > MAX_ASK and ask.files:
            job.logs.put_off(ask.files.pop())  # the rest is for the next look
        if not ask.files:  # patterns without end
            count(job, {})
            return
        if follower is None:
            self._make_room()
            follower = self.of[job.job] = self.make(f"follow {job.job}")
        why = follower.ask(data, partial(self._came, job, ask))
        if why and why != BUSY:
            job.logs.miss(ask, why)
            count(job, {})

    def sweep(self) -> None:
        """End those that are late."""
        for follower in list(self.of.values()):
            follower.sweep()

    def next_deadline(self) -> float | None:
        """When ``sweep`` has something to do."""
        return min((f.until for f in self.of.values() if f.until is not None), default=None)

    def left(self, job: int) -> None:
        """The job needs its child no more."""
        follower = self.of.pop(job, None)
        if follower:
            follower.stop()

    def stop(self) -> None:
        """End all."""
        for job in list(self.of):
            self.left(job)

    def _make_room(self) -> None:
        idle = sorted((job for job, one in self.of.items() if one.until is None), key=lambda job: self.of[job].used)
        for job in idle[:max(0, len(self.of) + 1 - MAX_FOLLOWERS)]:
            self.left(job)

    def _came(self, job: JobWatch, ask: FollowAsk, lines: list[bytes], why: str) -> None:
        answers = decoded(lines)
        fenced(f"job {job.job}: what its output says",
               lambda: take(job, ask, answers, self.clock.boot(), why) is None, otherwise=False)
        if job.logs.news:
            job.logs.news = False
            self.seen()


def decoded(lines: Iterable[bytes]) -> list[FileRead | Counted]:
    """An answer's lines; what can't be read is left out."""
    found: list[FileRead | Counted] = []
    for line in lines:
        try:
            found.append(DECODER.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found
