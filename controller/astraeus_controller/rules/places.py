"""Who is elsewhere than the others: main threads' places, as 25 samples each found them. Pure.

Measured on 46 hung gloo gangs, on MLX's ring and on Open MPI: who waits in a collective sits in ``futex``, or spins
in the kernel (``sched_yield``); who is waited for is elsewhere, or, where all main threads sit in the same place and
the others' helpers spin, uses no CPU at all. Which rank stands out was right each time; a single sample of a healthy
gang shows one in half of all cases, so this is asked only of a gang whose pulse is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .gang import Gang, Member, Sign, by_rank, others_of
from .limits import IDLE_BESIDE_CPU, PLACE_KNOWN_S, PLACE_SAMPLES, PLACE_SHARE, SPIN_BESIDE_CPU
from .picture import ProcessView

FUTEX, POLL, RECEIVE, SPIN, RUNS, MOVES = "futex", "poll", "receive", "spin", "runs", "moves"
GROUPS = {"futex": FUTEX, "futex_waitv": FUTEX, "poll": POLL, "ppoll": POLL, "select": POLL, "pselect6": POLL,
          "epoll_wait": POLL, "epoll_pwait": POLL, "epoll_pwait2": POLL, "recvfrom": RECEIVE, "recvmsg": RECEIVE,
          "sched_yield": SPIN}
"""Calls that are one place: kernels and C libraries differ in which of them they use."""
WAIT_IN: dict[str, frozenset[str]] = {
    FUTEX: frozenset(), SPIN: frozenset(), POLL: frozenset({FUTEX, SPIN}), RECEIVE: frozenset({FUTEX, SPIN, POLL})}
"""Where ranks wait for others, and where who is elsewhere may be a waiter himself: in a gang of which most wait for
their data in ``poll``, the two in ``futex`` are those that have it. Places that are not listed (a read, a sleep, work)
are none in which a gang waits for one of its own, so of such a majority nobody is told apart."""
AT_WORK = frozenset({RUNS, MOVES})


def by_place(gang: Gang) -> tuple[Sign, ...]:
    """Members in another place than most others: a minority, of a gang all of whom are known."""
    places = _places(gang)
    if not places:
        return ()
    here = _majority(places)
    if here is None:
        return ()
    found = [member for member, place in places if place != here]
    if not found or any(place in WAIT_IN[here] for _, place in places):
        return ()
    others, noun = others_of(gang, found)
    rest = f"{len(others)} of {len(others)} other {noun} {_wait(others[0].process, here)}"
    return tuple(Sign(member, "place", None, words=_is(member.process), rest=rest)
                 for member in sorted(found, key=by_rank))


def by_idleness(gang: Gang) -> tuple[Sign, ...]:
    """Members that use no CPU while all others spin, where all main threads are in the same place."""
    places = _places(gang)
    if not places or len({place for _, place in places}) > 1:
        return ()
    cpu = [(member, member.process.cpu) for member in gang.members]
    idle = [(member, used) for member, used in cpu if used is not None and used <= IDLE_BESIDE_CPU]
    spins = [used for _, used in cpu if used is not None and used >= SPIN_BESIDE_CPU]
    if not idle or len(idle) + len(spins) < len(cpu) or 2 * len(idle) >= len(cpu):
        return ()
    _, noun = others_of(gang, [])
    rest = f"{len(spins)} of {len(spins)} other {noun} spin at {min(spins):.0f} % of a core or more"
    return tuple(Sign(member, "idle", None, rest=rest,
                      words=f"uses {used:.1f} % of a core, in {_spelt(member.process)}")
                 for member, used in sorted(idle, key=lambda one: by_rank(one[0])))


def works(guilty: Sequence[Sign]) -> bool:
    """Who stands out is at work: it compiles or tokenises, as far as can be seen."""
    return any(sign.kind == "place" and _group(sign.member.process) in AT_WORK for sign in guilty)


def known(process: ProcessView) -> bool:
    """Its place is known, and not too old."""
    place = process.place
    return place is not None and place.samples >= PLACE_SAMPLES and place.s <= PLACE_KNOWN_S


def _places(gang: Gang) -> list[tuple[Member, str]]:
    """Each member's place; empty where one is not known: it may be the one that is waited for."""
    if gang.signs or not all(known(m.process) and m.worker.state == "running" for m in gang.members):
        return []
    return [(member, _group(member.process)) for member in gang.members]


def _majority(places: Sequence[tuple[Member, str]]) -> str | None:
    """Where more than half are, if that is a place to wait for others."""
    [(here, count)] = Counter(place for _, place in places).most_common(1)
    return here if 2 * count > len(places) and here in WAIT_IN else None


def _group(process: ProcessView) -> str:
    place = process.place
    assert place is not None, "asked only of those whose place is known"
    if place.share < PLACE_SHARE:
        return MOVES
    if place.call:
        return GROUPS.get(place.call, place.call)
    if place.channel:
        name = place.channel.partition(".")[0]
        return FUTEX if name.startswith("futex_") else name
    # Waiters that spin ask the kernel again and again (MPI: 85 % of it system time); who computes does not.
    return SPIN if place.system > place.user else RUNS


def _is(process: ProcessView) -> str:
    place = process.place
    assert place is not None
    match _group(process):
        case "moves":
            return f"is at work: {place.samples} samples of its main thread found it in several places"
        case "runs" | "spin":
            return f"runs: its main thread uses {place.user + place.system:.0f} % of a core"
        case "clock_nanosleep" | "nanosleep":
            return f"sleeps in {_spelt(process)}"
        case _:
            return f"is in {_spelt(process)}"


def _wait(process: ProcessView, here: str) -> str:
    return "spin" if here == SPIN else f"wait in {_spelt(process)}"


def _spelt(process: ProcessView) -> str:
    """``futex_do_wait (futex)``"""
    place = process.place
    assert place is not None
    if place.channel and place.call:
        return f"{place.channel} ({place.call})"
    return place.channel or place.call or "no system call"
