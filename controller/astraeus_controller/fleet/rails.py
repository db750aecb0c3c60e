"""What the fleet knows of RDMA rails, class by class: whom a job's rails are compared with.

Kept per node and not per job: a node that nothing runs on now is as good a peer. Counted as reports come, for a
picture is made at each report and the rails of 2,000 nodes are not to be walked for it.
"""

from __future__ import annotations

from collections import Counter

from astraeus_protocol import report as wire
from astraeus_protocol.devices import Rail

from ..rules.picture import RailClass
from ..rules.rails import is_up, place_of


class _Class:
    def __init__(self) -> None:
        self.rates: Counter[float] = Counter()
        self.up: Counter[str] = Counter()
        self.down: Counter[str] = Counter()

    def count(self, rail: Rail, by: int) -> None:
        up = is_up(rail)
        if up is None:
            return
        counter = self.up if up else self.down
        counter[place_of(rail)] += by
        if up and rail.rate_gb:
            self.rates[rail.rate_gb] += by


class RailBook:
    """The compute rails of every node that the fleet holds."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Rail]] = {}
        self.classes: dict[str, _Class] = {}

    def learn(self, report: wire.Report) -> None:
        """Take a node's rails in: they are the same in each of its jobs. A report without any tells nothing."""
        rails = next((job.rails for job in report.jobs if job.rails), None)
        if rails is not None:
            self._put(report.node, [rail for rail in rails if rail.compute])

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._put(node, [])

    def views(self, kinds: set[str], rates: dict[str, float]) -> dict[str, RailClass]:
        """The classes asked for; ``rates``: what the site says that each is made for, Gb/s."""
        found = {}
        for kind in kinds:
            known = self.classes.get(kind, _Class())
            found[kind] = RailClass(rates.get(kind), dict(known.rates), dict(known.up), dict(known.down))
        return found

    def _put(self, node: str, rails: list[Rail]) -> None:
        before = self.nodes.get(node, [])
        for rail in before:
            self.classes[rail.kind].count(rail, -1)
        for rail in rails:
            self.classes.setdefault(rail.kind, _Class()).count(rail, 1)
        for kind in {rail.kind for rail in before}:
            held = self.classes[kind]
            held.rates, held.up, held.down = +held.rates, +held.up, +held.down
            if not (held.up or held.down):
                del self.classes[kind]
        if rails:
            self.nodes[node] = rails
        else:
            self.nodes.pop(node, None)
