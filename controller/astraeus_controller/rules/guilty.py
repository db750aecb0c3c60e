"""Who is guilty (docs/rules.md, "Who is guilty"): the first evidence that names a minority."""

from __future__ import annotations

from collections.abc import Callable

from .edges import by_edges
from .gang import Gang, Sign
from .late import by_work
from .places import by_idleness, by_place
from .ras import by_ras
from .stacks import by_stacks

ORDER = ("T", "Z", "gone", "D")


def culprits(gang: Gang) -> tuple[Sign, ...]:
    """The members that stand out; empty where nobody does. Nobody is named while the majority has its pulse, or under
    a debugger."""
    if gang.traced or gang.beats:
        return ()
    found = by_state(gang)
    if found or not gang.waits:
        return found
    return next((named for evidence in EVIDENCE if (named := evidence(gang))), ())


def by_state(gang: Gang) -> tuple[Sign, ...]:
    """The members in an odd state, the earliest first.

    The kinds are asked in order; the first that holds a minority of the gang names it. Half of the gang or
    more is no minority, but for a pair: of two, the one in an odd state is what the other waits for (a gang
    of two with one rank stopped was first left unnamed, which helped nobody).
    """
    for kind in ORDER:
        found = [sign for sign in gang.signs if sign.kind == kind]
        if found and (2 * len(found) < len(gang.members) or (len(found), len(gang.members)) == (1, 2)):
            return tuple(sorted(found, key=_earliest_first))
    return ()


Evidence = Callable[[Gang], tuple[Sign, ...]]
EVIDENCE: tuple[Evidence, ...] = (by_ras, by_work, by_place, by_idleness, by_edges, by_stacks)
"""Asked in this order where states name nobody, and only once the pulse of most others is gone. Whoever adds one says
by ``Sign.words`` what it saw."""


def _earliest_first(sign: Sign) -> tuple[float, int, int]:
    age = sign.age if sign.age is not None else 0.0
    return (-age, sign.member.worker.rank, sign.member.process.local)
