"""Recordings of gangs of which one worker holds the others back, and of such that only look so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scorecard.lookalikes import nothing
from scorecard.people import gang
from scorecard.world import FAR, World

Made = tuple[World, dict[str, Any], str]
WARM = "[straggler]\nwarmup_s = 60\n"
FAULT, CURED = 130.0, 250.0
HEAT, HW_THERMAL, POWER_CAP, HW_SLOWDOWN = 0x20, 0x40, 0x4, 0x8
WELL: dict[str, Any] = {"sm_mhz": 1980.0, "sm_max_mhz": 1980.0, "reasons": 0, "temp_c": 61.0, "slowdown_c": 90.0,
                        "power_w": 620.0, "limit_w": 700.0, "power_usual_w": 620.0}
OVER = ["Straggler over: the gang runs evenly again"]
Change = Callable[[int, int, float], dict[str, Any]]
"""What a GPU of a rank tells otherwise: (rank, index, second)."""


def cards(change: Change | None = None, count: int = 8, nodes: int = 4, **of_world: Any) -> World:
    """A gang of one GPU each whose GPUs tell all that they can."""
    settings = of_world.pop("step_settings", {})
    world = gang(count, nodes, end=of_world.pop("end", 330), step_settings=settings, **of_world)
    for rank in world.ranks:
        def told(t: float, index: int, number: int = rank.rank) -> dict[str, Any]:
            return WELL | {"uuid": f"GPU-{number}-{index}"} | (change(number, index, t) if change else {})
        rank.told = told
    return world


def ill(rank: int, values: dict[str, Any], until: float = CURED) -> Change:
    """One rank's GPU from the fault on."""
    return lambda number, index, t: values if number == rank and FAULT <= t < until else {}


def all_ill(values: dict[str, Any], ranks: tuple[int, ...] = tuple(range(64))) -> Change:
    return lambda number, index, t: values if number in ranks and t >= FAULT else {}


def slow(title: str, rank: int, says: str, source: str = "made up", *, node: str = "", expect: str = "straggler",
         over: list[str] | None = None, within: float = 75, **more: Any) -> dict[str, Any]:
    return {"title": title, "source": source, "expect": expect, "fault_at": FAULT, "within": within, "rank": rank,
            "worker": f"1001-{rank}", "node": node or f"c{rank // 2 + 1}", "says": [says],
            "over": OVER if over is None else over} | more


# The classes


def heat() -> Made:
    world = cards(ill(2, {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HW_THERMAL | HW_SLOWDOWN}))
    return world, slow("one GPU of eight slowed down by heat, then cured", 2,
                       "Worker 1001-2 (rank 2, on c2) holds the gang back: GPU 0 slowed down by heat: 1386 MHz against "
                       "1980 MHz across the gang, 92 °C"), WARM


def heat_by_counter() -> Made:
    def change(number: int, index: int, t: float) -> dict[str, Any]:
        return {"held_s": {"sw_thermal": max(0.0, min(t, CURED) - FAULT) * 0.4}} if number == 5 else {}
    return cards(change), slow("the clock is held by heat in bursts between the looks", 5, "slowed down by heat",
                               within=90), WARM


def power() -> Made:
    usual = {"power_w": 295.0, "limit_w": 300.0, "power_usual_w": 295.0, "reasons": POWER_CAP}
    one = ill(1, {"sm_mhz": 1200.0, "power_w": 150.0})
    world = cards(lambda number, index, t: usual | one(number, index, t), 4, 4)
    return world, slow("one GPU of four capped at 150 W of its 300 W", 1, "GPU 0 slowed down by power: 1200 MHz",
                       "l4rz/reverse-engineering-dell-idrac#3", node="c2"), WARM


def hardware() -> Made:
    return cards(ill(7, {"sm_mhz": 345.0, "reasons": HW_SLOWDOWN})), slow(
        "one GPU slowed down by the hardware", 7, "GPU 1 slowed down by the hardware: 345 MHz"), WARM


def clock() -> Made:
    return cards(ill(3, {"sm_mhz": 1500.0})), slow(
        "one GPU runs at three quarters of the others' clock, without a reason", 3,
        "GPU 1 runs slowly: 1500 MHz against 1980 MHz"), WARM


def times(values: Callable[[int, float], float], **of_world: Any) -> World:
    world = cards(step_settings={"straggler_metric": "step_seconds", "metrics_port": "9000"}, **of_world)
    for rank in world.ranks:
        rank.times = lambda t, number=rank.rank: values(number, t)
    return world


def own_time() -> Made:
    return times(lambda rank, t: 1.45 if rank == 6 and FAULT <= t < CURED else 1.1 + rank / 100), slow(
        "one rank's own time per iteration grows by a third", 6, "step_seconds is 1.45 against 1.1"), WARM


def many() -> Made:
    return cards(ill(40, {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT}), 64, 8, end=200), slow(
        "one GPU of 64 slowed down by heat", 40, "GPU 0 slowed down by heat", node="c6", over=[]), WARM


