"""Which jobs may soon be called stalled."""

from __future__ import annotations

import pytest
from astraeus_controller.judging.near import near

from .views import gpu, picture, shows, worker


@pytest.mark.parametrize(("output_s", "after", "expected"), [
    (100, 900, False), (554, 900, False), (555, 900, True), (659, 900, True), (660, 900, False),
    (854, 900, False), (855, 900, True), (959, 900, True), (960, 900, False),
    (0, 61, False), (16, 61, True), (0, 60, True), (None, 900, False)])
def test_a_gang_is_near_before_ten_minutes_and_before_its_patience(
        output_s: float | None, after: float, expected: bool) -> None:
    assert near(picture(worker(0, output_s), worker(1, output_s), after=after)) is expected


def test_a_busy_gpu_is_progress() -> None:
    assert not near(picture(worker(0, 890, gpus=(gpu(idle_s=3),)), after=900))
    assert near(picture(worker(0, 890, gpus=(gpu(idle_s=870),)), after=900))


def test_only_the_progress_metric_stands_for_progress() -> None:
    times = shows(1.2, 3.0, "step_seconds")
    assert near(picture(worker(0, 890, metrics=times), after=900))
    assert not near(picture(worker(0, 890, metrics=(*times, *shows(7.0, 400.0))), after=900, metric="step"))


def test_suspended_or_over_it_is_not() -> None:
    assert not near(picture(worker(0, 890), suspended=True))
    assert not near(picture(worker(0, 890), ended=True))
