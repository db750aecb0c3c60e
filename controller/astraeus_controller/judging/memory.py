"""What a pass remembers from round to round: open findings, their clocks, the keys that a job's findings have had."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import msgspec
from astraeus_protocol.findings import Finding


class Held(msgspec.Struct, frozen=True):
    """What a pass remembers of one job's findings."""

    job: int
    open: dict[str, Finding]
    beats: dict[str, float]
    offsets: dict[str, float]


class Memory:
    """``memory``: the open findings. ``offsets``: Unix time minus the fleet's when each was opened, by key, where
    that is known: a time of day that is set meanwhile is no progress."""

    def __init__(self, memory: Iterable[Finding], offsets: dict[str, float] | None) -> None:
        self._open: dict[str, Finding] = {}
        self._keys: dict[int, dict[str, None]] = {}  # a job's open ones: a sweep asks of each job what of it is open
        self._used: dict[int, dict[str, int]] = {}
        self._beats: dict[str, float] = {}
        self._offsets = dict(offsets or {})
        self.keys_of: Callable[[int], Iterable[str]] = lambda job: ()
        """Keys that a job's findings have had, open or closed: a further stall takes the next number."""
        self.memory = list(memory)

    @property
    def memory(self) -> list[Finding]:
        """The open findings."""
        return list(self._open.values())

    @memory.setter
    def memory(self, findings: list[Finding]) -> None:
        self._open, self._keys = {}, {}
        for finding in findings:
            self._put(finding)
        self._used.clear()

    def offset(self, key: str) -> float | None:
        """Unix time minus the fleet's when this finding was opened; None where it does not matter."""
        return self._offsets.get(key)

    def held(self, job: int) -> Held:
        """What is remembered of a job's findings, to be put back where a change of it can't be stored."""
        found = {finding.key: finding for finding in self._of_job(job)}
        return Held(job, found, {key: self._beats[key] for key in found if key in self._beats},
                    {key: self._offsets[key] for key in found if key in self._offsets})

    def put_back(self, held: Held) -> None:
        """As it was: the next round concludes the same again."""
        for finding in self._of_job(held.job):
            self._drop(finding.key)
        for finding in held.open.values():
            self._put(finding)
        self._beats |= held.beats
        self._offsets |= held.offsets
        self._used.pop(held.job, None)  # read again from what was stored

    def forget_others(self, jobs: Container[int]) -> None:
        """Let go of the keys of all but these jobs; a job that comes back has them read again."""
        for job in [job for job in self._used if job not in jobs]:
            del self._used[job]

    def _keep(self, finding: Finding) -> None:
        base, number = _split(finding.key)
        self._numbers(finding.job)[base] = number
        self._put(finding)

    def _of_job(self, job: int) -> list[Finding]:
        return [self._open[key] for key in self._keys.get(job, ())]

    def _put(self, finding: Finding) -> None:
        self._open[finding.key] = finding
        self._keys.setdefault(finding.job, {})[finding.key] = None

    def _drop(self, key: str) -> None:
        finding = self._open.pop(key, None)
        if finding is not None:
            keys = self._keys[finding.job]
            del keys[key]
            if not keys:
                del self._keys[finding.job]
        self._beats.pop(key, None)
        self._offsets.pop(key, None)

    def _next_key(self, job: int, base: str) -> str:
        used = self._numbers(job).get(base, 0)
        return f"{base}#{used + 1}" if used else base

    def _numbers(self, job: int) -> dict[str, int]:
        """Base of a key to the last number that was used with it."""
        if job not in self._used:
            used = self._used[job] = {}
            for key in [*self.keys_of(job), *self._keys.get(job, ())]:
                base, number = _split(key)
                used[base] = max(used.get(base, 0), number)
        return self._used[job]


def _split(key: str) -> tuple[str, int]:
    base, _, number = key.partition("#")
    return base, int(number) if number.isdigit() else 1
