"""How large a gang is, and which of its ranks something is wrong with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scorecard.lookalikes import nothing
from scorecard.people import (
    FAULT,
    gang,
    stuck,
)
from scorecard.stalls import expect
from scorecard.world import FAR, World, every

Made = tuple[World, dict[str, Any], str]
NODES = {2: 2, 8: 2, 64: 8, 256: 32, 1024: 128}
END = 200.0


@dataclass(frozen=True)
class Size:
    """``odd``: the rank that something is wrong with."""

    ranks: int

    @property
    def nodes(self) -> int:
        return NODES[self.ranks]

    @property
    def odd(self) -> int:
        return max(1, self.ranks // 3)

    def gang(self, **more: Any) -> World:
        return gang(self.ranks, self.nodes, **({"end": END} | more))

    def untied(self, **more: Any) -> World:
        """Threads that spin, whose connections are not seen."""
        world = self.gang(output=every(5, FAULT), **more)
        for rank in world.ranks:
            for proc in rank.procs:
                proc.ties, proc.pulse_from = [], FAR
        return world

    def named(self, *, pid: bool = True) -> dict[str, Any]:
        """What a verdict says that names the odd rank."""
        node = f"c{self.odd // (self.ranks // self.nodes) + 1}"
        found = {"rank": self.odd, "worker": f"1001-{self.odd}", "node": node}
        return found | ({"pid": 4000 + self.odd} if pid else {})

    def told(self, title: str, named: bool = True, **more: Any) -> dict[str, Any]:
        who = self.named() if named else {"rank": None, "worker": "1001"}
        return expect(f"{self.ranks} ranks: {title}", **(who | more))

    def well(self, title: str, **more: Any) -> dict[str, Any]:
        return nothing(f"{self.ranks} ranks: {title}", **more)

    def stuck(self) -> World:
        return stuck(self.gang(), odd=(self.odd,))


