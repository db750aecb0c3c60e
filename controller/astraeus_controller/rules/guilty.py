"""Who is guilty (docs/rules.md, "Who is guilty"): by state alone, and only where that names a minority."""

from __future__ import annotations

from .gang import Gang, Sign

ORDER = ("T", "Z", "gone", "D")


def culprits(gang: Gang) -> tuple[Sign, ...]:
    """The members that stand out, the earliest first; empty where nobody does.

    The kinds are asked in order; the first that holds a minority of the gang names it. Half of the gang or
    more is no minority, but for a pair: of two, the one in an odd state is what the other waits for (a gang
    of two with one rank stopped was first left unnamed, which helped nobody). Nobody is named while the
    majority has its pulse, or under a debugger.
    """
    if gang.traced or gang.beats:
        return ()
    for kind in ORDER:
        found = [sign for sign in gang.signs if sign.kind == kind]
        if found and (2 * len(found) < len(gang.members) or (len(found), len(gang.members)) == (1, 2)):
            return tuple(sorted(found, key=_earliest_first))
    return ()


def _earliest_first(sign: Sign) -> tuple[float, int, int]:
    age = sign.age if sign.age is not None else 0.0
    return (-age, sign.member.worker.rank, sign.member.process.local)
