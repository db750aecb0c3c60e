"""Recordings of gangs of which NCCL's RAS says something: some are stuck, some only look so."""

from __future__ import annotations

from astraeus_protocol.devices import Ras, RasComm, RasGroup, RasRank

from scorecard.lookalikes import nothing
from scorecard.people import FAULT
from scorecard.said import Made, untied
from scorecard.stalls import expect
from scorecard.world import FAR, World, every


def ranks(world: World, *wanted: int, why: str = "") -> list[RasRank]:
    """As RAS names them: addresses, and PIDs as the processes have them."""
    nodes = world.nodes
    return [RasRank(one.rank, f"10.0.0.{nodes.index(one.node) + 1}", one.procs[0].pid, why) for one in world.ranks
            if one.rank in wanted]


def says(world: World, *groups: tuple[int, tuple[int, ...]], missing: tuple[int, ...] = (), why: str = "missing",
         states: dict[str, int] | None = None, at: float = FAULT + 60, until: float = FAR) -> World:
    size = len(world.ranks)
    comm = RasComm("cf264af53edbe986 0:0", size, ranks(world, *missing, why=why), len(missing), [
        RasGroup(len(who), {"AllReduce": count}, ranks(world, *who)) for count, who in groups],
        states or {"RUNNING": size - len(missing)})
    odd = missing or len(groups) > 1 or states
    world.ras.append((at, until, Ras(version="2.30.7", of=5, comms=[comm] if odd else [])))
    return world


ALL = tuple(range(8))
REST = tuple(rank for rank in ALL if rank != 5)
RULE = {"rule": "collective_ras"}


def rank_is_missing() -> Made:
    world = says(untied(output=every(5, FAULT), end=500), (4242, REST), missing=(5,))
    return world, expect("a rank is missing, threads that spin have no pulse", "NCCL user guide, ras.rst",
                         suspect_within=120, worker="1001-5", rank=5, **RULE, within=160, after=120,
                         cause="collective stuck: rank 5 does not join it", says=[
                             "is missing: collective #4242 (AllReduce) in progress on the others"]), ""


def rank_is_behind() -> Made:
    world = says(untied(output=every(5, FAULT), end=500), (6650, REST), (6649, (5,)))
    return world, expect("a rank launched one operation less", "marin-community/marin#7344", worker="1001-5", rank=5,
                         suspect_within=160, **RULE, within=160, after=60,
                         cause="collective stuck: rank 5 does not join it", says=[
                             "is behind: it has launched AllReduce #6649, the others AllReduce #6650"]), ""


def halves_apart() -> Made:
    world = says(untied(output=every(5, FAULT), end=500), (6650, ALL[:4]), (6649, ALL[4:]))
    return world, expect("half of the gang is behind", "NVIDIA/nccl#1911", worker="1001", rank=None,
                         suspect_within=160, **RULE, within=160, after=60, cause="collective stuck", says=[
                             "no rank stands out; NCCL: NCCL RAS: 4 of 8 ranks are behind"]), ""


def torn_down() -> Made:
    world = says(untied(output=every(5), end=500), (7, ALL), states={"FINALIZE": 6, "RUNNING": 2}, at=FAULT)
    return world, nothing("a communicator is torn down", "NCCL user guide, ras.rst", may_suspect=True), ""


def dead_for_ever() -> Made:
    world = says(untied(output=every(5), end=500), (7, REST), missing=(5,), why="dead", at=FAULT)
    return world, nothing("a rank that was stopped for a minute goes on: dead to RAS for ever",
                          "NCCL user guide, ras.rst",
                          may_suspect=True), ""


RAS = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    rank_is_missing, rank_is_behind, halves_apart, torn_down, dead_for_ever), 151)}