def one_task() -> Made:
    world = cards(count=1, nodes=1)
    rank = world.ranks[0]
    rank.procs = [gang(8, 1).ranks[n].procs[0] for n in range(8)]
    rank.gpus = list(range(8))
    rank.told = lambda t, index: WELL | ({"sm_mhz": 1386.0, "temp_c": 91.0, "reasons": HEAT} if (
        index == 5 and FAULT <= t < CURED) else {})
    return world, slow("torchrun: one task of eight GPUs, one of them slowed down by heat", 0,
                       "GPU 5 slowed down by heat: 1386 MHz", node="c1"), WARM


def at_risk() -> Made:
    return cards(ill(4, {"temp_c": 89.0})), slow(
        "one GPU close to its slowdown, at full speed", 4, "GPU 0 is close to its slowdown: 89 °C of 90 °C",
        expect="at_risk", over=["No longer at risk"]), WARM


def remap_pending() -> Made:
    return cards(ill(4, {"errors": {"ecc_uncorrected": 4, "remap_pending": 1}, "xids": [63]}, FAR)), slow(
        "a row remap is pending and errors were recovered: no straggler", 4, "a row remap pending",
        "leptonai/gpud#80", expect="at_risk", over=[]), WARM


# What only looks so


def all_capped() -> Made:
    return cards(lambda rank, index, t: {"reasons": POWER_CAP, "power_w": 690.0, "sm_mhz": 1650.0 + 50 * (rank % 4)}), \
        nothing("every GPU at its power limit, its driver says capped", "mlfoundations/open_clip#703"), WARM


def most_hot() -> Made:
    return cards(all_ill({"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT}, (0, 1, 2, 3, 4))), nothing(
        "five of eight GPUs slowed down by heat: the room is warm"), WARM


def warming_up() -> Made:
    return cards(ill(2, {"sm_mhz": 1386.0, "temp_c": 92.0, "reasons": HEAT}, FAR)), nothing(
        "one GPU slowed down within the gang's first ten minutes"), ""


def one_look() -> Made:
    return cards(lambda rank, index, t: {"sm_mhz": 1200.0, "reasons": HEAT} if (rank * 37 + t // 15 * 11) % 8 == 0
                 else {}), nothing("each look finds another GPU slow"), WARM


def equal_steps() -> Made:
    values = (293.0, 292.2, 293.0, 293.1, 293.0, 293.1, 292.9, 293.0)
    return times(lambda rank, t: values[rank]), nothing(
        "one rank is late, all-reduce makes all steps take equally long", "traceopt-ai/traceml#252",
        may_suspect=False), WARM


def noisy_steps() -> Made:
    values = (3.169, 3.446, 3.249, 3.172, 3.2, 3.3, 3.25, 3.18)
    return times(lambda rank, t: values[rank] * (1 + 0.05 * ((t // 15 + rank) % 3))), nothing(
        "times per iteration that differ by a tenth", "rwth-i6/returnn#1485"), WARM


def saves_on_rank_0() -> Made:
    world = cards(lambda rank, index, t: ({"busy": 0.0, "power_w": 90.0, "sm_mhz": 345.0} if rank == 0 else
                                          {"busy": 100.0, "power_w": 380.0}) if 130 <= t < 250 else {})
    world.ranks[0].writing = [(132, 250)]
    return world, nothing("rank 0 saves a checkpoint for two minutes, the others spin"), WARM


def evaluates_on_rank_0() -> Made:
    return cards(lambda rank, index, t: {"busy": 100.0, "power_w": 640.0 if rank == 0 else 380.0} if (
        130 <= t < 250) else {}), nothing("rank 0 evaluates for two minutes, the others spin"), WARM


def spins_beside_idle() -> Made:
    return cards(lambda rank, index, t: {"busy": 100.0, "power_w": 390.0} if rank == 3 else {"busy": 45.0}), nothing(
        "one rank's GPU spins while it waits: busier, at little of its usual power"), WARM


def another_make() -> Made:
    return cards(lambda rank, index, t: {"sm_mhz": 1410.0, "sm_max_mhz": 1410.0, "limit_w": 400.0, "power_w": 380.0,
                                         "power_usual_w": 380.0} if rank > 5 else {}), nothing(
        "a gang on GPUs of two makes"), WARM


STRAGGLERS: dict[str, Callable[[], Made]] = {
    "181-gpu-heat": heat, "182-gpu-heat-in-bursts": heat_by_counter, "183-gpu-power": power,
    "184-gpu-hardware": hardware, "185-gpu-clock": clock, "186-own-time": own_time, "187-one-of-64": many,
    "188-one-task-of-eight-gpus": one_task, "189-at-risk-hot": at_risk, "190-at-risk-remap-pending": remap_pending,
    "191-all-at-their-power-limit": all_capped, "192-most-are-hot": most_hot, "193-warming-up": warming_up,
    "194-another-each-look": one_look, "195-equal-steps": equal_steps, "196-noisy-steps": noisy_steps,
    "197-rank-0-saves": saves_on_rank_0, "198-rank-0-evaluates": evaluates_on_rank_0,
    "199-spins-beside-idle": spins_beside_idle, "200-two-makes": another_make,
}
