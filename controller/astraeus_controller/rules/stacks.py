"""Python stacks (docs/rules.md, "Stacks"): who of a gang that waits is in another place of its program than the rest.

Asked last, and only behind the pulse gate: of a healthy gang, one look finds an odd one out in every second job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from .gang import Gang, Member, Sign, by_rank, others_wait
from .limits import GROUPS_SAID
from .picture import StackView

T = TypeVar("T")
Frames = tuple[str, ...]
PROMPT = re.compile(r"(\w+\.)*(interaction|_?cmdloop|do_wait_suspend) \((\S*/)?(pdb|debugger|pydevd)\.py:")
"""A frame of pdb (torch's and IPython's, too) or pydevd that waits for its user. Only such: a script that was started
as ``python -m pdb`` has pdb's frames at its root all the time."""
FRAMES_AT_MOST, RANKS_AT_MOST = 32, 64
"""In a finding's evidence, of each group; the store holds them whole."""


class Group(msgspec.Struct, Generic[T], frozen=True):
    """Who is in one place. ``place``: in words."""

    place: str
    frames: Frames
    members: tuple[T, ...]


def grouped(found: Iterable[tuple[T, Frames]]) -> list[Group[T]]:
    """Groups by the leaf frame, or by the whole stack where all have the same leaf; the biggest first."""
    items = [(one, frames) for one, frames in found if frames]
    if len({frames[0] for _, frames in items}) > 1:
        return _groups(items, lambda frames: frames[:1])
    return _groups(items, lambda frames: frames)


def by_whole_stack(found: Iterable[tuple[T, Frames]]) -> list[Group[T]]:
    """Groups by the whole stack; the biggest first."""
    return _groups([(one, frames) for one, frames in found if frames], lambda frames: frames)


def _groups(items: Sequence[tuple[T, Frames]], key: Callable[[Frames], Frames]) -> list[Group[T]]:
    parts: dict[Frames, list[tuple[T, Frames]]] = {}
    for one, frames in items:
        parts.setdefault(key(frames), []).append((one, frames))
    differs = next((at for at, several in enumerate(zip(*parts, strict=False)) if len(set(several)) > 1), 0)
    found = [Group(_place(frames, differs), part[0][1], tuple(one for one, _ in part))
             for frames, part in parts.items()]
    return sorted(found, key=lambda group: -len(group.members))


def _place(frames: Frames, differs: int) -> str:
    """``wait (threading.py:327)``; with the frame that tells it from the others where the leaf does not."""
    return frames[0] if not 0 < differs < len(frames) else f"{frames[0]} under {frames[differs]}"


def by_stacks(gang: Gang) -> tuple[Sign, ...]:
    """The members that are elsewhere than the majority; empty where that names nobody.

    More than half of the whole gang must be in one place and all others in one other: halves, and three places or
    more, name nobody. Every member without a sign must have been read, while the majority waited. Who is stopped,
    dead or in D is left out: its stack says nothing new.
    """
    found = fresh(gang)
    groups = grouped(found)
    if len(groups) != 2 or 2 * len(groups[0].members) <= len(gang.members):
        return ()
    told = sentence(groups, labels([member for member, _ in found]))
    rest = others_wait(gang, groups[1].members)
    elsewhere = sorted(groups[1].members, key=by_rank)
    words = f"stands out by its Python stack: {told}"
    return tuple(Sign(member, "stack", None, words="stands out, too" if at else words, rest=rest)
                 for at, member in enumerate(elsewhere))


def fresh(gang: Gang) -> list[tuple[Member, Frames]]:
    """Where every member without a sign is, if all were read while the majority waited; else nothing."""
    found = known(gang)
    if not found or not gang.waits or len(found) < len(gang.others):
        return []
    oldest = max(member.process.stack.s for member, _ in found if member.process.stack)
    # Read before, or while it did not wait: that tells of another stall, or of none.
    return found if gang.most([m for m in gang.waiting if (m.process.pulse_gone_s or 0.0) >= oldest]) else []


