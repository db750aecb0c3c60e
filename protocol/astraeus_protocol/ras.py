"""Who is behind in a communicator, by the operations that its ranks have launched. Pure."""

from __future__ import annotations

from .devices import RasComm, RasGroup

Groups = list[RasGroup]


def behind(comm: RasComm) -> tuple[Groups, Groups]:
    """(those that launched the fewest operations, those that launched more and wait for them).

    Where all launched as many, but not the same ones, who is with a minority is behind. Both empty where all are at
    the same place, or where halves stand against each other.
    """
    groups = comm.groups
    if len(groups) < 2:
        return [], []
    totals = [sum(group.counts.values()) for group in groups]
    low = min(totals)
    if max(totals) > low:
        return ([g for g, total in zip(groups, totals, strict=True) if total == low],
                [g for g, total in zip(groups, totals, strict=True) if total > low])
    most = max(groups, key=lambda group: group.n)
    if 2 * most.n <= sum(group.n for group in groups):
        return [], []
    return [group for group in groups if group is not most], [most]
