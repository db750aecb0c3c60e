"""Who is late by PyTorch's own numbers: the last work that each rank enqueued, out of its watchdog's words. Pure.

Ranks run ahead of their GPUs by as many operations as they like, so those that wait differ, too. Late is who has not
enqueued what the others wait for: the lowest, where that is no further than what the others have completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from astraeus_protocol.readings import SANE_WORK

from .gang import Gang, Sign
from .limits import SAID_OVER_S
from .members import member_of
from .picture import SaidView, StepView


class Late(msgspec.Struct, frozen=True):
    """``ranks`` have enqueued up to ``own``, others up to ``others``; ``heard``: of how many ranks that is known."""

    ranks: tuple[int, ...]
    own: int
    others: int
    heard: int


def by_work(gang: Gang) -> tuple[Sign, ...]:
    """The late ranks of a gang that waits; empty where that names nobody."""
    return signs(gang.said, gang.step, len(gang.members)) if gang.step and not gang.signs else ()


def signs(said: Sequence[SaidView], step: StepView, of: int) -> tuple[Sign, ...]:
    """The same of a step whose words alone say that it waits; ``of``: how many ranks it has."""
    late = who(works([one for one in said if not _outlived(one, step)]), of)
    if late is None:
        return ()
    words = f"is late: the last work that it enqueued is #{late.own}, the others' up to #{late.others}"
    rest = f"{late.heard - len(late.ranks)} of {late.heard} ranks that tell it enqueued more"
    found = [member for rank in late.ranks if (member := member_of(step, rank)) is not None]
    return tuple(Sign(member, "late", None, words="is late, too" if at else words, rest=rest)
                 for at, member in enumerate(found))


def _outlived(one: SaidView, step: StepView) -> bool:
    """The run went on for long after it was said."""
    return step.output_s is not None and one.said.last_s > step.output_s + SAID_OVER_S


def works(said: Sequence[SaidView]) -> dict[int, tuple[int, int | None]]:
    """Rank to (last enqueued, last completed), where the first is known and sane."""
    found: dict[int, tuple[int, int | None]] = {}
    for one in said:
        told = [(work.rank, work.enqueued, work.completed) for work in one.said.works]
        rank = one.said.rank if one.said.rank is not None else one.worker
        if not told and rank is not None and one.said.enqueued is not None:
            told = [(rank, one.said.enqueued, one.said.completed)]
        for rank, enqueued, completed in told:
            if 0 <= enqueued < SANE_WORK and enqueued >= found.get(rank, (-1, None))[0]:
                found[rank] = enqueued, completed if completed is not None and 0 <= completed < SANE_WORK else None
    return found


def who(told: Mapping[int, tuple[int, int | None]], of: int) -> Late | None:
    """The lowest, where they are a minority and have not enqueued what the others wait for; of two ranks the lower.

    What anybody has completed all have enqueued: a number below that is of an earlier hang, and not known any more.
    """
    done = max((completed for _, completed in told.values() if completed is not None), default=None)
    found = {rank: enqueued for rank, (enqueued, _) in told.items() if done is None or enqueued >= done}
    if len(found) < 2 or (done is None and 2 * len(found) <= of):
        return None
    own, others = min(found.values()), max(found.values())
    ranks = tuple(sorted(rank for rank, enqueued in found.items() if enqueued == own))
    if own == others or (done is not None and own > done):
        return None
    if 2 * len(ranks) >= of and (len(ranks), of) != (1, 2):
        return None
    return Late(ranks, own, others, len(found))
