"""``make bench-rules``: how long one round of the judge takes, measured here and now. About a minute.

80,000 workers on 10,000 nodes, in jobs of 8 to 1,024 ranks, some of which are stalled and some of which have a worker
that holds them back; and one job of 64 ranks alone, well and stalled. A round is what the controller does with a job
whenever it judges it: the picture out of its nodes' reports, all rules, and what that changes in the open findings.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from astraeus_controller.config import parse
from astraeus_controller.fleet import Fleet
from astraeus_controller.judging.pass_ import Pass
from astraeus_controller.slurm.types import JobFacts
from astraeus_protocol.report import Report
from scorecard.people import place, quiet, state, stuck
from scorecard.stragglers import HEAT, WARM, cards, ill
from scorecard.world import BOOT, EVERY, WALL, World

from .machine import machine
from .node import ROOT

FLEET = ((1024, 30), (256, 100), (64, 200), (8, 1360))
"""Ranks of a job, and how many such jobs: 80,000 workers on 10,000 nodes."""
LOOKS = range(60, 256, EVERY)
"""When the nodes report, seconds from the jobs' start. What is wrong begins at 120 and 130 s."""
SWEPT = 4
"""So many of the last looks are swept and timed: by then all stalls and stragglers are known."""
ALONE = 200
"""Rounds of the one job."""
GOALS = {"sweep_80000_ms": 2000.0, "round_64_ms": 1.6, "round_64_stalled_ms": 1.6}
OUT = ROOT / "docs" / "bench-rules.json"


def sick(world: World, number: int) -> World:
    """Of twenty jobs one has a stopped rank, one a rank that sleeps, two a GPU that is hot."""
    match number % 20:
        case 3:
            state(stuck(world, odd=(1,)), 1, "T")
        case 7:
            quiet(place("hrtimer_nanosleep", "clock_nanosleep"), guilty=1, world=world)
        case 11 | 15:
            change = ill(1, {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT}, 1e9)
            healthy = world.ranks[1].told
            world.ranks[1].told = lambda t, index: (healthy(t, index) if healthy else {}) | change(1, index, t)
    return world


def job(number: int, ranks: int, first_node: int, kind: int) -> World:
    """Eight ranks on each node, a GPU each; ``kind``: as in ``sick``."""
    asked = {"stall_after": "60"}
    world = sick(cards(None, ranks, max(1, ranks // 8), job=number, step_settings=asked, end=10_000), kind)
    for rank in world.ranks:
        rank.node = f"n{first_node + rank.rank // 8:05}"
    return world


class Cluster:
    """Jobs and the controller's picture of them, without a clock."""

    def __init__(self, worlds: list[World]) -> None:
        self.fleet = Fleet(parse(WARM, "bench"), "lab", WALL - BOOT)
        self.passes = Pass(self.fleet, "lab")
        self.worlds, self.seq = worlds, 0
        self.workers = sum(len(world.ranks) for world in worlds)
        self.by_node: dict[str, tuple[World, World]] = {}
        for world in worlds:
            for node in world.nodes:
                part = World(**{**vars(world), "ranks": [r for r in world.ranks if r.node == node]})
                self.by_node[node] = (world, part)

    def look(self, t: float) -> float:
        """All nodes report, and Slurm is asked; the fleet's time afterwards."""
        now, self.seq = BOOT + t, self.seq + 1
        for node, (world, part) in self.by_node.items():
            told = part.job_at(node, t)
            assert told is not None
            told.nodes = told.steps[0].nodes = len(world.ranks) // 8
            told.steps[0].tasks = len(world.ranks)
            if node != world.ranks[0].node:
                told.steps[0].output_s = None
            self.fleet.report(Report(node=node, boot="b", session=f"s-{node}", seq=self.seq, nonce=f"{node}-{self.seq}",
                                     at=WALL + t, cluster="lab", jobs=[told]), now)
        for world in self.worlds:
            self.fleet.job_facts(JobFacts(**world.facts_at(t)), now + 0.1)
        return now + 0.2

    def sweep(self, now: float) -> Iterator[float]:
        """Judges all jobs; seconds of CPU that each took: others on the machine take wall time."""
        for number in list(self.fleet.jobs):
            began = time.process_time()
            for picture in self.fleet.pictures(now, [number]):
                self.passes.judge(picture, now)
            yield time.process_time() - began


def fleet_of(sizes: tuple[tuple[int, int], ...]) -> Cluster:
    worlds: list[World] = []
    node = 0
    for ranks, count in sizes:
        for kind in range(count):
            worlds.append(job(1001 + len(worlds), ranks, node, kind))
            node += max(1, ranks // 8)
    return Cluster(worlds)


def swept() -> dict[str, Any]:
    """The whole fleet: milliseconds of a sweep, and what had been found by its end."""
    cluster = fleet_of(FLEET)
    gc.freeze()  # who plays the nodes is no part of a controller
    runs, longest = [], 0.0
    for place_, t in enumerate(LOOKS):
        now = cluster.look(t)
        gc.collect()
        took = list(cluster.sweep(now))
        if place_ >= len(LOOKS) - SWEPT:
            runs.append(sum(took) * 1000)
            longest = max(longest, max(took) * 1000)
        print(f"bench-rules: {t} s: {sum(took) * 1000:.0f} ms", file=sys.stderr, flush=True)
    kinds = [finding.kind for finding in cluster.passes.memory]
    return {"workers": cluster.workers, "nodes": len(cluster.by_node), "jobs": len(cluster.worlds),
            "stalled": kinds.count("stalled"), "stragglers": kinds.count("straggler"),
            "sweep_80000_ms": round(statistics.median(runs), 1), "sweeps": [round(run, 1) for run in runs],
            "longest_job_ms": round(longest, 1)}


def alone(kind: int) -> float:
    """Milliseconds of a round of one job of 64 ranks, the median."""
    cluster = Cluster([job(1001, 64, 0, kind)])
    for t in LOOKS:
        now = cluster.look(t)
        list(cluster.sweep(now))
    runs = [sum(cluster.sweep(now)) * 1000 for _ in range(ALONE)]
    return round(statistics.median(runs), 3)


def main() -> int:
    """0: all was measured; whether goals are met is said beside each figure, and by the exit code 1."""
    figures = {"round_64_ms": alone(0), "round_64_stalled_ms": alone(7)} | swept()
    missed = [name for name, most in GOALS.items() if figures[name] > most]
    for name, most in GOALS.items():
        print(f"{name:<22}{figures[name]:>10.2f}{most:>10g}  {'OVER' if name in missed else 'ok'}")
    print(", ".join(f"{name} {figures[name]}" for name in ("workers", "nodes", "jobs", "stalled", "stragglers",
                                                            "longest_job_ms")))
    if "--keep" in sys.argv[1:]:
        OUT.write_text(json.dumps(figures | {"goals": GOALS, "machine": machine()}, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
