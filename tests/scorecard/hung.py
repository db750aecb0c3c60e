"""Recordings of gangs that wait for one of them that is in no odd state: the table of hung runs, fault by fault."""

from __future__ import annotations

from typing import Any

from astraeus_protocol.readings import Edge, Place

from scorecard.people import FAULT, FUTEX, RUNS, SPINS, edges, place, quiet, state, stuck
from scorecard.world import FAR, World, every

Made = tuple[World, dict[str, Any], str]
RANK_2 = {"worker": "1001-2", "rank": 2, "pid": 4002, "node": "c3"}
NOBODY = {"worker": "1001", "rank": None}
IN_FUTEX = "; 3 of 3 other ranks wait in futex_do_wait (futex)"


def hung(title: str, source: str = "46 hung gloo runs, measured", **more: Any) -> dict[str, Any]:
    return {"title": title, "source": source, "expect": "stalled", "fault_at": FAULT, "after": 60, "within": 80,
            "rule": "silent"} | more


def gloo(fault: str, channel: str, call: str, words: str) -> Made:
    """A gloo gang whose rank 2 hangs outside of the collective."""
    return quiet(place(channel, call)), hung(
        f"gloo, rank 2: {fault}", **RANK_2, suspect_within=50,
        says=[f"rank 2 (node c3, PID 4002) {words} {channel} ({call}){IN_FUTEX}"]), ""


def sleeps() -> Made:
    return gloo("time.sleep", "hrtimer_nanosleep", "clock_nanosleep", "sleeps in")


def flock() -> Made:
    return gloo("a lock on a file that another process holds", "locks_lock_inode_wait", "flock", "is in")


def fifo() -> Made:
    return gloo("opens a FIFO that nobody writes to", "wait_for_partner", "openat", "is in")


def http() -> Made:
    return gloo("a server that does not answer", "wait_woken", "recvfrom", "is in")


def subproc() -> Made:
    return gloo("waits for a program that it started", "do_wait", "wait4", "is in")


def loader_stopped() -> Made:
    return gloo("its data loader is stopped", "unix_stream_read_generic", "read", "is in")


def loader_dead_locked() -> Made:
    return gloo("its data loader is dead-locked", "poll_schedule_timeout.constprop.0", "poll", "is in")


def loader_killed() -> Made:
    world, verdict, config = loader_dead_locked()
    world.ranks[2].killed = FAULT - 5
    verdict["title"] = "gloo, rank 2: its data loader was killed for lack of memory"
    verdict["says"].append("; a process of rank 2 on c3 was killed for lack of memory at 13:01 UTC")
    return world, verdict, config


def spins() -> Made:
    # Not suspect before: it may compile or tokenise.
    return quiet(RUNS, cpu=(99.4, 0.4)), hung(
        "gloo, rank 2: while True", **RANK_2,
        says=[f"rank 2 (node c3, PID 4002) runs: its main thread uses 99 % of a core{IN_FUTEX}"]), ""


def lock() -> Made:
    return quiet(FUTEX), hung("gloo, rank 2: a lock held twice; all main threads are in futex, nobody is named",
                              **NOBODY, suspect_within=50, says=["no rank stands out"]), ""


def halves() -> Made:
    world = quiet(place("hrtimer_nanosleep", "clock_nanosleep"))
    world.ranks[1].procs[0].places = list(world.ranks[2].procs[0].places)
    return world, hung("two of four sleep, two wait: no minority", **NOBODY, says=["no rank stands out"]), ""


def two_have_their_data() -> Made:
    world = quiet(FUTEX, others=place("poll_schedule_timeout.constprop.0", "poll"))
    return world, hung("three of four wait for their data, one has it and waits for them: no waiter is named",
                       **NOBODY, says=["no rank stands out"]), ""


def ring_sleeps() -> Made:
    world = quiet(place("hrtimer_nanosleep", "clock_nanosleep"), cpu=(0.0, 56.6))
    return world, hung("MLX ring, rank 2 sleeps, the others' helpers spin", **RANK_2, suspect_within=50,
                       says=[f"sleeps in hrtimer_nanosleep (clock_nanosleep){IN_FUTEX}"]), ""


def ring_locked() -> Made:
    return quiet(FUTEX, cpu=(0.0, 61.4)), hung(
        "MLX ring, rank 2: a lock held twice; it alone uses no CPU", **RANK_2, suspect_within=50,
        says=["rank 2 (node c3, PID 4002) uses 0.0 % of a core, in futex_do_wait (futex); "
              "3 of 3 other ranks spin at 61 % of a core or more"]), ""


