"""Suspended time and silence."""

from __future__ import annotations

from astraeus_controller.fleet.time import FOREVER, Interval, both, merged, overlap, shared, silent_after, stops
from hypothesis import given
from hypothesis import strategies as st


def test_merged_and_overlap() -> None:
    assert merged([(5, 9), (1, 3), (2, 6)]) == [(1, 9)]
    assert overlap([(0, 10), (20, FOREVER)], 5, 30) == 15


def test_what_all_nodes_share_is_widened_by_the_looks_slack() -> None:
    assert shared([[(100, 130)], [(103, 134)]]) == [(97, 136)]


def test_one_node_alone_is_no_suspension() -> None:
    assert shared([[(100, FOREVER)], []]) == []
    assert shared([[(100, 110)], [(112, 120)]]) == []


def test_a_stop_of_one_node_counts_only_while_the_others_stop_too() -> None:
    assert shared([[(100, FOREVER)], [(200, 230)]]) == [(194, 236)]


def test_one_node_that_stands_still_is_suspended() -> None:
    assert shared([[(100, 130)]]) == [(94, 136)]


def test_stops_are_remembered_beyond_what_a_report_lists() -> None:
    known = stops([], [(10, 0)], before=85, now=100)
    assert known == [(90, FOREVER)]
    known = stops(known, [(25, 3)], before=100, now=115)
    assert known == [(90, 112)]
    assert stops(known, [], before=115, now=130) == [(90, 112)]
    # The monitor was killed while the job stood still: until the report before it surely did.
    assert stops([(90, FOREVER)], [], before=100, now=130) == [(90, 100)]


def test_silence() -> None:
    assert [silent_after(s) for s in (2, 15, 30)] == [45, 45, 90]


TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12).map(
    lambda found: merged((float(a), float(a + b)) for a, b in found))


@given(TIMES, TIMES, st.integers(0, 60), st.integers(0, 60))
def test_one_walk_finds_what_all_pairs_do(one: list[Interval], other: list[Interval], a: int, b: int) -> None:
    pairs = [(max(p, r), min(q, s)) for p, q in one for r, s in other if max(p, r) < min(q, s)]
    assert both(one, other) == sorted(pairs)
    start, end = min(a, b), max(a, b)
    assert overlap(one, start, end) == sum(max(0.0, min(end, q) - max(start, p)) for p, q in one)
