"""GPUs that are slowed down (docs/rules.md, "straggler"): what their driver says of their clocks, at two looks."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from astraeus_protocol.devices import Gpu

from .limits import (
    CAPPED_DRAW_SHARE,
    CLOCK_BUSY_PERCENT,
    CLOCK_SHARE,
    HELD_SHARE,
    LIMIT_SHARE,
)
from .picture import GpuView
from .straggler_cards import Card
from .straggler_sign import GPU, Sign

SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
"""Bits of NVML's nvmlClocksEventReasons."""
ODD = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE
HELD = (("heat", HW_THERMAL | SW_THERMAL, ("hw_thermal", "sw_thermal")),
        ("power", POWER_BRAKE, ("hw_power_brake",)),
        ("hardware", HW_SLOWDOWN, ()))
"""Kind, its bits, the driver's counters of time. HW slowdown comes with its cause where that is known: asked last."""
COUNTERS = frozenset(name for _, _, counters in HELD for name in counters)
WORDS = {"heat": "slowed down by heat", "power": "slowed down by power", "hardware": "slowed down by the hardware",
         "clock": "runs slowly"}


class Like(msgspec.Struct, frozen=True):
    """What is usual among the gang's GPUs of one make (the same highest SM clock); None: not known."""

    mhz: float | None = None
    """Median SM clock of the busy ones, and at the look before."""
    mhz_before: float | None = None
    power_w: float | None = None
    limit_w: float | None = None


def signs(of: Iterable[Card]) -> list[Sign]:
    """Every GPU that is slowed down, one sign for each way."""
    cards = [(worker, gpu, gpu.told) for worker, gpu in of
             if gpu.told is not None and (gpu.told.sm_mhz is not None or gpu.told.reasons is not None)]
    if not cards:
        return []
    makes: dict[float | None, list[GpuView]] = defaultdict(list)
    for _, gpu, told in cards:
        makes[told.sm_max_mhz].append(gpu)
    slow = {make: _slow_below(some) for make, some in makes.items()}
    odd = [(worker, gpu, told) for worker, gpu, told in cards if _odd(told, *slow[told.sm_max_mhz])]
    if not odd:
        return []
    usual = {make: like(some) for make, some in makes.items()}
    return [Sign(worker, GPU, kind, f"GPU {gpu.index} {WORDS[kind]}: {words}", weight, gpu.looked_at, gpu.index,
                 told.uuid, numbers(told, usual[told.sm_max_mhz]))
            for worker, gpu, told in odd
            for kind, words, weight in _slowed(gpu, told, usual[told.sm_max_mhz])]


def _slow_below(some: Sequence[GpuView]) -> tuple[float, float]:
    """(MHz, W): none of these is slow at more, nor limited more than its peers, for a median is no more than the
    highest."""
    told = [gpu.told for gpu in some if gpu.told is not None]
    return (CLOCK_SHARE * max((one.sm_mhz or 0.0 for one in told), default=0.0),
            LIMIT_SHARE * max((one.limit_w or 0.0 for one in told), default=0.0))


def _odd(told: Gpu, mhz: float, limit_w: float) -> bool:
    """Whether it is worth a closer look: of a healthy gang at its power limit none is."""
    reasons = told.reasons or 0
    if reasons & ODD or (told.sm_mhz or 0.0) < mhz or (told.held_s and not COUNTERS.isdisjoint(told.held_s)):
        return True
    return bool(reasons & SW_POWER_CAP) and (
        (told.limit_w or 0.0) < limit_w or (told.power_w or 0.0) <= CAPPED_DRAW_SHARE * (told.limit_w or 0.0))


def like(some: Sequence[GpuView]) -> Like:
    """What is usual among these."""
    told = [gpu.told for gpu in some if gpu.told is not None]
    before = [gpu.before for gpu in some if gpu.before is not None]
    busy = [one for one in told if is_busy(one)]
    return Like(_median(one.sm_mhz for one in busy), _median(one.sm_mhz for one in before if is_busy(one)),
                _median(one.power_w for one in busy), _median(one.limit_w for one in told))


