"""Recordings of stalls each with its cause in words, of allocations that run nothing, and of what only looks so."""
# ruff: noqa: E501 - posted lines are long

from __future__ import annotations

from typing import Any

from astraeus_protocol.readings import Said, Wait, Work

from scorecard.lookalikes import nothing
from scorecard.people import FAULT, NFS, POLL, SITE_60S, alone, gang, on_storage, quiet, state, stuck
from scorecard.said import said, untied
from scorecard.stalls import expect
from scorecard.world import FAR, Rank, World, every

Made = tuple[World, dict[str, Any], str]
SITE_10M = SITE_60S.replace("60s", "10m")


# A gang that hangs

def loader_waits_for_a_store() -> Made:
    world = on_storage(stuck(gang(), odd=(5,)), [5], NFS)
    return world, expect("rank 5 reads from a store that does not answer", rule="collective_stuck", rank=5, worker="1001-5",
                         waits_on=["store1:/export"], within=100,
                         cause="waiting on storage: store1:/export (mounted at /data, nfs4)"), ""


def loader_killed() -> Made:
    world = quiet(POLL, guilty=2)
    world.ranks[2].killed = FAULT - 2
    return world, expect("the data loader of rank 2 was killed for lack of memory", rule="silent", rank=2, worker="1001-2",
                         cause="data loader dead: a process of rank 2 on c3 was killed for lack of memory"), ""


def gpu_is_lost() -> Made:
    world = said(untied(output=every(5, FAULT)))
    world.ranks[3].gpu_fault = [(FAULT, FAR, "GPU is lost")]
    return world, expect("a GPU fell off the bus, the others' watchdogs speak", rule="collective_said", rank=None,
                         worker="1001", cause="GPU lost: rank 3 on c2 (GPU 1: GPU is lost)"), ""


def driver_does_not_answer() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "D")
    world.ranks[5].gpu_fault = [(FAULT, FAR, "the driver does not answer")]
    return world, expect("rank 5 is in D, its GPU's driver does not answer", "leptonai/gpud xid 119", rank=5,
                         worker="1001-5", rule="collective_stuck",
                         cause="driver not answering: rank 5 on c3 (GPU 1: the driver does not answer)"), ""


def in_the_driver() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "D")
    world.ranks[5].procs[0].waits.append((FAULT, FAR, Wait("nvidia_close", 0.0, "ioctl")))
    return world, expect("rank 5 is in D inside the driver", rank=5, worker="1001-5", rule="collective_stuck",
                         cause="driver not answering: rank 5 on c3 is in nvidia_close"), ""


def under_a_debugger() -> Made:
    world = gang(4, 2, busy=every(5, FAULT), step_settings={}, output=every(10, FAULT))
    world.ranks[1].procs[0].traced.append((FAULT, FAR))
    return world, expect("a debugger holds rank 1, the GPUs idle", rule="gpus_idle", rank=None, worker="1001",
                         cause="under a debugger: rank 1 on c1"), SITE_60S


def first_collective() -> Made:
    world = gang(4, 2, output=every(10, 30), step_settings={})
    for rank in world.ranks:
        rank.busy, rank.cpu, rank.procs[0].pulse_from = None, every(5, 30), FAR
    return world, expect("four ranks wait for each other from the start, no GPU was ever busy", fault_at=30,
                         rule="never_began", rank=None, worker="1001",
                         cause="waiting for a first collective that never began"), SITE_60S


def most_are_gone() -> Made:
    world = stuck(gang(), odd=tuple(range(6)))
    for rank in range(6):
        world.ranks[rank].exit = (FAULT, 9)
    return world, expect("six of eight ranks are killed, two wait for ever", rule="collective_stuck", rank=None,
                         worker="1001", cause="most ranks gone: 6 of 8"), ""


def killed_for_memory() -> Made:
    world = stuck(gang(), odd=(5,))
    world.ranks[5].procs[0].odd.append((FAULT, FAR, "X", 9))
    world.ranks[5].killed = FAULT
    return world, expect("rank 5 itself was killed for lack of memory", rule="collective_stuck", rank=5, worker="1001-5",
                         cause="rank gone: killed by signal 9 (KILL), for lack of memory"), ""


# PyTorch's numbers

LINE = "[rank0]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank 0] Timeout at NCCL work: 808"


def numbers(*works: tuple[int, int, int | None], title: str, cause: str = "collective stuck: #808", **more: Any) -> Made:
    world = said(untied(output=every(5, FAULT)), Said(
        "stuck", "nccl", LINE, rank=0, seq=808, works=tuple(Work(*work) for work in works)))
    return world, expect(title, "PyTorch 2.5, wording of its watchdog", rule="collective_said",
                         cause=cause, **more), ""


