"""The look before the last one at each GPU: a clock that is held at one look only is none that holds a gang back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from astraeus_protocol import report as wire

if TYPE_CHECKING:
    from .state import StepMemory

APART_S = 4.0
"""A suspect job reports every 2 s what one look saw: a look is another one from here on."""
LATELY_S = 150.0
"""A look so much older than the last one tells nothing beside it."""


class GpuLook(msgspec.Struct):
    """``at``: CLOCK_BOOTTIME seconds of the last look; ``last``, ``before``: what it and the one before it saw."""

    at: float
    last: wire.Gpu
    before: wire.Gpu | None = None
    apart_s: float = 0.0


def learn(memory: StepMemory, workers: Iterable[wire.Worker], now: float) -> None:
    """Take in what a report says of GPUs that tell more than how busy they are."""
    for worker in workers:
        for gpu in worker.gpus:
            if gpu.sm_mhz is None and gpu.reasons is None:
                continue
            at, key = now - gpu.looked_s, (worker.rank, gpu.index)
            look = memory.gpus.get(key)
            if look is None or look.last.uuid != gpu.uuid:
                memory.gpus[key] = GpuLook(at, gpu)
            elif at - look.at >= APART_S:
                near = at - look.at <= LATELY_S
                memory.gpus[key] = GpuLook(at, gpu, look.last if near else None, at - look.at if near else 0.0)


def before(memory: StepMemory, rank: int, gpu: wire.Gpu) -> tuple[wire.Gpu | None, float]:
    """(the look before the last one at this GPU, seconds between them)."""
    look = memory.gpus.get((rank, gpu.index)) if gpu.sm_mhz is not None or gpu.reasons is not None else None
    return (look.before, look.apart_s) if look else (None, 0.0)
