"""Suspended time and silence."""

from __future__ import annotations

from astraeus_controller.fleet_time import FOREVER, merged, overlap, shared, silent_after, stops


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
