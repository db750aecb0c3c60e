"""The state directory's formats."""

from __future__ import annotations

import pytest
from astraeus_protocol.jobfile import numbers, parse_job, parse_step_lines


@pytest.mark.parametrize(("text", "found"), [
    ("0,1", [0, 1]), ("0-3,6", [0, 1, 2, 3, 6]), ("", []), ("x,2", [2]), ("3-1", []), ("²", []),
    ("0-999999999", []), ("0-2000", []), ("7-", [7]),
])
def test_numbers(text: str, found: list[int]) -> None:
    assert numbers(text) == found


def test_a_torn_last_line_waits() -> None:
    lines = list(parse_step_lines("step v=1 job=7\ntask rank=0 pid=4"))
    assert lines == [("step", {"v": "1", "job": "7"})]


def test_the_first_of_a_key_counts_and_values_may_hold_equals() -> None:
    assert parse_job("job=7\nuser=a=b\njunk\njob=8\n") == {"job": "7", "user": "a=b"}
