"""Links of which something is off (docs/rules.md, "straggler"): ``rules.rails`` says what."""

from __future__ import annotations

from collections.abc import Sequence

from . import rails
from .limits import RAIL_GROWING_S
from .picture import JobView, WorkerView
from .straggler_sign import LINK, Sign


def signs(job: JobView, workers: Sequence[WorkerView]) -> list[Sign]:
    """Every rail that something is off with, of the gang's nodes, said of the first worker there: whose data goes over
    it can't be told. Nothing of a gang on one node, which needs none."""
    first: dict[str, WorkerView] = {}
    for worker in sorted(workers, key=lambda worker: worker.rank):
        first.setdefault(worker.node, worker)
    if len(first) < 2:
        return []
    return [Sign(first[one.node], LINK, one.sign, one.words, _weight(one), numbers={
                 "device": one.device, "port": one.port, "node": one.node, **one.numbers})
            for one in rails.signs(job) if one.node in first]


def unread(job: JobView) -> set[str]:
    """Nodes whose rails can't be told of now."""
    old = {view.node for view in job.rails if view.rail.looked_s > RAIL_GROWING_S}
    return old | {node for node, _ in job.rails_unknown}


def _weight(of: rails.Sign) -> float:
    """A link that is down holds back the most; else by how much slower it is than it is made for."""
    if of.sign == rails.DOWN:
        return float("inf")
    made, rate = of.numbers.get("made_for_gb"), of.numbers.get("rate_gb")
    return made / rate if made and rate else 1
