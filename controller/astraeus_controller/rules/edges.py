"""Who does not drain, and whose link is cut: TCP connections between the members of a gang. Pure.

A stopped or stuck peer's kernel goes on acknowledging until its buffers are full: what came lies unread (Recv-Q), and
nobody backs off. Behind a cut link nothing is acknowledged: the senders' time-outs double, on exactly the connections
into the rank that was cut off. Bytes sent say nothing of either.
"""

from __future__ import annotations

from astraeus_protocol.readings import Edge

from . import say
from .gang import Gang, Member, Sign, others_wait
from .limits import BACKOFF_MIN, QUEUE_MIN, QUEUE_RATIO, QUEUE_STAYS_S

Found = tuple[list[Member], str]
"""Who, and what is said of it; nobody and nothing."""


def by_edges(gang: Gang) -> tuple[Sign, ...]:
    """The cut link first: behind one, buffers fill too."""
    ends = _ends(gang)
    found, words = _cut(gang, ends)
    if not found:
        found, words = _queued(gang, ends)
    rest = others_wait(gang, found)
    return tuple(Sign(member, "edges", None, words=words, rest=rest) for member in found)


def _ends(gang: Gang) -> list[tuple[Member, Edge, Member]]:
    """(member, its end, member at the other end) of connections inside the gang. A silent node's are too old."""
    holders: dict[int, list[tuple[Member, Edge]]] = {}
    for member in gang.members:
        if member.worker.state == "running":
            for edge in member.process.edges:
                holders.setdefault(edge.n, []).append((member, edge))
    found = []
    for held in holders.values():
        if len(held) == 2:
            (one, first), (other, second) = held
            found += [(one, first, other), (other, second, one)]
    return found


def _queued(gang: Gang, ends: list[tuple[Member, Edge, Member]]) -> Found:
    """The member with by far the most unread: behind the one that does not read, others' buffers may fill too."""
    waiting: dict[int, int] = {}
    for member, edge, _ in ends:
        if edge.queued and edge.unread_s >= QUEUE_STAYS_S and not edge.backoff:
            waiting[id(member)] = waiting.get(id(member), 0) + edge.queued
    members = {id(member): member for member in gang.members}
    most = sorted(waiting, key=lambda one: -waiting[one])
    if not most or waiting[most[0]] < QUEUE_MIN or len(gang.members) <= 2 or (
            len(most) > 1 and waiting[most[0]] < QUEUE_RATIO * waiting[most[1]]):
        return [], ""
    return [members[most[0]]], (f"does not read what it is sent: {say.size(waiting[most[0]])} wait at its connections")


def _cut(gang: Gang, ends: list[tuple[Member, Edge, Member]]) -> Found:
    """The rank, or the node's ranks, that all connections that back off have in common, if there are two or more."""
    pairs = [(member, other) for member, edge, other in ends if edge.unacked and edge.backoff >= BACKOFF_MIN]
    ways = {frozenset((id(one), id(other))) for one, other in pairs}
    if len(ways) < 2:
        return [], ""  # of one connection it can't be told which end is cut off
    common = frozenset.intersection(*ways)
    if len(common) == 1:
        found = [member for member in gang.members if id(member) in common]
        words = f"is cut off: all {len(ways)} connections to it that are in use go unanswered"
    else:
        nodes = [{one.worker.node, other.worker.node} for one, other in pairs]
        shared = set.intersection(*nodes)
        if len(shared) != 1:
            return [], ""
        ids = frozenset.union(*ways)
        found = [member for member in gang.members if id(member) in ids and member.worker.node in shared]
        words = f"is cut off with its node: {len(ways)} connections to it go unanswered"
    if 2 * len(found) >= len(gang.members):
        return [], ""
    return found, words
