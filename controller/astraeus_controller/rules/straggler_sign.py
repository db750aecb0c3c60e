"""One sign that a worker holds its gang back; what several share; the units in which sharing is counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from .picture import WorkerView

TIME, GPU, LINK, WEAK = "time", "gpu", "link", "weak"
ORDER = (TIME, GPU, LINK, WEAK)
"""Classes of signs, the strongest first. ``weak`` alone names no straggler."""
WEAK_KINDS = ("faults", "hot", "busier", "awaited", "rhythm")
"""The surest first; in the other classes what stands out most is."""


class Sign(msgspec.Struct, frozen=True):
    """``kind``: iteration; heat, power, hardware, clock; down, rate, errors, miswired; hot, faults, busier, awaited,
    rhythm."""

    worker: WorkerView
    cls: str
    kind: str
    words: str
    """``GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across the gang, 92 °C``"""
    weight: float = 1
    """How far it stands out, beside signs of its kind: the greater the further."""
    at: float = 0.0
    """Unix time of the look that it rests on; 0: of a state that lasts."""
    gpu: int | None = None
    uuid: str = ""
    numbers: dict[str, object] = {}

    @property
    def strength(self) -> tuple[int, int, float, int]:
        """Signs are sorted by it, the strongest first."""
        kind = WEAK_KINDS.index(self.kind) if self.cls == WEAK else 0
        return ORDER.index(self.cls), kind, -self.weight, self.worker.rank

    def evidence(self) -> dict[str, object]:
        """For the finding's details."""
        where: dict[str, object] = {} if self.gpu is None else {"gpu": self.gpu, "uuid": self.uuid}
        return {"class": self.cls, "kind": self.kind, "words": self.words} | where | self.numbers


def unshared(signs: Sequence[Sign], workers: Sequence[WorkerView], gpus: int) -> list[Sign]:
    """The signs of a kind that at most half of the gang has: what most share holds nobody back beside the others.

    Workers are counted; of GPUs' signs the GPUs, too (``gpus``: how many it has), which is all that tells in a gang of
    one worker; of links the nodes.
    """
    by_kind: dict[tuple[str, str], list[Sign]] = defaultdict(list)
    for sign in signs:
        by_kind[sign.cls, sign.kind].append(sign)
    nodes = len({worker.node for worker in workers})
    found = []
    for (cls, _), some in by_kind.items():
        if cls == LINK:  # a node's link is said of one of its workers
            found += some if 2 * len({sign.worker.node for sign in some}) <= nodes else []
            continue
        ranks = len({sign.worker.rank for sign in some})
        cards = len({(sign.worker.rank, sign.gpu) for sign in some if sign.gpu is not None})
        if (len(workers) > 1 and 2 * ranks > len(workers)) or (cards and 2 * cards > gpus):
            continue
        if len(workers) > 1 or cards:
            found += some
    return found
