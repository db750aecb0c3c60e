"""Faults in gangs of any size. Each takes a size, and gives world, verdict and configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from astraeus_protocol.readings import Edge, Said

from scorecard.people import (
    FAULT,
    FUTEX,
    METRIC,
    NFS,
    POLL,
    RUNS,
    SITE_60S,
    edges,
    on_storage,
    place,
    quiet,
    state,
    stuck,
)
from scorecard.ras import says
from scorecard.said import STUCK
from scorecard.size import Made, Size
from scorecard.stacks import REDUCE
from scorecard.stragglers import FAULT as SLOW_AT
from scorecard.stragglers import HEAT, HW_SLOWDOWN, POWER_CAP, WARM, cards, ill
from scorecard.world import FAR, every


def stopped(of: Size) -> Made:
    return state(of.stuck(), of.odd, "T"), of.told("one is stopped", suspect_within=30, cause="rank stopped"), ""


def killed(of: Size) -> Made:
    world = of.stuck()
    world.ranks[of.odd].exit = (FAULT, 9)
    return world, of.told("one is killed", suspect_within=30, cause="rank gone: killed by signal 9 (KILL)"), ""


def zombie(of: Size) -> Made:
    return state(of.stuck(), of.odd, "Z"), of.told("one is a zombie", suspect_within=30,
                                                   cause="rank gone: it is a zombie"), ""


def storage(of: Size) -> Made:
    return on_storage(of.stuck(), [of.odd], NFS), of.told(
        "one reads from a store that does not answer", suspect_within=60, waits_on=["store1:/export"], within=100,
        cause="waiting on storage: store1:/export (mounted at /data, nfs4)"), ""


def all_on_storage(of: Size) -> Made:
    everybody = range(of.ranks)
    world = on_storage(stuck(of.gang(), odd=tuple(everybody)), everybody, NFS, letter="D")
    return world, of.told("all read from a store that does not answer", named=False, suspect_within=60,
                          waits_on=["store1:/export"]), ""


def sleeps(of: Size) -> Made:
    """Of two ranks that wait neither is the odd one."""
    world = quiet(place("hrtimer_nanosleep", "clock_nanosleep"), guilty=of.odd, world=of.gang(gpus=False))
    return world, of.told("one sleeps", named=of.ranks > 2, suspect_within=50), ""


def spins(of: Size) -> Made:
    world = quiet(RUNS, guilty=of.odd, cpu=(99.4, 0.4), world=of.gang(gpus=False))
    return world, of.told("one runs in a loop", named=of.ranks > 2), ""


def loader_dead(of: Size) -> Made:
    world = quiet(POLL, guilty=of.odd, world=of.gang(gpus=False))
    world.ranks[of.odd].killed = FAULT - 2
    return world, of.told("one waits for a data loader that was killed", named=of.ranks > 2, suspect_within=50), ""


def locked(of: Size) -> Made:
    world = quiet(FUTEX, guilty=of.odd, world=of.gang(gpus=False))
    world.ranks[of.odd].cpu = every(5, FAULT)
    frames = {rank: REDUCE for rank in range(of.ranks)} | {of.odd: ["fault (train.py:24)", *REDUCE[1:]]}
    world.stacks = [(150, frames)]
    return world, of.told("one waits for a lock that it holds, and its stack says so", named=of.ranks > 2), ""


def link_cut(of: Size) -> Made:
    world = quiet(FUTEX, guilty=of.odd, world=of.gang(gpus=False))
    first, count = of.odd, of.ranks
    before, after = (first - 1) % count, (first + 1) % count
    cut = Edge(0, unacked=1, backoff=8, sent_s=9.0, rcvd_s=63.0)
    edges(world, before, Edge(100 + (before - 1) % count), Edge(100 + before, unacked=cut.unacked, backoff=8,
                                                                 sent_s=9.0, rcvd_s=63.0))
    edges(world, after, Edge(100 + first, unacked=106, backoff=8, sent_s=9.0, rcvd_s=63.0), Edge(100 + after))
    edges(world, first, Edge(100 + before), Edge(100 + first))
    return world, of.told("the links of one are cut", named=of.ranks > 2, suspect_within=50), ""


def watchdog(of: Size) -> Made:
    world = of.untied()
    world.said.append((FAULT, FAR, None, STUCK))
    return world, of.told("a watchdog speaks, threads spin", named=False, suspect_within=30), ""


def barrier(of: Size) -> Made:
    world = of.untied()
    line = f"[Rank 0]: Ranks {of.odd} failed to pass monitoredBarrier in 30000 ms"
    world.said.append((FAULT, FAR, None, Said("stuck", "c10d", line, rank=0, ranks=(of.odd,))))
    return world, of.told("a monitored barrier names the one that is missing", suspect_within=30), ""


def ras_missing(of: Size) -> Made:
    rest = tuple(rank for rank in range(of.ranks) if rank != of.odd)[:32]
    world = says(of.untied(end=260), (4242, rest), missing=(of.odd,), at=FAULT + 30)
    return world, of.told("NCCL's RAS misses one", suspect_within=90, within=130), ""


def idle(of: Size) -> Made:
    world = of.gang(busy=every(5, FAULT), step_settings={}, output=every(10, FAULT))
    return world, of.told("no GPU works, all have a pulse", named=False, rule="gpus_idle"), SITE_60S


def never_began(of: Size) -> Made:
    world = of.gang(output=every(10, 30), step_settings={})
    for rank in world.ranks:
        rank.busy, rank.cpu, rank.procs[0].pulse_from = None, every(5, 30), FAR
    return world, of.told("a first collective that never began", named=False, rule="never_began",
                          fault_at=30), SITE_60S


def gpu_lost(of: Size) -> Made:
    world = of.untied()
    world.said.append((FAULT, FAR, None, STUCK))
    world.ranks[of.odd].gpu_fault = [(FAULT, FAR, "GPU is lost")]
    return world, of.told("a GPU fell off the bus", named=False, suspect_within=30), ""


def metric(of: Size) -> Made:
    world = of.gang(step_settings=dict(METRIC), output=every(10))
    world.ranks[0].metric = every(5, FAULT)
    return world, of.told("the run's metric stands still, a heartbeat prints on", named=False,
                          rule="metric_unchanged"), ""


def finished(of: Size) -> Made:
    world = stuck(of.gang(busy=every(5, FAULT)))
    line = "End time of running main: 2026-02-05 18:00:31.710947"
    world.words = [(FAULT + 15, FAR, line)]
    return world, of.told("the training is over, its ranks hang at exit", named=False, finished=line, suspect_within=50,
                          cause="finished but not exited"), ""


# Stragglers

def slow(of: Size, title: str, values: dict[str, Any], says_: str) -> Made:
    world = cards(ill(of.odd, values, FAR), of.ranks, of.nodes, end=220)
    return world, {"title": f"{of.ranks} ranks: {title}", "source": "made up", "expect": "straggler",
                   "fault_at": SLOW_AT, "within": 75, "says": [says_]} | of.named(pid=False), WARM


def hot(of: Size) -> Made:
    return slow(of, "one GPU slowed down by heat", {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT},
                "slowed down by heat")


def capped(of: Size) -> Made:
    return slow(of, "one GPU capped at half of its power",
                {"sm_mhz": 1200.0, "power_w": 150.0, "limit_w": 300.0, "reasons": POWER_CAP}, "slowed down by power")


def slowed(of: Size) -> Made:
    return slow(of, "one GPU slowed down by the hardware", {"sm_mhz": 345.0, "reasons": HW_SLOWDOWN},
                "slowed down by the hardware")


def own_time(of: Size) -> Made:
    world, verdict, config = slow(of, "one rank's iterations take a third longer", {}, "step_seconds is 1.45 against")
    world.step_settings = {"straggler_metric": "step_seconds", "metrics_port": "9000"}
    for rank in world.ranks:
        late = rank.rank == of.odd
        rank.times = lambda t, late=late: 1.45 if late and t >= SLOW_AT else 1.1  # type: ignore[misc]
    return world, verdict, config


def stopped_one_version_back(of: Size) -> Made:
    world, verdict, config = stopped(of)
    world.wire = {node: 0 for node in world.nodes[::2]}
    title = f"{of.ranks} ranks: one is stopped, half of the nodes one wire version back"
    return world, verdict | {"title": title}, config


FAULTS: tuple[Callable[[Size], Made], ...] = (
    stopped, killed, zombie, storage, all_on_storage, sleeps, spins, loader_dead, locked, link_cut, watchdog, barrier,
    ras_missing, idle, never_began, gpu_lost, metric, finished, hot, capped, slowed, own_time,
    stopped_one_version_back)
