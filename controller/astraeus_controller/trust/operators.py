"""Who is an operator: whom Slurm's accounting makes one, asked now and then, and whom the site names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ..slurm.command import Away, Commands, Refused

log = logging.getLogger(__name__)
FRESH_S, AGAIN_S = 600.0, 60.0
LEVELS = ("Operator", "Administrator")


class Operators:
    """``names``: those of the site's own list. What accounting said last holds while it does not answer."""

    def __init__(self, commands: Commands, names: Iterable[str]) -> None:
        self.commands, self.own = commands, frozenset(names)
        self.of_slurm: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        return self.own | self.of_slurm

    async def read(self) -> bool:
        """Ask accounting; whether it answered. A site without accounting has none there."""
        try:
            text = await self.commands.run("sacctmgr", "-n", "-P", "show", "user", "format=User,AdminLevel")
        except Refused:
            self.of_slurm = frozenset()
            return True
        except Away as fault:
            log.info("who is an operator can't be read now: %s", fault)
            return False
        rows = (line.split("|") for line in text.splitlines())
        self.of_slurm = frozenset(row[0] for row in rows if len(row) == 2 and row[1].strip() in LEVELS)
        return True

    async def run(self) -> None:
        """Keep them known."""
        while True:
            await asyncio.sleep(FRESH_S if await self.read() else AGAIN_S)