def seen(gang: Gang, guilty: Sequence[Sign]) -> str:
    """``3 ranks in all_reduce (train.py:88) · rank 5 in next_batch (loader.py:41)``, beside what named somebody, or
    where nobody stands out; "" where it is said already, or all are in one place beside who is named."""
    groups = grouped(fresh(gang))
    if (len(groups) < 2 and guilty) or any(sign.kind == "stack" for sign in guilty):
        return ""
    return where(gang)


def where(gang: Gang) -> str:
    """Who is where, of a gang that waited while its stacks were read; "" where that is not known."""
    found = fresh(gang)
    return sentence(grouped(found), labels([member for member, _ in found])) if found else ""


def at_prompt(stack: StackView, gone_s: float | None) -> bool:
    """A person sits at a debugger's prompt inside the process, and it has not moved since its stack was read.

    Nothing traces it, so its state tells nothing of it; a restart would end what the person is doing.
    """
    return bool(gone_s) and (gone_s or 0.0) >= stack.s and any(PROMPT.match(frame) for frame in stack.frames)


def known(gang: Gang) -> list[tuple[Member, Frames]]:
    """Members without a sign whose stack was read."""
    return [(member, member.process.stack.frames) for member in gang.others if member.process.stack]


def evidence(gang: Gang) -> dict[str, object]:
    """``stacks``: who is where, for a finding's details; nothing where no stack was read."""
    found = known(gang)
    if not found:
        return {}
    named = labels([member for member, _ in found])
    return {"stacks": [{"ranks": fold([named[id(member)] for member in group.members[:RANKS_AT_MOST]]),
                        "frames": list(group.frames[:FRAMES_AT_MOST])}
                       for group in grouped(found)[:GROUPS_SAID]]}


def labels(members: Sequence[Member]) -> dict[int, str]:
    """What members are called, by their id(): a worker's rank, or where workers have several processes those' own."""
    own = names([(m.worker.rank, m.process.local, m.process.rank) for m in members])
    return {id(member): name for member, name in zip(members, own, strict=True)}


def names(processes: Sequence[tuple[int, int, str]]) -> list[str]:
    """The same of (worker's rank, place among its processes, own RANK): ``5``; ``0.2`` where RANK does not tell."""
    if len({rank for rank, _, _ in processes}) == len(processes):
        return [str(rank) for rank, _, _ in processes]
    own = [rank for _, _, rank in processes]
    if len(set(own)) == len(own) and all(one.isascii() and one.isdigit() for one in own):
        return own
    return [f"{rank}.{local}" for rank, local, _ in processes]


def sentence(groups: Sequence[Group[Member]], named: dict[int, str]) -> str:
    """``3 ranks in all_reduce (train.py:88) · rank 5 in next_batch (loader.py:41)``"""
    return joined([(group.place, [named[id(member)] for member in group.members]) for group in groups])


def joined(places: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The same from places and the names of who is there."""
    parts = []
    for at, (place, there) in enumerate(places[:GROUPS_SAID]):
        who = f"{len(there)} ranks" if len(there) > 1 and not at else f"{noun(there)} {fold(there)}"
        parts.append(f"{who} in {place}")
    if len(places) > GROUPS_SAID:
        left = sum(len(there) for _, there in places[GROUPS_SAID:])
        parts.append(f"{left} elsewhere")
    return " · ".join(parts)


def noun(there: Sequence[str]) -> str:
    return "rank" if len(there) == 1 else "ranks"


def fold(there: Iterable[str]) -> str:
    """``0-4,6,7``"""
    given = list(there)
    if not all(one.isascii() and one.isdigit() for one in given):
        return ",".join(given)
    parts: list[list[int]] = []
    for number in sorted(map(int, given)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ",".join(map(str, part)) for part in parts)
