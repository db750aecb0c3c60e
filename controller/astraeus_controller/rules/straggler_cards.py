"""Whose GPU is whose: each once, with the worker that works on it.

Tasks of a step that are not bound to GPUs of their own see all of their node's, and each of them reports all: a GPU
slowed down by heat would make stragglers of eight workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .picture import GpuView, WorkerView

Card = tuple[WorkerView, GpuView]


def cards_of(workers: Sequence[WorkerView]) -> list[Card]:
    """Every GPU of the gang once: with the worker whose process has a context on it; where that is not known and a node
    has as many workers as GPUs, with the one of the same place among them; else with the first that sees it."""
    by_node: dict[str, list[WorkerView]] = defaultdict(list)
    for worker in workers:
        if worker.gpus:
            by_node[worker.node].append(worker)
    found: list[Card] = []
    for some in by_node.values():
        if len(some) == 1:
            found += [(some[0], gpu) for gpu in some[0].gpus]
            continue
        seen: dict[int, list[Card]] = defaultdict(list)
        for worker in some:
            for gpu in worker.gpus:
                seen[gpu.index].append((worker, gpu))
        for place, index in enumerate(sorted(seen)):
            of = seen[index]
            found.append(of[0] if len(of) == 1 else _whose(of, of[place] if len(of) == len(seen) else of[0]))
    return found


def _whose(of: Sequence[Card], usual: Card) -> Card:
    """The one of these whose process the driver names."""
    for worker, gpu in of:
        pids = gpu.told.pids if gpu.told is not None and gpu.told.pids is not None else []
        if worker.pid in pids or any(process.pid in pids for process in worker.processes):
            return worker, gpu
    return usual
