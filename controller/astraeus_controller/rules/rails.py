"""RDMA rails (docs/rules.md, "Rails"): what a rail is made for, and what is off with those of a job.

Its signs say what is off with a link; whether that makes a straggler is for the rule that asks (two looks in a row,
a sign that most share names nobody).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

import msgspec
from astraeus_protocol.devices import Rail

from .limits import RAIL_ERRORS_MIN, RAIL_ERRORS_RATIO, RAIL_GROWING_S, RAIL_PEERS, RAIL_RATE_SHARE
from .picture import JobView, RailClass, RailView

DOWN, RATE, ERRORS, MISWIRED = "down", "rate", "errors", "miswired"
UP = ("ACTIVE", "ACTIVE_DEFER")
DEAD_PHYS = {"Polling", "Disabled", "Sleep"}
"""Physical states without a link, of a port whose state could not be read."""
HARD = {"link_downed", "link_error_recovery", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
        "req_transport_retries_exceeded"}
"""Counters of which one is an error; of the others some are part of a healthy link."""


class Sign(msgspec.Struct, frozen=True):
    """Something that is off with one rail."""

    node: str
    device: str
    port: int
    sign: str
    """down, rate, errors, miswired."""
    words: str
    """``rail mlx5_1: 100 Gb/s (1X EDR), made for 400 Gb/s as 15 others of its class``"""
    numbers: dict[str, float] = {}
    """rate_gb, made_for_gb, peers; down_s; a counter's name to by how much it grew."""


class MadeFor(msgspec.Struct, frozen=True):
    """What a rail is made for, Gb/s, and by whose word: of how many others, or the site's (0)."""

    gb: float
    peers: int = 0


def signs(job: JobView) -> list[Sign]:
    """What is off with the job's compute rails, one record for each sign; unknown is never a sign."""
    return [sign for view in job.rails for sign in signs_of(view, job)]


def signs_of(view: RailView, job: JobView) -> Iterator[Sign]:
    """What is off with one rail; nothing of one that carries no training's data."""
    rail, of_class = view.rail, job.rail_classes.get(view.rail.kind, RailClass())
    if not rail.compute or rail.looked_s > RAIL_GROWING_S:
        return
    found = [_down(rail, of_class), _rate(rail, of_class),
             _errors(rail, (v.rail for v in job.rails if v is not view)), _miswired(rail)]
    for one in found:
        if one is not None:
            sign, words, numbers = one
            yield Sign(view.node, rail.device, rail.port, sign, f"rail {name_of(rail)}: {words}", numbers)


def name_of(rail: Rail) -> str:
    """``mlx5_1``; ``mlx5_1/2`` where it is not the first port."""
    return rail.device if rail.port == 1 else place_of(rail)


def place_of(rail: Rail) -> str:
    """``mlx5_1/1``"""
    return f"{rail.device}/{rail.port}"


def is_up(rail: Rail) -> bool | None:
    """None: it can't be told."""
    if rail.state:
        return rail.state in UP
    return False if rail.phys_state in DEAD_PHYS else None


def made_for(rail: Rail, of_class: RailClass) -> MadeFor | None:
    """The site's value, else the commonest rate of at least three others of its class, else nothing. What it once
    had itself never counts."""
    if of_class.site_gb:
        return MadeFor(of_class.site_gb)
    others = dict(of_class.rates)
    if rail.rate_gb in others and is_up(rail):
        others[rail.rate_gb] -= 1
    first, second = sorted((*others.values(), 0, 0), reverse=True)[:2]
    if sum(others.values()) < RAIL_PEERS or first == second:
        return None
    return MadeFor(next(rate for rate, count in others.items() if count == first), sum(others.values()))


Found = tuple[str, str, dict[str, float]] | None
"""(sign, words, numbers)"""


def _down(rail: Rail, of_class: RailClass) -> Found:
    if is_up(rail) is not False:
        return None
    phys = f", {rail.phys_state}" if rail.phys_state and rail.state != "GONE" else ""
    words = "is gone from the node" if rail.state == "GONE" else f"is {rail.state or 'not up'}{phys}"
    if rail.down_s is not None:
        since = f" for {rail.down_s:.0f} s" if rail.down_s >= 1 else ""
        return DOWN, words + since, {"down_s": rail.down_s}
    # It was down when the job began. A second port that nobody uses is down on every node.
    up, down = of_class.up.get(place_of(rail), 0), of_class.down.get(place_of(rail), 0)
    if up < RAIL_PEERS or up <= down:
        return None
    return DOWN, f"{words} since the job began, up on {up} other nodes", {"peers": up}


def _rate(rail: Rail, of_class: RailClass) -> Found:
    made = made_for(rail, of_class)
    if made is None or not rail.rate_gb or is_up(rail) is not True or rail.rate_gb >= made.gb * RAIL_RATE_SHARE:
        return None
    lanes = " ".join(filter(None, (f"{rail.width}X" if rail.width else "", rail.speed)))
    whose = f"as {made.peers} others of its class" if made.peers else "by the site's word"
    return (RATE, f"{rail.rate_gb:g} Gb/s" + (f" ({lanes})" if lanes else "") + f", made for {made.gb:g} Gb/s {whose}",
            {"rate_gb": rail.rate_gb, "made_for_gb": made.gb, "peers": made.peers})


def _errors(rail: Rail, others: Iterable[Rail]) -> Found:
    if rail.errors_s is None or rail.errors_s > RAIL_GROWING_S:
        return None
    like = [other for other in others if other.compute and other.kind == rail.kind]
    grew = {}
    for name, count in rail.errors.items():
        usual = statistics.median([other.errors.get(name, 0) for other in like]) if like else 0
        if count >= (1 if name in HARD else RAIL_ERRORS_MIN) and count >= RAIL_ERRORS_RATIO * usual:
            grew[name] = float(count)
    if not grew:
        return None
    most = sorted(grew, key=lambda name: (name not in HARD, -grew[name], name))
    told = ", ".join(f"{name} +{grew[name]:.0f}" for name in most[:2])
    return ERRORS, f"errors grow: {told}", {name: grew[name] for name in most}


def _miswired(rail: Rail) -> Found:
    if not rail.peer or not rail.peer_wanted or rail.peer == rail.peer_wanted:
        return None
    return MISWIRED, f"is wired to {rail.peer}, not to {rail.peer_wanted}", {}
