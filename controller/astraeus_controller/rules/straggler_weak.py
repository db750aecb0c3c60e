"""Signs that something may hold the gang back (docs/rules.md, "straggler"): alone, only "at risk"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from astraeus_protocol.devices import Gpu

from .limits import (
    BUSIER_POINTS,
    ECC_CORRECTED_MIN,
    OWN_FAULT_XIDS,
    OWN_POWER_SHARE,
    SLOWDOWN_NEAR_C,
    SPIN_BUSY,
    WAITS_POWER_SHARE,
    XIDS_SAID,
)
from .picture import GpuView, WorkerView
from .readings import writes
from .straggler_cards import Card
from .straggler_sign import WEAK, Sign
from .straggler_time import median_without, rhythm

FAULTS = {"ecc_uncorrected": "uncorrectable ECC errors", "ecc_corrected": "corrected ECC errors",
          "remapped_rows": "remapped rows", "remap_pending": "a row remap pending",
          "remap_failed": "a failed row remap"}
FLAGS = ("remap_pending", "remap_failed")


def signs(workers: Sequence[WorkerView], cards: Iterable[Card]) -> list[Sign]:
    """Of GPUs first; then of how the workers work, which says nothing while somebody saves a checkpoint."""
    found = [sign for worker, gpu in cards if (told := gpu.told) is not None
             and (told.errors or told.xids or (told.temp_c is not None and told.slowdown_c is not None
                                               and told.temp_c > told.slowdown_c - SLOWDOWN_NEAR_C))
             for sign in _card(worker, gpu, told)]
    if any(writes(worker) for worker in workers):
        return found
    return found + _busier(workers) + _awaited(workers) + rhythm(workers)


def _card(worker: WorkerView, gpu: GpuView, told: Gpu) -> Iterator[Sign]:
    if told.temp_c is not None and told.slowdown_c is not None and told.temp_c > told.slowdown_c - SLOWDOWN_NEAR_C:
        yield Sign(worker, WEAK, "hot", f"GPU {gpu.index} is close to its slowdown: {told.temp_c:.0f} °C of "
                   f"{told.slowdown_c:.0f} °C", 1, gpu.looked_at, gpu.index, told.uuid,
                   {"temp_c": told.temp_c, "slowdown_c": told.slowdown_c})
    if words := _faults(told):
        yield Sign(worker, WEAK, "faults", f"GPU {gpu.index} has had {words} in this job", 1, gpu.looked_at,
                   gpu.index, told.uuid, {"errors": dict(told.errors), "xids": list(told.xids)})


def _faults(told: Gpu) -> str:
    """``uncorrectable ECC errors +4, Xid 63``; single bits that were corrected are part of a healthy memory."""
    parts = [words if name in FLAGS else f"{words} +{told.errors[name]}" for name, words in FAULTS.items()
             if told.errors.get(name, 0) >= (ECC_CORRECTED_MIN if name == "ecc_corrected" else 1)]
    xids = sorted(set(told.xids) - OWN_FAULT_XIDS)
    return ", ".join(parts + ([f"Xid {', '.join(map(str, xids[:XIDS_SAID]))}"] if xids else []))


def _busier(workers: Sequence[WorkerView]) -> list[Sign]:
    """Its GPUs work while the others' wait for them. One that itself waits is as busy, but at little power: NCCL's
    kernels spin. Rank 0 alone evaluates and saves in a healthy run."""
    known = [(worker, busy) for worker in workers if (busy := _mean(worker, "busy")) is not None]
    whole = sorted(busy for _, busy in known)
    if len(whole) < 2 or whole[-1] - whole[0] < BUSIER_POINTS:
        return []
    drawn = sorted(power for worker, _ in known if (power := _mean(worker, "power_w")) is not None)
    found = []
    for worker, busy in known:
        usual = median_without(whole, busy)
        if not worker.rank or busy - usual < BUSIER_POINTS or not _at_usual_power(worker) or len(drawn) < 2:
            continue
        power = _mean(worker, "power_w") or 0.0
        others = median_without(drawn, power)
        if power > others:
            found.append(Sign(
                worker, WEAK, "busier", f"its GPUs are {busy:.0f} % busy against {usual:.0f} % across the gang, at "
                f"{power:.0f} W against {others:.0f} W: the others seem to wait for it", 1, _looked(worker),
                numbers={"busy": busy, "usual_busy": usual, "power_w": power, "usual_power_w": others}))
    return found


def _awaited(workers: Sequence[WorkerView]) -> list[Sign]:
    """Most spin at little power, as who waits for a collective does; who works on at its usual power does not wait."""
    spinning = {worker.rank for worker in workers if _spins(worker)}
    if 2 * len(spinning) <= len(workers):
        return []
    return [Sign(worker, WEAK, "awaited", f"its GPUs work at their usual power while {len(spinning)} of "
                 f"{len(workers) - 1} others spin: they seem to wait for it", 1, _looked(worker),
                 numbers={"spinning": len(spinning)})
            for worker in workers if worker.rank and worker.rank not in spinning and _at_usual_power(worker)
            and (_mean(worker, "busy") or 0.0) >= BUSIER_POINTS]


def _spins(worker: WorkerView) -> bool:
    for gpu in worker.gpus:
        one = gpu.told
        if one is None or one.busy is None or one.busy < SPIN_BUSY or one.power_w is None or one.power_usual_w is None:
            return False
        if one.power_w > WAITS_POWER_SHARE * one.power_usual_w:
            return False
    return bool(worker.gpus)


def _at_usual_power(worker: WorkerView) -> bool:
    """Known to draw about what it usually does while it progresses."""
    told = [gpu.told for gpu in worker.gpus if gpu.told is not None]
    return bool(told) and all(one.power_w is not None and one.power_usual_w is not None
                              and one.power_w >= OWN_POWER_SHARE * one.power_usual_w for one in told)


def _mean(worker: WorkerView, field: str) -> float | None:
    """Over its GPUs; None as soon as one is unknown."""
    total = 0.0
    for gpu in worker.gpus:
        value = None if gpu.told is None else getattr(gpu.told, field)
        if value is None:
            return None
        total += value
    return total / len(worker.gpus) if worker.gpus else None


def _looked(worker: WorkerView) -> float:
    return max((gpu.looked_at for gpu in worker.gpus), default=0.0)
