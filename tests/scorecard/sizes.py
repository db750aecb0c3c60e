"""The same causes and look-alikes in gangs of 2 to 1,024 ranks, written anew at each run: as files they take 100 MB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from astraeus_protocol.readings import Edge, Said

from scorecard.lookalikes import nothing
from scorecard.people import (
    FAULT,
    FUTEX,
    METRIC,
    NFS,
    POLL,
    RUNS,
    SITE_60S,
    edges,
    gang,
    on_storage,
    place,
    quiet,
    state,
    stuck,
)
from scorecard.ras import says
from scorecard.said import STUCK
from scorecard.stacks import REDUCE
from scorecard.stalls import expect
from scorecard.stragglers import FAULT as SLOW_AT
from scorecard.stragglers import HEAT, HW_SLOWDOWN, POWER_CAP, WARM, cards, ill
from scorecard.verdict import Case, parsed
from scorecard.world import FAR, World, every, record

Made = tuple[World, dict[str, Any], str]
NODES = {2: 2, 8: 2, 64: 8, 256: 32, 1024: 128}
END = 200.0


@dataclass(frozen=True)
class Size:
    """``odd``: the rank that something is wrong with."""

    ranks: int

    @property
    def nodes(self) -> int:
        return NODES[self.ranks]

    @property
    def odd(self) -> int:
        return max(1, self.ranks // 3)

    def gang(self, **more: Any) -> World:
        return gang(self.ranks, self.nodes, **({"end": END} | more))

    def untied(self, **more: Any) -> World:
        """Threads that spin, whose connections are not seen."""
        world = self.gang(output=every(5, FAULT), **more)
        for rank in world.ranks:
            for proc in rank.procs:
                proc.ties, proc.pulse_from = [], FAR
        return world

    def named(self, *, pid: bool = True) -> dict[str, Any]:
        """What a verdict says that names the odd rank."""
        node = f"c{self.odd // (self.ranks // self.nodes) + 1}"
        found = {"rank": self.odd, "worker": f"1001-{self.odd}", "node": node}
        return found | ({"pid": 4000 + self.odd} if pid else {})

    def told(self, title: str, named: bool = True, **more: Any) -> dict[str, Any]:
        who = self.named() if named else {"rank": None, "worker": "1001"}
        return expect(f"{self.ranks} ranks: {title}", **(who | more))

    def well(self, title: str, **more: Any) -> dict[str, Any]:
        return nothing(f"{self.ranks} ranks: {title}", **more)

    def stuck(self) -> World:
        return stuck(self.gang(), odd=(self.odd,))


# Faults

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


# Look-alikes

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


def stopped_one_version_back(of: Size) -> Made:
    world, verdict, config = stopped(of)
    world.wire = {node: 0 for node in world.nodes[::2]}
    title = f"{of.ranks} ranks: one is stopped, half of the nodes one wire version back"
    return world, verdict | {"title": title}, config


FAULTS: tuple[Callable[[Size], Made], ...] = (
    stopped, killed, zombie, storage, all_on_storage, sleeps, spins, loader_dead, locked, link_cut, watchdog, barrier,
    ras_missing, idle, never_began, gpu_lost, metric, finished, hot, capped, slowed, own_time,
    stopped_one_version_back)
WELL: tuple[Callable[[Size], Made], ...] = (
    saves, suspended, barrier_long, evaluates, debugged, lost, clocks_wrong, warm_room, compiles, cuda_graphs,
    quiet_rl, one_version_back)
LARGEST = (stopped, all_on_storage, sleeps, hot, saves)
"""Run with 1,024 ranks, too: one each of state, storage, place, GPUs and look-alikes. Each takes three seconds."""
NOT_OF_2 = (zombie,)
"""Of two one is no minority: that a process of unseen end is to blame can't be known."""


def _made(make: Callable[[Size], Made], ranks: int) -> Callable[[], Made]:
    return lambda: make(Size(ranks))


CASES: dict[str, Callable[[], Made]] = {
    f"{make.__name__.replace('_', '-')}-of-{ranks}": _made(make, ranks) for make in (*FAULTS, *WELL) for ranks in NODES
    if (ranks < 1024 or make in LARGEST) and not (ranks == 2 and make in NOT_OF_2)}


def case(name: str) -> Case:
    """A sized case, written now."""
    return parsed(name, record(*CASES[name]()))