def is_busy(gpu: Gpu) -> bool:
    """So busy that its clock tells how fast it works."""
    return gpu.busy is not None and gpu.busy >= CLOCK_BUSY_PERCENT


def numbers(told: Gpu, usual: Like) -> dict[str, object]:
    """Readings, for the evidence; what is not known is left out."""
    found = {"sm_mhz": told.sm_mhz, "usual_mhz": usual.mhz, "temp_c": told.temp_c, "power_w": told.power_w,
             "limit_w": told.limit_w, "usual_power_w": usual.power_w, "busy": told.busy, "reasons": told.reasons}
    return {name: value for name, value in found.items() if value is not None}


def _slowed(gpu: GpuView, told: Gpu, usual: Like) -> Iterator[tuple[str, str, float]]:
    """(kind, words, weight) of each way in which it is slowed down."""
    ratio = usual.mhz / told.sm_mhz if usual.mhz and told.sm_mhz else 1
    clock = f"{told.sm_mhz:.0f} MHz against {usual.mhz:.0f} MHz across the gang" if (
        told.sm_mhz is not None and usual.mhz is not None and told.sm_mhz < usual.mhz) else ""
    seen = ""
    for kind, bits, counters in HELD:
        counted = _counted(gpu, told, counters)
        if (_at_both(gpu, told, bits) and not (kind == "hardware" and seen)) or counted:
            seen = kind
            extra = _heat(told) if kind == "heat" else _power(told, usual) if kind == "power" else ""
            yield kind, ", ".join(filter(None, (clock, extra, counted))) or "its driver says so", ratio
    if seen != "power" and (words := _capped(gpu, told, usual)):
        yield "power", ", ".join(filter(None, (clock, words))), ratio
    elif not seen and _slow(told, usual.mhz) and gpu.before is not None and _slow(gpu.before, usual.mhz_before):
        yield "clock", clock, ratio


def _at_both(gpu: GpuView, told: Gpu, bits: int) -> bool:
    """At this look and the one before one of these bits was set."""
    return bool((told.reasons or 0) & bits and gpu.before is not None and (gpu.before.reasons or 0) & bits)


def _counted(gpu: GpuView, told: Gpu, counters: Sequence[str]) -> str:
    """``40 % of the time``: the driver's counters of time grew so between the looks; "" by what can't be felt."""
    if gpu.before is None or gpu.apart_s <= 0:
        return ""
    grew = max((told.held_s.get(name, 0.0) - gpu.before.held_s[name] for name in counters if name in gpu.before.held_s),
               default=0.0) / gpu.apart_s
    return f"{min(grew, 1):.0%} of the time".replace("%", " %") if grew >= HELD_SHARE else ""


def _capped(gpu: GpuView, told: Gpu, usual: Like) -> str:
    """Its power is capped, and not because it draws all that it may: that is how a healthy one under load is."""
    before = gpu.before
    if not (_at_both(gpu, told, SW_POWER_CAP) and is_busy(told) and before is not None):
        return ""
    if told.limit_w and usual.limit_w and told.limit_w < LIMIT_SHARE * usual.limit_w:
        return f"its limit is {told.limit_w:.0f} W, {usual.limit_w:.0f} W across the gang"
    if all(one.power_w is not None and one.limit_w and one.power_w <= CAPPED_DRAW_SHARE * one.limit_w
           for one in (told, before)):
        return _power(told, usual)
    return ""


def _slow(told: Gpu, usual: float | None) -> bool:
    return is_busy(told) and told.sm_mhz is not None and usual is not None and told.sm_mhz < CLOCK_SHARE * usual


def _heat(told: Gpu) -> str:
    return f"{told.temp_c:.0f} °C" if told.temp_c is not None else ""


def _power(told: Gpu, usual: Like) -> str:
    """``150 W of its 300 W, 300 W across the gang``"""
    if told.power_w is None:
        return ""
    of = f" of its {told.limit_w:.0f} W" if told.limit_w else ""
    return f"{told.power_w:.0f} W{of}" + (f", {usual.power_w:.0f} W across the gang" if usual.power_w else "")


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
