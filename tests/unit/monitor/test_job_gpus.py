"""A job's GPUs: what each worker is told to have, and when it is known to progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from astraeus_monitor.sources.gpu import Answer, Reading, Slow
from astraeus_monitor.watch.gpus import OPENED, WHICH, JobGpus, progresses


def worker(rank: int = 0, visible: str | None = None, tree: tuple[int, ...] = (40,), gone_s: float | None = None,
           output_at: float | None = None) -> Any:
    pulse = SimpleNamespace(gone_s=lambda now: gone_s)
    return SimpleNamespace(
        rank=rank, tree=[(pid, 1) for pid in tree], holds_gpu={}, has_file=output_at is not None,
        growth=SimpleNamespace(last=output_at),
        roster=SimpleNamespace(processes=[SimpleNamespace(visible=visible, gone=False, pulse=pulse)]))


def step(gap: float | None = None) -> Any:
    return SimpleNamespace(step="0", gpus={}, shared_seen=False, growth=SimpleNamespace(last=0.0),
                           gaps=SimpleNamespace(median=lambda: gap))


def whole(index: int, pids: list[int], mig: list[str] | None = None) -> Reading:
    return Reading(index, f"GPU-{index}", 97, power_w=600, slow=Slow(pids=pids, mig=mig))


def test_processes_tell_where_nothing_is_bound() -> None:
    gpus = JobGpus([0, 1], 100)
    one = worker(tree=(40, 41))
    assert [gpu.index for gpu in gpus.of(step(), one, 100)[0]] == [0, 1]
    gpus.see(Answer([whole(0, [9]), whole(1, [41])]), [(step(), one)], 115)
    assert [gpu.index for gpu in gpus.of(step(), one, 115)[0]] == [1]
    gpus.see(Answer(fault="driver not answering"), [(step(), one)], 130)
    records, unknown = gpus.of(step(), one, 130)
    assert (records[0].busy, unknown[0].reason) == (None, "GPU 1: driver not answering")


def test_beside_instances_only_a_uuid_tells() -> None:
    """Slurm's GPU 1 may be the second instance of the first GPU, which is no business of GPU 1's."""
    gpus = JobGpus([1], 100)
    answer = Answer([whole(0, [], ["MIG-a", "MIG-b"]), whole(1, [])])
    gpus.see(answer, [], 115)
    records, unknown = gpus.of(step(), worker(visible="0"), 115)
    assert (records[0].busy, unknown[0].reason) == (None, f"GPU 1: {WHICH}")
    mine = worker(1, visible="MIG-b")
    assert [(gpu.index, gpu.mig) for gpu in gpus.of(step(), mine, 115)[0]] == [(0, "MIG-b")]
    assert gpus.of(step(), worker(2, visible="GPU-1"), 115)[0][0].busy == 97


@pytest.mark.parametrize(("gone_s", "output_at", "gap", "works"), [
    (0, None, None, True),       # its pulse is there
    (12.0, 1000, None, False),   # gone: what it printed before tells nothing
    (None, 975, None, True),
    (None, 960, None, False),
    (None, 960, 20.0, True),     # it prints each 20 s
    (None, None, None, False),   # nothing is known
])
def test_progress(gone_s: float | None, output_at: float | None, gap: float | None, works: bool) -> None:
    assert progresses(step(gap), worker(gone_s=gone_s, output_at=output_at), 1000) is works


def test_a_gpu_that_a_task_has_open_is_not_held_for_nothing() -> None:
    gpus, one = JobGpus([0], 100), worker()
    gpus.see(Answer([whole(0, [])]), [(step(), one)], 115)
    assert gpus.of(step(), one, 115)[0][0].pids == []
    one.holds_gpu = {(40, 1): True}
    (record,), _ = gpus.of(step(), one, 115)
    assert (record.pids, record.unknown["pids"]) == (None, OPENED)
