"""Times and endings in words."""

from __future__ import annotations

import pytest
from astraeus_controller.rules.say import clock, ending

from .views import NOW


def test_clock_has_the_date_when_it_is_another_day() -> None:
    assert clock(NOW - 720, NOW) == "14:02 UTC"
    assert clock(NOW - 86400, NOW) == "2026-10-06 14:14 UTC"


@pytest.mark.parametrize(("status", "words"), [
    (9, "killed by signal 9 (KILL)"), (0x80 | 11, "killed by signal 11 (SEGV)"), (256, "exited with code 1"),
    (60, "killed by signal 60"), (None, "nobody saw how it ended")])
def test_endings(status: int | None, words: str) -> None:
    assert ending(status) == words
