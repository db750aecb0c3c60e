"""Gangs and single workers that the cases start from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from astraeus_protocol.report import Wait

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


def alone(**of_rank: Any) -> Rank:
    """One task with one process."""
    return Rank(rank=0, node=of_rank.pop("node", "c1"), procs=[Proc(pid=of_rank.pop("pid", 4000))], **of_rank)


def launcher(count: int = 4, **of_world: Any) -> World:
    """sbatch without srun: the batch step's task is a launcher with tied processes of its own."""
    ties = ring(count)
    procs = [Proc(pid=4240 + i, rank=str(i), ties=ties[i]) for i in range(count)]
    rank = Rank(rank=0, node="c1", procs=procs, gpus=[0, 1], busy=every(5))
    return World(ranks=[rank], step="batch", job_settings=dict(ASKED), **of_world)
