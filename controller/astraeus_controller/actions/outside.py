"""What a restart needs of the rest: what is live, the way to the monitors, and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from astraeus_protocol.findings import Finding, Incident

from ..rules.picture import Picture


class Stops(Protocol):
    """The way of commands to the monitors, through the replies to their reports."""

    def begin(self, job: int, restarts: int, lines: dict[str, str]) -> None:
        """Ask every node of this attempt to write the stop file."""

    def end(self, job: int) -> None:
        """Ask no more."""

    def known(self, job: int) -> bool:
        """A node of the job has reported."""

    def acknowledged(self, job: int) -> bool:
        """Every node of the job has written it."""

    def quiet_s(self, job: int) -> float:
        """Seconds for which a node of the job has not been heard; infinite where none is known."""

    def attempt_reported(self, job: int, restarts: int) -> bool:
        """A node has reported an attempt with at least this restart count."""


class Clocks(msgspec.Struct, frozen=True):
    """Time for the restarts: ``wall`` Unix seconds, ``steady`` for waits."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class View(Protocol):
    """What is live, as the service knows it."""

    def picture(self, job: int) -> Picture | None: ...

    def watched_jobs(self) -> int: ...

    def stalled_of(self, job: int) -> list[Finding]: ...

    def stalled_lately(self) -> int: ...

    def incident(self, job: int) -> Incident | None: ...
