"""Recordings of several jobs that stall together, and of several that stall each for itself."""

from __future__ import annotations

from typing import Any

import msgspec

from scorecard.people import ASKED, FAULT, NFS, SITE_60S, alone, gang, on_storage, stuck
from scorecard.stalls import expect
from scorecard.world import FAR, World, every

Made = tuple[World, dict[str, Any], str]


def jobs(*nodes: str, apart: float = 20) -> World:
    """One task with a GPU for each of the nodes, as jobs 1001, 1002, …; each falls silent ``apart`` seconds after the
    one before."""
    worlds = []
    for place, node in enumerate(nodes):
        quiet = FAULT + apart * place
        rank = alone(node=node, pid=4000 + place, gpus=[place], busy=every(5, quiet), cpu=every(5, quiet))
        worlds.append(World(ranks=[rank], job=1001 + place, output=every(10, quiet), step_settings=dict(ASKED)))
    worlds[0].more = worlds[1:]
    return worlds[0]


def gangs(*stores: str, until: float = FAR) -> World:
    """A gang of two for each store, as jobs 1001, 1002, …, on two nodes of its own; it waits from the fault on."""
    worlds = []
    for place, source in enumerate(stores):
        world = gang(2, 2, job=1001 + place, end=480)
        for rank in world.ranks:
            rank.node = f"c{2 * place + rank.rank + 1}"
            rank.procs[0].pid += 100 * place
        stuck(world, FAULT, until, odd=(0, 1))
        worlds.append(on_storage(world, (0, 1), msgspec.structs.replace(NFS, mount=source), until=until, letter="D"))
    worlds[0].more = worlds[1:]
    return worlds[0]


def three_on_one_mount() -> Made:
    return gangs(*3 * ["store1:/export"], until=300), expect(
        "three jobs on nodes of their own wait for one mount, which answers again: one incident, told once",
        "nfs-ganesha/nfs-ganesha#1327", count=3, waits_on=["store1:/export"], closed=3 * ["progress"], incidents=[
            {"cause": "storage", "subject": "store1:/export", "jobs": [1001, 1002, 1003], "open": False}]), ""


def each_on_a_mount_of_its_own() -> Made:
    return gangs("store1:/export", "store1:/other"), expect(
        "two jobs wait each for another export of one server: no incident", count=2, waits_on=["store1:/other"]), ""


def two_on_one_node() -> Made:
    return jobs("c1", "c1", "c2"), expect(
        "of three jobs two share a node: the node's GPUs are idle for both, one incident", count=3, incidents=[
            {"cause": "nodes", "subject": "c1", "jobs": [1001, 1002], "open": True}]), SITE_60S


def each_for_itself() -> Made:
    return jobs("c1", "c2"), expect(
        "two jobs on nodes of their own stall within a minute: no incident", count=2), SITE_60S


def a_wave() -> Made:
    return jobs("c1", "c2", "c3", "c4", "c5"), expect(
        "five jobs on nodes of their own stall within two minutes: more than the breaker lets pass", count=5,
        incidents=[{"cause": "breaker", "subject": "many jobs", "jobs": [1001, 1002, 1003, 1004, 1005],
                    "open": True}]), SITE_60S


OUTAGES = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    three_on_one_mount, each_on_a_mount_of_its_own, two_on_one_node, each_for_itself, a_wave), 91)}
