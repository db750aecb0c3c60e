"""Causes in words, allocations that run nothing, and how a finding becomes surer: what the recordings don't show."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.config import Config
from astraeus_controller.fleet import Fleet
from astraeus_controller.judging.better import better_of
from astraeus_controller.judging.pass_ import Pass
from astraeus_controller.rules import cause, incident, judge, nothing_runs
from astraeus_controller.rules.conclusion import Conclusion
from astraeus_controller.rules.late import who
from astraeus_controller.rules.picture import Picture, StackView, WorkerView
from astraeus_protocol.devices import Gpu
from astraeus_protocol.findings import Finding
from astraeus_protocol.readings import Oom, Place
from msgspec import structs

from .views import NOW, gpu, odd, picture, process, waiting, worker


def idle_batch(rests_s: float | None = 600.0, **more: Any) -> WorkerView:
    return worker(0, processes=(process(4000, tied=False, comm="sleep"),), rests_s=rests_s,
                  **{"output_s": 600.0, "cpu_idle_s": 600.0, "gpus": (gpu(0, 600.0),)} | more)


def held(*workers: WorkerView, step: str = "batch", **job: Any) -> Picture:
    found = picture(*workers, **{"after": 1800, "gpus": 2, "asked": False} | job)
    return structs.replace(found, job=structs.replace(found.job, steps=tuple(
        structs.replace(one, step=step) for one in found.job.steps)))


@pytest.mark.parametrize(("of", "job", "found"), [
    ({}, {}, True),
    ({}, {"batch": None}, False),  # it is not known what kind of job it is
    ({}, {"batch": False}, False),
    ({}, {"gpus": 0}, False),
    ({}, {"all_heard": False}, False),  # a step may run on the node that was never heard
    ({}, {"silent_nodes": ("c2",), "silent_s": (90.0,)}, False),
    ({}, {"bare_s": 0.0}, False),  # somebody is on the GPUs
    ({"rests_s": 299.0}, {}, False),
    ({"rests_s": 0.0}, {}, False),
    ({"rests_s": None}, {}, False),
    ({"rests_s": 0.0}, {"bare_s": 300.0}, True),  # a program that uses nothing
    ({"rests_s": 0.0, "cpu_idle_s": 20.0}, {"bare_s": 900.0}, False),  # it prepares
    ({"rests_s": 0.0, "output_s": 20.0}, {"bare_s": 900.0}, False),
    ({"writing_s": 30.0}, {}, False),
    ({"gpus": (gpu(0, 60.0),)}, {}, False),
])
def test_nothing_runs(of: dict[str, Any], job: dict[str, Any], *, found: bool) -> None:
    shown = held(idle_batch(**of), **job)
    assert (nothing_runs.found(shown.job, shown.job.steps[0]) is not None) is found
    assert [c.verdict for c in judge(shown) if c.rule == nothing_runs.RULE] == (["suspect"] if found else [])


def test_nothing_runs_becomes_a_stall_by_patience() -> None:
    [stalled] = judge(held(idle_batch(1900.0, output_s=None, output_at=None, gpus=(gpu(0, None),)), after=1800))
    assert (stalled.verdict, stalled.rule, stalled.rank, stalled.node, stalled.since_s) == (
        "stalled", "nothing_runs", None, "c[1-4]", 1900.0)
    assert stalled.said == "nothing runs: 2 GPUs held, no step, and the batch script only waits for 31m"
    assert stalled.evidence["cause"] == (
        "an allocation that runs nothing: 2 GPUs held, no step, and the batch script only waits")
    # A line that it printed is progress as ever.
    assert [c.verdict for c in judge(held(idle_batch(1900.0, output_s=900.0)))] == ["suspect"]


def test_a_gang_that_uses_no_gpu_has_its_guilty_rank() -> None:
    quiet: dict[str, Any] = {"output_s": 900.0, "cpu_idle_s": 900.0, "gpus": (gpu(0, 900.0),)}
    ranks = [odd(rank, "T", **quiet) if rank == 2 else waiting(rank, **quiet) for rank in range(4)]
    [found] = judge(held(*ranks, step="0", bare_s=900.0, after=600))
    assert (found.rule, found.rank, found.evidence["cause"]) == ("collective_stuck", 2, "rank stopped")


def test_late_ranks() -> None:
    waits: dict[int, tuple[int, int | None]] = {rank: (811, 807) for rank in range(7)}
    assert who(waits | {7: (807, 807)}, 8) is not None
    assert who(waits | {7: (808, 807)}, 8) is None, "it enqueued what is stuck"
    assert who({0: (811, 807), 1: (807, None)}, 8) is not None, "two of eight are enough where the others wait for #808"
    assert who({0: (811, None), 1: (807, None)}, 8) is None
    assert who({0: (811, None), 1: (807, None)}, 2) is not None
    assert who(waits | {7: (500, None)}, 8) is None, "of an earlier hang: the others have completed more since"
    assert who({rank: (811 if rank % 2 else 807, 807) for rank in range(8)}, 8) is None, "halves"


def lock(frame: str, *, cpu: float = 0.4, idle_s: float = 600.0, call: str = "futex",
         below: str = "main (train.py:9)") -> str:
    """The cause where rank 2's main thread is in ``frame``."""
    there = Place(f"{call}_wait", call, 1.0, 25)
    ranks = []
    for rank in range(4):
        frames = (frame, below) if rank == 2 else ("all_reduce (torch/distributed/x.py:1)", "main (train.py:9)")
        one = process(4000 + rank, pulse=0.0, pulse_gone_s=600.0, place=there, cpu=cpu, stack=StackView(frames, 5.0))
        ranks.append(worker(rank, processes=(one,), cpu_idle_s=idle_s))
    [found] = judge(picture(*ranks, after=600))
    assert (found.rank, found.evidence["by"]) == (2, "stack")
    return str(found.evidence["cause"])


