"""Builders of small pictures: everything is well unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from astraeus_controller.rules.picture import (
    GpuView,
    JobView,
    MetricView,
    Picture,
    Policy,
    ProcessView,
    StepView,
    WorkerView,
)

NOW = 1_791_382_440.0
"""2026-10-07 14:14:00 UTC"""


def process(pid: int = 4000, **more: Any) -> ProcessView:
    values: dict[str, Any] = {
        "pid": pid, "local": 0, "rank": "", "comm": "python", "state": "S", "state_s": None, "exit_status": None,
        "pulse": 60.0, "pulse_base": 60.0, "pulse_gone_s": 0.0, "traced": False, "tied": True}
    return ProcessView(**values | more)


def gpu(index: int = 0, idle_s: float | None = 0.0, *, ever_busy: bool = True) -> GpuView:
    return GpuView(index=index, busy=0.0, idle_s=idle_s, ever_busy=ever_busy,
                   busy_at=None if idle_s is None else NOW - idle_s)


def worker(rank: int = 0, output_s: float | None = 720.0, **more: Any) -> WorkerView:
    values: dict[str, Any] = {
        "name": f"123-{rank}", "rank": rank, "node": f"c{rank // 2 + 1}", "pid": 4000 + rank, "state": "running",
        "exit_status": None, "exit_s": None, "output_s": output_s,
        "output_at": None if output_s is None else NOW - output_s, "writing_s": 0.0, "cpu_idle_s": 0.0,
        "began_s": 3600.0, "processes": (process(4000 + rank),), "gpus": (), "unknown": ()}
    values |= more
    if values["cpu_idle_s"] is not None:
        values.setdefault("cpu_at", NOW - values["cpu_idle_s"])
    return WorkerView(**values)


def picture(*workers: WorkerView, after: float = 900.0, asked: bool = True, gap: float | None = 10.0,
            metric: str | None = None, end: float | None = None, **job: Any) -> Picture:
    policy = Policy(after=after, asked=asked, progress_metric=metric, progress_end=end)
    step = StepView(
        step="0", name="123", nodes=4, tasks=len(workers), nodelist="c[1-4]", policy=policy, watched=True,
        watch_reason="watched: the run asks for it", ended=False, complete=True, output_s=None,
        output_gap_s=gap, log="", workers=workers)
    values: dict[str, Any] = {
        "job": 123, "run": "123", "name": "llm", "user": "alice", "account": "", "partition": "gpu",
        "state": "RUNNING", "restarts": 0, "nodes": 4, "nodelist": "c[1-4]", "gpus": 0, "batch": True,
        "suspended": False, "silent_nodes": (), "policy": policy, "steps": (step,), "facts_s": 1.0,
        "report_s": 2.0}
    return Picture(now=NOW, cluster="lab", job=JobView(**values | job))


def shows(value: float | None, unchanged_s: float | None, name: str = "step") -> tuple[MetricView, ...]:
    """A worker's metrics: one, and when it last changed."""
    return (MetricView(name=name, value=value, unchanged_s=unchanged_s,
                       at=None if unchanged_s is None else NOW - unchanged_s),)


def waiting(rank: int, gone_s: float = 600.0, **more: Any) -> WorkerView:
    """A member that waits for another: no pulse, no output."""
    return worker(rank, processes=(process(4000 + rank, pulse_gone_s=gone_s, pulse=0.0),), **more)


def odd(rank: int, state: str, for_s: float | None = 600.0, status: int | None = None, **more: Any) -> WorkerView:
    return worker(rank, processes=(process(4000 + rank, state=state, state_s=for_s, exit_status=status,
                                           pulse=None, pulse_gone_s=None),), **more)
