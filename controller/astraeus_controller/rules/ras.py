"""What NCCL's RAS says of a gang's communicators: who is missing, and who has launched fewer operations. Pure.

RAS counts what was launched and not what was completed, so that it says OK for ever where all launched and nobody
finishes: its OK vetoes nothing. It is asked only of a gang that has gone quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from astraeus_protocol.devices import RasComm, RasGroup, RasRank
from astraeus_protocol.ras import behind

from .gang import Gang, Member, Sign, done_of, others_wait
from .limits import RAS_KNOWN_S, RAS_LOOKS, RAS_STILL_S
from .picture import RasView, StepView

SOURCE = "NCCL RAS: "
RUNNING = {"RUNNING"}
Where = Callable[[RasRank], Member | None]
Suspects = list[tuple[RasRank, RasComm, str]]
"""(who, in which communicator, what is said of it)"""


class Stuck(msgspec.Struct, frozen=True):
    """A collective that is stuck by RAS."""

    s: float
    """Since the first look that said so."""
    signs: tuple[Sign, ...]
    """Who is missing or behind, where that is a minority of the gang."""
    words: str
    """The sentence where nobody is named."""


def by_ras(gang: Gang) -> tuple[Sign, ...]:
    """Members that are missing, or behind all others that wait for them."""
    stuck = found(gang.ras, gang.members, gang.tasks, gang.done)
    signs = stuck.signs if stuck else ()
    rest = others_wait(gang, [sign.member for sign in signs])
    return tuple(msgspec.structs.replace(sign, rest=rest) for sign in signs)


def of_step(step: StepView, gang: Gang | None, *, early: bool = False) -> Stuck | None:
    """What RAS says of a step. ``early``: at its first look already."""
    members = gang.members if gang else tuple(Member(w, p) for w in step.workers for p in w.processes)
    return found(step.ras, members, step.tasks, gang.done if gang else done_of(step), early=early)


def found(views: Sequence[RasView], members: Sequence[Member], tasks: int, done: frozenset[int] = frozenset(), *,
          early: bool = False) -> Stuck | None:
    """Who is missing; else who is behind. None: nothing that proves a stuck collective."""
    fresh = [view for view in views if not view.ras.unknown and view.ras.s <= RAS_KNOWN_S]
    if not fresh or len(members) < 2:
        return None
    where = locate(fresh, members)
    suspects = _missing(fresh, done, 1 if early else RAS_LOOKS)
    since = max((one.s for one, _, _ in suspects), default=0.0)
    if not suspects:
        suspects, since = _behind(fresh, where)
    if not suspects:
        return None
    signs: dict[int, Sign] = {}
    unplaced = set()
    for one, _, words in suspects:
        member = where(one)
        if member is None:
            unplaced.add((one.host, one.pid, one.rank))
        else:
            signs.setdefault(id(member), Sign(member, "ras", None, words=words, source=SOURCE))
    count, of = len(signs) + len(unplaced), max(tasks, len(members))
    one, comm, said = suspects[0]
    words = f"{SOURCE}{count} of {of} ranks {said.replace('is ', 'are ', 1).replace('it has', 'they have')}"
    if count == 1 and unplaced and one.rank >= 0:
        at = f"{one.host or 'a node unknown'}, PID {one.pid or 'unknown'}"
        words = f"{SOURCE}rank {one.rank} of {comm.size} ({at}) {said}"
    minority = 2 * count < of or (count, of) == (1, 2)
    named = tuple(sorted(signs.values(), key=lambda sign: (sign.member.worker.rank, sign.member.process.local)))
    return Stuck(since, named if minority else (), words)


def _missing(views: Sequence[RasView], done: frozenset[int], looks: int) -> Suspects:
    """Ranks of which nothing came, at so many looks. One that another process's answer shows as present is not
    missing: who was stopped for a minute and goes on is dead to the others for ever, and they to it."""
    answers: dict[str, list[tuple[RasComm, set[int]]]] = {}
    for view in views:
        for comm in view.ras.comms:
            answers.setdefault(comm.id, []).append((comm, {one.rank for one in comm.missing}))
    suspects: Suspects = []
    for told in answers.values():
        lost = set.intersection(*(ranks for _, ranks in told))
        comm = max((comm for comm, _ in told), key=lambda comm: max((one.looks for one in comm.missing), default=0))
        for one in comm.missing:
            if one.rank in lost and one.looks >= looks and one.pid not in done:
                state = "is considered dead" if one.why == "dead" else "is missing"
                doing = _in_progress(comm)
                suspects.append((one, comm, f"{state}: {doing}" if doing else state))
    return suspects


def _behind(views: Sequence[RasView], where: Where) -> tuple[Suspects, float]:
    """Ranks that launched fewer operations than others, in communicators that stand still with all of their ranks
    running; not who waits for another one himself. And since when."""
    late: list[tuple[RasRank, RasComm, str]] = []
    wait: set[object] = set()
    since = 0.0
    for comm in _apart(views):
        low, high = behind(comm)
        since = max(since, comm.still_s)
        if not low:
            low, high = [comm.groups[-1]], [comm.groups[0]]
            late += [(RasRank(-1 - at, comm.id), comm, _apart_by(low[0], high[0])) for at in range(comm.size // 2)]
            continue  # halves, each at an operation of its own: nobody is to be told apart
        wait |= {_key(one, where) for group in high for one in group.ranks}
        for group in low:
            said = _apart_by(group, high[0])
            late += [(one, comm, said) for one in group.ranks]
            # A text reply names only few: where it names those ahead, who is behind is known by their number.
            late += [(RasRank(-1 - at, comm.id), comm, said) for at in range(group.n - len(group.ranks))]
    return [one for one in late if one[0].rank < 0 or _key(one[0], where) not in wait], since


def _apart(views: Sequence[RasView]) -> Iterator[RasComm]:
    for view in views:
        for comm in view.ras.comms:
            if comm.missing_n == 0 and set(comm.states) <= RUNNING and comm.looks >= RAS_LOOKS and (
                    comm.still_s >= RAS_STILL_S and len(comm.groups) > 1):
                yield comm


def locate(views: Sequence[RasView], members: Sequence[Member]) -> Where:
    """Who a (host, PID) is: hosts are addresses, and a PID alone may be on two nodes. A host's node is the one that has
    most of the PIDs named on it."""
    named: dict[str, set[int]] = {}
    for view in views:
        for comm in view.ras.comms:
            for one in (*comm.missing, *(one for group in comm.groups for one in group.ranks)):
                if one.pid:
                    named.setdefault(one.host, set()).add(one.pid)
    nodes: dict[str, dict[int, Member]] = {}
    for member in members:
        nodes.setdefault(member.worker.node, {})[member.process.inner or member.process.pid] = member
    chosen: dict[str, str] = {}
    for host, pids in named.items():
        shares = sorted(((len(pids & own.keys()), node) for node, own in nodes.items()), reverse=True)
        if shares and shares[0][0] and (len(shares) == 1 or shares[1][0] < shares[0][0]):
            chosen[host] = shares[0][1]

    def where(one: RasRank) -> Member | None:
        if one.pid and one.host in chosen:
            return nodes[chosen[one.host]].get(one.pid)
        same = [own[one.pid] for own in nodes.values() if one.pid in own]
        if len(same) > 1:  # containers of a cluster hand out the same PIDs
            same = [m for m in same if (m.process.rank or str(m.worker.rank)) == str(one.rank)]
        return same[0] if len(same) == 1 else None

    return where


def _key(one: RasRank, where: Where) -> object:
    member = where(one)
    return id(member) if member else (one.host, one.pid)


def _in_progress(comm: RasComm) -> str:
    """``collective #4242 (AllReduce) in progress on the others``"""
    counts = comm.groups[0].counts if comm.groups else {}
    if not counts:
        return ""
    if len(counts) > 1:  # which of them came last is not told
        return f"the others have launched {_spelt(counts, sorted(counts))}"
    [(kind, count)] = counts.items()
    return f"collective #{count}{f' ({kind})' if kind else ''} in progress on the others"


def _apart_by(low: RasGroup, high: RasGroup) -> str:
    """``is behind: it has launched AllReduce #6649, the others AllReduce #6650``"""
    kinds = sorted(kind for kind in low.counts.keys() | high.counts.keys()
                   if low.counts.get(kind) != high.counts.get(kind))
    return f"is behind: it has launched {_spelt(low.counts, kinds)}, the others {_spelt(high.counts, kinds)}"


def _spelt(counts: dict[str, int], kinds: Sequence[str]) -> str:
    return ", ".join(f"{kind or 'collective'} #{counts[kind]}" if counts.get(kind) else f"no {kind or 'collective'}"
                     for kind in kinds)