def ring_spins() -> Made:
    return quiet(Place("", "", 1.0, 25, user=27.0), cpu=(27.0, 54.5)), hung(
        "MLX ring, rank 2 spins in its main thread", **RANK_2,
        says=[f"runs: its main thread uses 27 % of a core{IN_FUTEX}"]), ""


def mpi_sleeps() -> Made:
    world = quiet(place("hrtimer_nanosleep", "clock_nanosleep"), others=SPINS, cpu=(0.0, 37.7))
    return world, hung("Open MPI, rank 2 sleeps, the others spin in sched_yield", **RANK_2, suspect_within=50,
                       says=["sleeps in hrtimer_nanosleep (clock_nanosleep); 3 of 3 other ranks spin"]), ""


def mpi_stopped() -> Made:
    world = state(stuck(quiet(place("do_signal_stop", ""), others=SPINS, cpu=(0.0, 37.7)), odd=(2,)), 2, "T")
    return world, hung("Open MPI, rank 2 stopped", "Open MPI 4.1.4, measured", **RANK_2,
                       suspect_within=30, says=["is stopped (state T)"]), ""


def link_cut() -> Made:
    world = quiet(FUTEX)
    edges(world, 0, Edge(100), Edge(103))
    edges(world, 1, Edge(101, unacked=1, backoff=8, sent_s=8.9, rcvd_s=63.6), Edge(100))
    edges(world, 2, Edge(101), Edge(102))
    edges(world, 3, Edge(102, unacked=106, backoff=8, sent_s=9.0, rcvd_s=63.7), Edge(103))
    return world, hung("the link of rank 2 is cut", "gloo over four network namespaces, measured", **RANK_2,
                       suspect_within=50, says=["rank 2 (node c3, PID 4002) is cut off: all 2 connections to it that "
                                                "are in use go unanswered; 3 of 3 other ranks wait"]), ""


def does_not_drain() -> Made:
    world = quiet(FUTEX)
    edges(world, 0, Edge(100), Edge(103))
    edges(world, 1, Edge(101), Edge(100, queued=4_000_000))
    edges(world, 2, Edge(101, queued=9_000_000), Edge(102))
    edges(world, 3, Edge(102), Edge(103))
    return world, hung("rank 2 does not read what it is sent, 4 MB lie at another", "MLX ring 0.32.4, measured",
                       **RANK_2, suspect_within=50,
                       says=["does not read what it is sent: 9.0 MB wait at its connections; 3 of 3 other "
                             "ranks wait"]), ""


def healthy_odd_one_out() -> Made:
    world = quiet(place("hrtimer_nanosleep", "clock_nanosleep"))
    for rank in world.ranks:
        rank.procs[0].gone.clear()
    world.output = every(10)
    return world, {"title": "a healthy gang of which a closer look finds one elsewhere: it has its pulse",
                   "source": "22 of 40 single looks at healthy gloo jobs", "expect": "nothing"}, ""


def tokenises() -> Made:
    world = quiet(RUNS, guilty=0, cpu=(99.0, 0.4), until=FAULT + 55)
    return world, {"title": "rank 0 tokenises for 55 s, the others wait for it: not even suspect",
                   "source": "huggingface/transformers#21858", "expect": "nothing"}, ""


def slow_rank() -> Made:
    world = quiet(Place("hrtimer_nanosleep", "clock_nanosleep", 0.89, 25), cpu=(4.3, 4.1))
    for rank in world.ranks:
        rank.procs[0].gone.clear()
    world.output = every(40)
    return world, {"title": "rank 2 sleeps 0.3 s in each step: all have a pulse",
                   "source": "46 hung gloo runs, measured", "expect": "nothing"}, ""


def checkpoint_by_one() -> Made:
    world = quiet(Place("", "", 0.63, 25, user=30.0, system=25.0), cpu=(54.7, 1.5), until=260)
    world.ranks[2].writing = [(FAULT, 260)]
    return world, {"title": "rank 2 writes a checkpoint, the others wait for it",
                   "source": "46 hung gloo runs, measured", "expect": "nothing"}, ""


def under_a_debugger() -> Made:
    world = quiet(place("anon_pipe_read", "read"))
    world.ranks[2].procs[0].traced = [(FAULT, FAR)]
    world.output = every(40)
    return world, {"title": "rank 2 sits at a debugger's prompt, and is traced", "expect": "nothing",
                   "source": "made up"}, ""


HUNG = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    sleeps, flock, fifo, http, subproc, loader_stopped, loader_dead_locked, loader_killed, spins, lock, halves,
    two_have_their_data, ring_sleeps, ring_locked, ring_spins, mpi_sleeps, mpi_stopped, link_cut, does_not_drain,
    healthy_odd_one_out, tokenises, slow_rank, checkpoint_by_one, under_a_debugger), 101)}