def test_a_deadlock_is_told_from_a_stuck_collective() -> None:
    stuck = "collective stuck: rank 2 does not join it"
    assert lock("next_batch (loader.py:41)") == (
        "deadlock in Python: rank 2 waits for a lock in next_batch (loader.py:41)")
    assert lock("Thread.join (threading.py:1119)", call="poll") == (
        "deadlock in Python: rank 2 is in Thread.join, from main (train.py:9)")
    assert lock("Condition.wait (threading.py:331)", below="get (torch/utils/data/dataloader.py:1131)") == (
        "waiting for its data loader: rank 2 on c2")
    assert lock("barrier (torch/distributed/distributed_c10d.py:5356)") == stuck
    assert lock("next_batch (loader.py:41)", call="read") == stuck
    assert lock("next_batch (loader.py:41)", cpu=30.0) == stuck, "a thread of it gets on"
    assert lock("next_batch (loader.py:41)", idle_s=5.0) == stuck, "its tree does"


@pytest.mark.parametrize(("gpus", "unknown", "words"), [
    ((structs.replace(gpu(0, 600.0), told=Gpu(0, xids=[13, 79])),), (), "GPU lost: GPU 0 of rank 1 on c1 (Xid 79)"),
    ((structs.replace(gpu(0, 600.0), told=Gpu(0, xids=[119])),), (),
     "driver not answering: GPU 0 of rank 1 on c1 (Xid 119)"),
    ((), (("gpu", "GPU 0: NVML: GPU is lost"),), "GPU lost: rank 1 on c1 (GPU 0: NVML: GPU is lost)"),
    ((), (("gpu", "driver not answering"),), "driver not answering: rank 1 on c1 (driver not answering)"),
    ((), (("gpu", "not read yet"),), ""),
    ((), (("gpu", "GPU 0: the driver does not know this GPU"),), ""),
])
def test_gpus(gpus: Any, unknown: Any, words: str) -> None:
    shown = picture(worker(0), worker(1, gpus=gpus, unknown=unknown))
    step = shown.job.steps[0]
    said = Conclusion("stalled", "silent", "0", "123", None, "c1", None, 720.0, "x", ("123-0", "123-1"), {})
    assert cause.of(shown.job, step, None, said).words == words


@pytest.mark.parametrize(("before_s", "kind"), [(0.0, "loader_dead"), (299.0, "loader_dead"), (301.0, "")])
def test_a_kill_that_the_run_outlived_is_not_why(before_s: float, kind: str) -> None:
    since = NOW - 720.0
    shown = picture(worker(0), worker(1, oom=Oom(1, 720.0 + before_s), oom_at=since - before_s))
    said = Conclusion("stalled", "silent", "0", "123", None, "c1", None, 720.0, "x", ("123-0", "123-1"), {}, since)
    assert cause.of(shown.job, shown.job.steps[0], None, said).kind == kind


