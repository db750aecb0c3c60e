"""Spin power: all GPUs of a gang busy at half their usual power."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from astraeus_controller.rules import judge
from astraeus_controller.rules.picture import GpuView, Picture
from astraeus_protocol.devices import Gpu

from .views import NOW, picture, worker


def spinning(index: int = 0, **more: Any) -> GpuView:
    told = Gpu(index=index, **{"busy": 100.0, "power_w": 250.0, "busy_before": 99.0, "power_before_w": 255.0,
                               "power_usual_w": 600.0} | more)
    return GpuView(index=index, busy=told.busy, idle_s=0.0, ever_busy=True, busy_at=NOW, told=told)


def gang(last: GpuView, output_s: float = 120.0, **more: Any) -> Picture:
    return picture(worker(0, output_s, gpus=(spinning(0),), **more), worker(1, output_s, gpus=(last,)))


def said(of: Picture) -> list[tuple[str, str]]:
    return [(one.verdict, one.rule) for one in judge(of)]


def test_a_suspect_that_names_nobody() -> None:
    found = judge(gang(spinning(1)))
    assert [(c.verdict, c.rule, c.rank) for c in found] == [("suspect", "spin_power", None)]
    assert "all 2 GPUs spin: busy at 42% of the usual power; no rank stands out" in found[0].said
    assert found[0].evidence["power_w"] == 500


@pytest.mark.parametrize("last", [
    spinning(1, busy=94.0),
    spinning(1, power_w=310.0),
    spinning(1, power_before_w=600.0),   # one look is none
    spinning(1, busy_before=None),
    spinning(1, power_usual_w=None),     # not twenty samples yet
    spinning(1, busy=None),              # unknown
    GpuView(index=1, busy=100.0, idle_s=0.0, ever_busy=True),
])
def test_one_that_does_not_spin_speaks_against_it(last: GpuView) -> None:
    assert said(gang(last)) == []


def test_no_suspect_while_it_prints_or_writes_or_under_a_debugger() -> None:
    assert said(gang(spinning(1), output_s=20.0)) == []
    assert said(gang(spinning(1), writing_s=30.0)) == []
    traced = gang(spinning(1))
    step = traced.job.steps[0]
    process = msgspec.structs.replace(step.workers[0].processes[0], traced=True)
    workers = (msgspec.structs.replace(step.workers[0], processes=(process,)), step.workers[1])
    job = msgspec.structs.replace(traced.job, steps=(msgspec.structs.replace(step, workers=workers),))
    assert said(msgspec.structs.replace(traced, job=job)) == []
