"""Gangs and single workers that the cases start from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from astraeus_protocol.readings import Edge, Place, Wait

from scorecard.world import FAR, Proc, Rank, Times, World, every

ASKED = {"stall_after": "60"}
SITE_60S = '[watch]\nstall_after = "60s"\n'
METRIC = {"stall_after": "60", "progress_metric": "step"}
FAULT = 120.0


def ring(count: int, first_tie: int = 100) -> list[list[int]]:
    """Connections of a ring: each process shares one with the next and one with the one before."""
    return [[first_tie + i, first_tie + (i - 1) % count] for i in range(count)]


def gang(count: int = 8, nodes: int = 4, *, gpus: bool = True, busy: Times | None = None,
         **of_world: Any) -> World:
    """A tied gang that steps and prints. Its GPUs are busy all the time, also while it waits."""
    ties = ring(count)
    per_node = count // nodes
    ranks = [Rank(rank=i, node=f"c{i // per_node + 1}", procs=[Proc(pid=4000 + i, rank=str(i), ties=ties[i])],
                  gpus=[i % per_node] if gpus else [], busy=busy or every(5)) for i in range(count)]
    return World(ranks=ranks, step_settings=of_world.pop("step_settings", dict(ASKED)), **of_world)


def stuck(world: World, at: float = FAULT, until: float = FAR, *, odd: tuple[int, ...] = ()) -> World:
    """From ``at`` on nobody prints and everybody but ``odd`` waits."""
    world.output = every(10, at, until)
    for rank in world.ranks:
        if rank.rank not in odd:
            for proc in rank.procs:
                proc.gone.append((at + 2, until))
    return world


def state(world: World, rank: int, letter: str, at: float = FAULT, until: float = FAR,
          status: int | None = None) -> World:
    """One rank's process in an odd state."""
    world.ranks[rank].procs[0].odd.append((at, until, letter, status))
    return world


NFS = Wait("rpc_wait_bit_killable", 0.0, "read", "store1:/export", "/data", "nfs4")
FUSE = Wait("request_wait_answer", 0.0, "openat", "store1:/export", "/data", "fuse.sshfs")


def on_storage(world: World, ranks: Iterable[int], wait: Wait = NFS, at: float = FAULT, until: float = FAR,
               letter: str = "") -> World:
    """These ranks wait for a store, without a pulse, in S or in D."""
    for rank in ranks:
        proc = world.ranks[rank].procs[0]
        proc.gone = [(at, until)]
        proc.waits.append((at, until, wait))
        if letter:
            state(world, rank, letter, at, until)
    return world


FUTEX = Place("futex_do_wait", "futex", 1.0, 25, threads=7)
RUNS = Place("", "", 1.0, 25, user=99.0, threads=7)
POLL = Place("poll_schedule_timeout.constprop.0", "poll", 1.0, 25, threads=7)
SPINS = Place("", "", 0.92, 25, user=15.0, system=85.0, threads=3)


def place(channel: str, call: str) -> Place:
    """All samples found it there, as in the table of 46 hung runs."""
    return Place(channel, call, 1.0, 25, threads=7)


def quiet(odd: Place, *, guilty: int = 2, others: Place = FUTEX, cpu: tuple[float, float] = (0.4, 0.5),
          until: float = FAR, world: World | None = None) -> World:
    """Four ranks without GPUs that wait for one of them: nobody is in an odd state, all have lost their pulse.
    ``cpu``: of the guilty rank and of the others."""
    world = stuck(world or gang(4, 4, gpus=False), until=until)
    for rank in world.ranks:
        own = rank.rank == guilty
        rank.procs[0].places.append((FAULT, until, odd if own else others))
        rank.procs[0].cpu.append((FAULT, until, cpu[not own]))
    return world


def edges(world: World, rank: int, *ends: Edge, until: float = FAR) -> World:
    """What its connections show: of a ring, tie 100 + i lies between rank i and the next."""
    world.ranks[rank].procs[0].edges.append((FAULT, until, list(ends)))
    return world


def alone(**of_rank: Any) -> Rank:
    """One task with one process."""
    return Rank(rank=0, node=of_rank.pop("node", "c1"), procs=[Proc(pid=of_rank.pop("pid", 4000))], **of_rank)


def launcher(count: int = 4, **of_world: Any) -> World:
    """sbatch without srun: the batch step's task is a launcher with tied processes of its own."""
    ties = ring(count)
    procs = [Proc(pid=4240 + i, rank=str(i), ties=ties[i]) for i in range(count)]
    rank = Rank(rank=0, node="c1", procs=procs, gpus=[0, 1], busy=every(5))
    return World(ranks=[rank], step="batch", job_settings=dict(ASKED), **of_world)


def unseen(world: World, to: str, quiet: Times, ranks: Iterable[int] | None = None) -> World:
    """The output of these ranks goes where nobody sees it; ``quiet``: when they last wrote anything."""
    for rank in world.ranks if ranks is None else [world.ranks[rank] for rank in ranks]:
        rank.to, rank.quiet = to, quiet
    return world
