"""Pulse arithmetic in virtual time."""

from __future__ import annotations

import pytest
from astraeus_monitor.sources.pulse import Pulse


class Heart:
    def __init__(self) -> None:
        self.pulse, self.at, self.count = Pulse(), 100.0, 1000
        self.pulse.sample(self.at, self.count)

    def beat(self, rate: float, windows: int = 1, *, touched: bool = False, span: float = 5.0) -> float | None:
        for _ in range(windows):
            self.at += span
            self.count += round(rate * span)
            self.pulse.sample(self.at, self.count, touched=touched)
        return self.pulse.gone_s(self.at)


def test_known_after_three_windows() -> None:
    heart = Heart()
    assert heart.beat(100, 2) is None
    assert heart.pulse.base() is None
    assert heart.beat(100) == 0
    assert heart.pulse.base() == 100


def test_gone_after_two_quiet_windows_counts_from_the_first() -> None:
    heart = Heart()
    heart.beat(100, 10)
    assert heart.beat(0) == 0
    assert heart.beat(0) == 10
    assert heart.beat(0, 4) == 30
    assert heart.beat(100) == 0


def test_two_percent_is_quiet_and_three_is_not() -> None:
    heart = Heart()
    heart.beat(100, 10)
    assert heart.beat(2, 2) == 10
    assert heart.beat(3) == 0


def test_quiet_windows_do_not_feed_the_base() -> None:
    heart = Heart()
    heart.beat(100, 10)
    heart.beat(0, 200)
    assert heart.pulse.base() == 100
    assert heart.beat(0) == 1005


def test_a_low_base_tells_nothing() -> None:
    heart = Heart()
    assert heart.beat(1.4, 10) is None
    assert heart.pulse.base() == pytest.approx(1.4)


def test_never_lively_stays_unknown() -> None:
    heart = Heart()
    assert heart.beat(0, 50) is None
    assert heart.beat(0.4, 50) is None


def test_a_stop_makes_it_unknown_and_starts_anew() -> None:
    heart = Heart()
    heart.beat(100, 10)
    heart.beat(0, 3)
    assert heart.beat(0, touched=True) is None
    assert heart.beat(0) == 0
    assert heart.beat(0) == 10


def test_a_long_window_is_judged_only_when_it_was_quiet_all_along() -> None:
    heart = Heart()
    heart.beat(100, 10)
    assert heart.beat(1, span=60) is None  # 60 switches may all have come in one second
    heart = Heart()
    heart.beat(100, 10)
    heart.beat(0, 2)
    assert heart.beat(0, span=60) == 70


def test_saved_and_continued() -> None:
    heart = Heart()
    heart.beat(100, 10)
    heart.beat(0, 2)
    again = Pulse()
    again.load(heart.pulse.save())
    again.sample(heart.at + 8, heart.count)
    assert again.gone_s(heart.at + 8) == 18
    assert again.base() == 100