def late_by_its_numbers() -> Made:
    waits = [(rank, 811 + rank % 2, 807) for rank in range(8) if rank != 5]
    return numbers(*waits, (5, 807, 807), title="rank 5 has not enqueued what the others wait for", rank=5,
                   worker="1001-5", cause="collective stuck: #808, rank 5 does not join it", says=["rank 5 (node c3, PID 4005) is late: the last work that it enqueued is #807, "
                                          "the others' up to #812; 7 of 8 ranks that tell it enqueued more"])


def equal_numbers() -> Made:
    return numbers(*[(rank, 811, 807) for rank in range(8)], title="all ranks enqueued the same: nobody", rank=None,
                   worker="1001", says=["no rank stands out"])


def all_ran_ahead() -> Made:
    return numbers(*[(rank, 811 + rank, 807) for rank in range(8)], rank=None, worker="1001",
                   title="all have enqueued what is stuck, some ran further ahead: nobody", says=["no rank stands out"])


def garbage_numbers() -> Made:
    return numbers(*[(rank, 811, 76280750235782912 if rank else -1) for rank in range(4)], (5, -1, -1),
                   title="numbers that are none", rank=None, worker="1001", says=["no rank stands out"])


# An allocation that runs nothing

def sleeps(at: float = FAULT, **more: Any) -> World:
    """A batch script that sleeps from ``at`` on: its step is over."""
    rank = alone(gpus=[0, 1], busy=every(5, at), cpu=every(5, at), rests=lambda t: at if t >= at else t, **more)
    rank.procs[0].pulse_from = FAR
    return World(ranks=[rank], step="batch", output=every(10, at), end=at + 680)


ASLEEP = {"rule": "nothing_runs", "rank": None, "worker": "1001", "after": 600, "within": 625,
          "cause": "an allocation that runs nothing: 2 GPUs held, no step, and the batch script only waits"}


def asleep_after_a_failure() -> Made:
    return sleeps(), expect(
        "the step crashed, the script sleeps for ever", "guilbaults/slurm-job-exporter#65", **ASLEEP, suspect_within=320,
        says=["no output since 13:02 UTC; nothing runs: 2 GPUs held, no step, and the batch script only waits for 10m"]), SITE_10M


def runs_again() -> Made:
    world = sleeps()
    world.end = 900
    world.ranks[0].rests = lambda t: 120 if 120 <= t < 800 else t
    world.ranks[0].busy, world.output = every(5, FAULT, 800), every(10, FAULT, 800)
    return world, expect("a script sleeps for eleven minutes and then goes on", **ASLEEP, closed=["progress"]), SITE_10M


def nobody_on_the_gpus() -> Made:
    world = sleeps(on_gpu=[(0, FAULT, [4000]), (FAULT, FAR, [])])
    world.ranks[0].rests = lambda t: t  # it is there all the time
    return world, expect("a program lives on that uses neither GPU nor CPU", rule="nothing_runs", rank=None, worker="1001",
                         after=600, within=625, suspect_within=325,
                         cause="an allocation that runs nothing: 2 GPUs held, and no process on them"), SITE_10M


def stages_data() -> Made:
    world = World(ranks=[Rank(0, "c1", alone().procs, gpus=[0, 1], on_gpu=[(0, FAR, [])])], step="batch",
                  output=every(10, 30), end=560)
    world.ranks[0].procs[0].pulse_from = FAR
    return world, nothing("a script unpacks its data for eight minutes before anything opens a GPU"), SITE_10M


def between_two_steps() -> Made:
    world = sleeps()
    world.ranks[0].rests = lambda t: 120 if 120 <= t < 180 else t
    world.ranks[0].cpu, world.ranks[0].busy = every(5, 120, 180), every(5, 120, 180)
    world.output = every(10, 120, 180)
    return world, nothing("a script takes a minute between its two steps"), SITE_10M


def interactive_shell() -> Made:
    world = sleeps()
    world.facts = {"batch": False}
    return world, nothing("a person holds GPUs in a shell and thinks"), SITE_10M


def others_on_the_gpus() -> Made:
    world = sleeps(on_gpu=[(0, FAR, [9000])])
    world.end = 700
    return world, nothing("a script waits for a program outside of its tree that is on the GPUs"), SITE_10M


def rank_0_prepares() -> Made:
    world = gang(4, 2, output=every(10, 30), step_settings={}, end=600)
    for rank in world.ranks:
        rank.busy, rank.procs[0].pulse_from = None, FAR
        rank.cpu = every(5) if rank.rank == 0 else every(5, 30)
    return world, nothing("rank 0 tokenises without a word, the others wait for it; no GPU was ever busy",
                          "hiyouga/LlamaFactory#2424"), SITE_60S


CAUSES = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    loader_waits_for_a_store, loader_killed, gpu_is_lost, driver_does_not_answer, in_the_driver, under_a_debugger,
    first_collective, most_are_gone, killed_for_memory, late_by_its_numbers, equal_numbers, all_ran_ahead,
    garbage_numbers, asleep_after_a_failure, nobody_on_the_gpus, stages_data, between_two_steps, interactive_shell,
    others_on_the_gpus, rank_0_prepares, runs_again), 161)}
