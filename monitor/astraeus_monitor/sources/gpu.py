"""Source ``gpu``: what a driver told of one GPU, and what a job's attempt makes of it: clocks, deltas, usual power.

A driver's answer comes from a child (``probes.gpus``); nothing here asks one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from astraeus_protocol import report

BUSY_PERCENT = 5.0
"""A GPU is busy from here on."""
USUAL_MIN, USUAL_MAX = 20, 60
"""Samples of power while its worker progressed, before their median says anything; how many are kept."""
XIDS_MAX = 16
"""Of an attempt, the newest."""
FLAGS = ("remap_pending", "remap_failed")
"""Among the counters: what holds now, not what grew."""
NS = 1e9


class Slow(msgspec.Struct, omit_defaults=True):
    """What seldom changes: read each minute. None: not told."""

    sm_max_mhz: float | None = None
    slowdown_c: float | None = None
    limit_w: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks_down: list[int] = []
    pids: list[int] | None = None
    held: dict[str, int] = {}
    """Nanoseconds since the driver was loaded, by reason."""
    counts: dict[str, int] = {}
    """ecc_corrected, ecc_uncorrected, remapped_rows since the driver was loaded, or longer; and ``FLAGS``."""
    mig: list[str] | None = None
    """UUIDs of its instances; None: it is not divided."""
    unknown: dict[str, str] = {}


class Reading(msgspec.Struct, omit_defaults=True):
    """One GPU as the driver told. None: not told, and ``unknown`` says why."""

    index: int
    """Slurm's index: the driver's minor number."""
    uuid: str = ""
    busy: float | None = None
    """Percent, the highest sample since the reading before."""
    fault: str = ""
    """Why nothing is told of it."""
    sm_mhz: float | None = None
    reasons: int | None = None
    temp_c: float | None = None
    power_w: float | None = None
    xids: list[int] = []
    """Since the reading before."""
    unknown: dict[str, str] = {}
    """Name of a reading to why it is not known."""
    slow: Slow | None = None
    """None: not read this time."""


class Answer(msgspec.Struct, omit_defaults=True):
    """All GPUs of the node, or why there are none."""

    gpus: list[Reading] = []
    fault: str = ""


DECODER = msgspec.json.Decoder(Answer)


class Grown:
    """How much counters grew in this attempt. One that falls (its driver was loaded anew) goes on from there."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.grown: dict[str, int] = {}

    def see(self, counts: dict[str, int]) -> None:
        """Take counters in; the first time tells where each stood when the watch began."""
        for name, value in counts.items():
            more = value - self.last.get(name, value)
            if more > 0:
                self.grown[name] = self.grown.get(name, 0) + more
            self.last[name] = value

    def save(self) -> list[dict[str, int]]:
        """For the clock file."""
        return [self.last, self.grown]

    def load(self, saved: list[dict[str, int]]) -> None:
        """From the clock file."""
        self.last, self.grown = ({str(name): int(n) for name, n in part.items()} for part in saved)


class GpuClock:
    """One GPU of a job in this attempt. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, index: int, base: float) -> None:
        self.index, self.busy_at = index, base
        self.uuid = ""
        self.ever_busy = False
        self.fault = "not read yet"
        """Why it is not known how busy it is."""
        self.seen_at = base
        self.reading: Reading | None = None
        """The last one; None where the driver told nothing of it."""
        self.before: Reading | None = None
        self.slow = Slow()
        self.errors, self.held = Grown(), Grown()
        self.xids: list[int] = []
        self.powers: list[int] = []
        """Watts while its worker progressed."""
        self.powers_at = 0
        self.usual: float | None = None

    def see(self, reading: Reading, now: float, *, progresses: bool = False) -> None:
        """Take a reading in. ``progresses``: a worker that has it is known to progress."""
        self.before = self.reading
        self.uuid = reading.uuid or self.uuid
        self.fault = reading.fault or reading.unknown.get("busy", "")
        if reading.busy is None:
            self.fault = self.fault or "the driver does not tell how busy it is"
        self.xids = [*self.xids, *reading.xids][-XIDS_MAX:]
        if reading.fault:
            self.reading = None
            return
        self.reading, self.seen_at = reading, now
        if reading.slow:
            self.slow = reading.slow
            self.errors.see({name: n for name, n in self.slow.counts.items() if name not in FLAGS})
            self.held.see(self.slow.held)
        if reading.busy is not None and reading.busy >= BUSY_PERCENT:
            self.busy_at, self.ever_busy = now, True
            if progresses and reading.power_w is not None:
                self._power(round(reading.power_w))

    def miss(self, why: str) -> None:
        """The driver told nothing."""
        self.reading, self.fault = None, why

    def _power(self, watts: int) -> None:
        if len(self.powers) < USUAL_MAX:
            self.powers.append(watts)
        else:
            self.powers[self.powers_at % USUAL_MAX] = watts
        self.powers_at += 1
        self.usual = self._median()

    def _median(self) -> float | None:
        count = len(self.powers)
        if count < USUAL_MIN:
            return None
        ordered = sorted(self.powers)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2

    def record(self, now: float, mig: str = "") -> report.Gpu:
        """For the report: unknown while the driver tells nothing."""
        known, seen, slow = not self.fault, self.reading, self.slow
        told = report.Gpu(
            index=self.index, uuid=self.uuid, busy=seen.busy if known and seen else None,
            idle_s=round(now - self.busy_at, 2) if known else None, ever_busy=self.ever_busy,
            looked_s=round(now - self.seen_at, 2) if known else 0, mig=mig,
            held_s={name: round(ns / NS, 1) for name, ns in self.held.grown.items()},
            power_usual_w=self.usual, xids=self.xids,
            errors=self.errors.grown | {name: 1 for name in FLAGS if slow.counts.get(name)})
        if seen is None:
            told.unknown = {"busy": self.fault}
            return told
        if self.before:
            told.busy_before, told.power_before_w = self.before.busy, self.before.power_w
        told.sm_mhz, told.reasons, told.temp_c, told.power_w = seen.sm_mhz, seen.reasons, seen.temp_c, seen.power_w
        told.sm_max_mhz, told.slowdown_c, told.limit_w = slow.sm_max_mhz, slow.slowdown_c, slow.limit_w
        told.pcie_gen, told.pcie_gen_max = slow.pcie_gen, slow.pcie_gen_max
        told.pcie_width, told.pcie_width_max = slow.pcie_width, slow.pcie_width_max
        told.nvlinks_down, told.pids = slow.nvlinks_down, slow.pids
        told.unknown = slow.unknown | seen.unknown if slow.unknown else seen.unknown
        return told

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"busy_at": self.busy_at, "ever": self.ever_busy, "uuid": self.uuid, "powers": self.powers,
                "powers_at": self.powers_at, "errors": self.errors.save(), "held": self.held.save(),
                "xids": self.xids}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.busy_at, self.ever_busy = float(saved["busy_at"]), bool(saved["ever"])
        self.uuid = str(saved["uuid"])
        if "powers" not in saved:
            return
        self.powers = [int(watts) for watts in saved["powers"]][:USUAL_MAX]
        self.powers_at, self.usual = int(saved["powers_at"]), self._median()
        self.errors.load(saved["errors"])
        self.held.load(saved["held"])
        self.xids = [int(xid) for xid in saved["xids"]][-XIDS_MAX:]
