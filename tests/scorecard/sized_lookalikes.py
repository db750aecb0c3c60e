"""Gangs of any size that only look stalled, or slow."""

from __future__ import annotations

from collections.abc import Callable

from scorecard.people import (
    FAULT,
    SITE_60S,
    state,
    stuck,
)
from scorecard.size import END, Made, Size
from scorecard.stragglers import FAULT as SLOW_AT
from scorecard.stragglers import HEAT, WARM, cards
from scorecard.world import FAR, every


def saves(of: Size) -> Made:
    world = stuck(of.gang(busy=every(5, 60, 190), step_settings={}), 60, 190, odd=(0,))
    state(world, 0, "D", 62, 190)
    world.ranks[0].writing = [(61, 190)]
    return world, of.well("rank 0 writes a checkpoint, the others wait", source="huggingface/accelerate#2912"), SITE_60S


def suspended(of: Size) -> Made:
    everybody = tuple(range(of.ranks))
    world = stuck(of.gang(stopped=[(FAULT, 230)], slurm=[(FAULT, "SUSPENDED"), (230, "RUNNING")], end=260), FAULT, 230,
                  odd=everybody)
    for rank in everybody:
        state(world, rank, "T", FAULT, 230)
    return world, of.well("suspended by Slurm, then resumed"), ""


def barrier_long(of: Size) -> Made:
    world = of.gang(output=every(40), gap=40.0)
    for rank in world.ranks:
        rank.procs[0].gone = [(80, 105), (130, 160)]
    return world, of.well("half a minute at a barrier, again and again"), ""


def evaluates(of: Size) -> Made:
    world = of.gang(output=every(10, 90), step_settings={})
    for rank in world.ranks:
        rank.procs[0].gone = []
    return world, of.well("an evaluation without a line, GPUs busy"), SITE_60S


def debugged(of: Size) -> Made:
    world = state(of.stuck(), of.odd, "t")
    world.ranks[of.odd].procs[0].traced = [(115, FAR)]
    return world, of.well("a debugger holds one"), ""


def lost(of: Size) -> Made:
    world = of.gang()
    for number, node in enumerate(world.nodes):
        if number % 2:
            world.lost[node] = [(80 + 15 * (number % 3), 108 + 15 * (number % 3))]
    return world, of.well("each second node loses two reports"), ""


def clocks_wrong(of: Size) -> Made:
    world = of.gang()
    world.skew = {node: 3600.0 * (number % 5 - 2) for number, node in enumerate(world.nodes)}
    return world, of.well("the nodes' time of day is wrong by up to two hours"), ""


def warm_room(of: Size) -> Made:
    values = {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT}
    many = range(of.ranks // 2 + 1)
    world = cards(lambda number, index, t: values if number in many and t >= SLOW_AT else {}, of.ranks, of.nodes,
                  end=END)
    return world, of.well("more than half of the GPUs slowed down by heat"), WARM


def compiles(of: Size) -> Made:
    """The first step, with a line before it: nobody switches, all main threads work, no GPU was ever busy."""
    world = of.gang(output=every(5, 20), step_settings={"stall_after": "600"}, end=420)
    for rank in world.ranks:
        rank.busy, rank.procs[0].pulse_from = None, FAR
        rank.procs[0].cpu.append((20, FAR, 99.0))
    return world, of.well("six minutes of compiling before the first step"), ""


def cuda_graphs(of: Size) -> Made:
    """A graph is launched once a step: main threads spin in it and hardly ever switch, GPUs are busy at full power."""
    world = cards(None, of.ranks, of.nodes, output=every(50), gap=50.0, end=END)
    for rank in world.ranks:
        rank.procs[0].pulse_from = FAR
        rank.procs[0].cpu.append((0, FAR, 99.0))
    return world, of.well("CUDA graphs: no pulse, a line each 50 s, GPUs busy at their usual power"), SITE_60S


def quiet_rl(of: Size) -> Made:
    """Half of the ranks generate for three minutes, the learners wait for them with idle GPUs, nobody prints."""
    world = of.gang(output=every(10, 60, 240), step_settings={}, end=300)
    for rank in world.ranks[of.ranks // 2:]:
        rank.busy = every(5, 60, 240)
        rank.procs[0].gone = [(62, 240)]
    return world, of.well("reinforcement learning: three quiet minutes of generation, the learners' GPUs idle"), (
        SITE_60S.replace("60s", "10m"))


def one_version_back(of: Size) -> Made:
    world = of.gang()
    world.wire = {node: 0 for node in world.nodes[::2]}
    return world, of.well("half of the nodes report one wire version back"), ""


WELL: tuple[Callable[[Size], Made], ...] = (
    saves, suspended, barrier_long, evaluates, debugged, lost, clocks_wrong, warm_room, compiles, cuda_graphs,
    quiet_rl, one_version_back)