def test_rank_0_prepares() -> None:
    never, now = (gpu(0, 900.0, ever_busy=False),), {"cpu_idle_s": 5.0}

    def four(*others: dict[str, Any], **first: Any) -> str:
        ranks = [worker(0, **{"gpus": never} | now | first)]
        ranks += [worker(rank, **{"gpus": never, "cpu_idle_s": 900.0} | of) for rank, of in enumerate(others, 1)]
        return cause.preparing(picture(*ranks).job.steps[0])

    assert four({}, {}, {}) == "rank 0 still preparing: it works, the other 3 wait for it"
    assert four({}, {}, {}, cpu_idle_s=60.0) == "", "it rests, too"
    assert four({}, {}, now) == "", "another works"
    # NCCL's barrier spins the GPU of who waits in it.
    assert four(*[now | {"gpus": (structs.replace(gpu(0, 0.0), busy=100.0),)}] * 3) != ""
    assert four({}, {}, {}, gpus=(gpu(0, 900.0),)) == "", "its GPU was busy: it had begun"
    assert four({}, {}, {}, began_s=30_000.0) == ""
    one = [process(4000 + n, local=n, rank=str(n), cpu=99.0 if n == 0 else 0.1) for n in range(4)]
    assert cause.preparing(picture(worker(0, gpus=never, processes=tuple(one))).job.steps[0]) != ""


def finding(**details: Any) -> Finding:
    return Finding("k", "stalled", "silent", "123", "llm", 123, 0, "0", "123", None, "c1", None, 1.0, 2.0, "old",
                   details={"ranks": [0, 1], "cause": "collective stuck", "cause_kind": "collective"} | details)


def told(rank: int | None = None, **evidence: Any) -> Conclusion:
    return Conclusion("stalled", "silent", "0", f"123-{rank}" if rank else "123", rank, "c1", rank, 720.0, "new",
                      ("123-0",), {"cause": "collective stuck", "cause_kind": "collective"} | evidence)


def test_a_finding_becomes_surer_and_never_less_sure() -> None:
    assert better_of(finding(), told()) is None
    better = better_of(finding(), told(cause="deadlock in Python: x", cause_kind="deadlock"))
    assert better is not None
    assert (better[0].details["cause"], better[0].said, better[1]) == ("deadlock in Python: x", "new", True)
    assert better_of(finding(cause="rank stopped", cause_kind="rank_stopped"), told()) is None
    # Who is where is part of the finding, and no line of history.
    places = better_of(finding(), told(where="2 ranks in x · rank 1 in y", stacks=[1]))
    assert places is not None
    assert (places[0].details["where"], places[0].details["stacks"], places[1]) == (
        "2 ranks in x · rank 1 in y", [1], False)
    void = better_of(finding(cause="finished but not exited", cause_kind="finished", finished="done"), told())
    assert void is not None
    assert void[0].details["cause"] == "collective stuck", "its last words were none"
    named = better_of(finding(cause="waiting on storage: s", cause_kind="storage"), told(1))
    assert named is not None
    assert (named[0].rank, named[0].details["cause"], named[1]) == (1, "waiting on storage: s", True)


def test_an_empty_allocation_from_suspect_to_its_end() -> None:
    p = Pass(Fleet(Config(), "lab", 0.0), "lab")
    [suspect] = p.judge(held(idle_batch(400.0)), 5000.0)
    assert (suspect.finding.kind, suspect.finding.action, suspect.finding.worker, p.suspect_jobs()) == (
        "suspect", "none", "123", set())
    opened, over = p.judge(held(idle_batch(1900.0, output_s=1900.0)), 6500.0)
    assert (opened.finding.kind, opened.finding.action, over.why) == ("stalled", "alert", "it is stalled")
    assert incident.nodes_of(opened.finding) == frozenset()
    assert p.judge(held(idle_batch(1930.0, output_s=1930.0)), 6530.0) == []
    [closed] = p.judge(held(idle_batch(0.0, output_s=1960.0, gpus=(gpu(0, 0.0),))), 6560.0)
    assert closed.why == "progress"
