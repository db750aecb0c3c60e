"""Stalls that are one incident, and those that are none."""

from __future__ import annotations

import time
from typing import Any

import pytest
from astraeus_controller.config import Config, parse
from astraeus_controller.judging.incidents import Incidents
from astraeus_controller.judging.words import incident_over
from astraeus_controller.rules import incident as rule
from astraeus_controller.rules.limits import BREAKER_WINDOW_S, INCIDENT_AGAIN_S, INCIDENT_REST_S, INCIDENT_WINDOW_S
from astraeus_protocol.findings import Finding, Incident

T = 1_796_047_320.0
STORE = "store1:/export"


def stall(job: int, at: float = 0, *, node: str = "", waits: tuple[str, ...] = (), **values: Any) -> Finding:
    """A stall of a job, on a node of its own unless one is named."""
    return Finding(**({
        "key": f"lab/{job}/0/0/stalled/{job}-0", "kind": "stalled", "rule": "silent", "run": str(job),
        "run_name": "llm", "job": job, "restarts": 0, "step": "0", "worker": f"{job}-0", "rank": 0, "pid": 1,
        "node": node or f"n{job}", "since": T + at - 60, "detected_at": T + at, "said": "no output",
        "action": "restart", "details": {"waits_on": list(waits)} if waits else {}} | values))


class Hall:
    """Incidents and what was said of them, on a clock that tests move."""

    def __init__(self, toml: str = "", **past: Any) -> None:
        self.config = parse(toml) if toml else Config()
        self.incidents = Incidents(self.config, "lab", **past)
        self.said: list[str] = []

    def add(self, *findings: Finding, watched: int = 100) -> list[str]:
        return self._say([turn for one in findings for turn in self.incidents.opened(one, one.detected_at, watched)])

    def end(self, finding: Finding, at: float) -> list[str]:
        return self._say(self.incidents.closed(finding, T + at))

    def look(self, at: float) -> list[str]:
        return self._say(self.incidents.look(T + at))

    def _say(self, turns: list[Any]) -> list[str]:
        said = [f"{turn.kind} {turn.incident.id}" for turn in turns]
        self.said += said
        return said

    def one(self) -> Incident:
        (incident,) = self.incidents.open
        return incident

    def jobs(self) -> list[int]:
        return [member.job for member in self.one().jobs]


def test_a_mount_that_two_jobs_wait_for() -> None:
    hall = Hall()
    assert hall.add(stall(1, waits=(STORE,))) == []
    assert hall.add(stall(2, 299, waits=("store2:/x", STORE))) == ["open 1"]
    incident = hall.one()
    assert (incident.key, incident.cause, incident.subject) == ("lab/incident/1", "storage", STORE)
    assert hall.jobs() == [1, 2]
    assert rule.said(incident) == "2 jobs wait on store1:/export"
    assert rule.reason(incident) == (
        "it is part of incident 1 (2 jobs wait on store1:/export), so nothing is stopped")
    assert rule.note(incident, 1) == (
        "incident 1: waits on store1:/export as other jobs do; nothing is stopped")
    # It grows while it is open, however late; a job is listed once.
    assert hall.add(stall(3, 7200, waits=(STORE,)), stall(3, 7201, key="second", waits=(STORE,))) == ["join 1"]
    assert hall.jobs() == [1, 2, 3]


@pytest.mark.parametrize(("findings", "toml"), [
    ((stall(1, waits=(STORE,)), stall(2, INCIDENT_WINDOW_S + 1, waits=(STORE,))), ""),
    ((stall(1, waits=(STORE,)), stall(2, 1, waits=("store1:/other",))), ""),
    ((stall(1, waits=(STORE,)), stall(1, 1, key="another worker", waits=(STORE,))), ""),
    ((stall(1, waits=(STORE,)), stall(2, 1, waits=(STORE,))), "[incidents]\nby_storage = false"),
    ((stall(1, waits=(STORE,)), stall(2, 1, waits=(STORE,))), "[incidents]\nmin_jobs = 3"),
    ((stall(1, waits=(STORE,)), stall(2, 30, waits=(STORE,))), "[incidents]\nwindow_s = 20"),
    ((stall(1, waits=(STORE,)), stall(2, 1, waits=(STORE,), action="list")), ""),
    ((stall(1, waits=(STORE,)), stall(2, 1, waits=(STORE,), kind="suspect")), ""),
    ((stall(1), stall(2, 1)), ""),
    ((stall(1, node="c1"), stall(2, 1, node="c2")), ""),
    ((stall(1, node="c[1-4]"), stall(2, 1, node="c[5-8]")), ""),
    ((stall(1, node="c1"), stall(2, INCIDENT_WINDOW_S + 1, node="c1")), ""),
    ((stall(1, node="c1"), stall(2, 1, node="c1")), "[incidents]\nby_nodes = false"),
], ids=lambda value: None if isinstance(value, tuple) else value.replace("[incidents]\n", "") or "default")
def test_no_incident(findings: tuple[Finding, ...], toml: str) -> None:
    assert Hall(toml).add(*findings) == []


def test_nodes_that_the_findings_point_at() -> None:
    """A guilty rank's node counts for its job; all of its step's where no rank stands out."""
    hall = Hall()
    assert hall.add(stall(1, node="c[1-4]", rank=None), stall(2, 10, node="c[3-6]", rank=None)) == ["open 1"]
    assert (hall.one().cause, hall.one().subject) == ("nodes", "c[3-4]")
    assert rule.said(hall.one()) == "2 jobs stalled on c[3-4]"
    assert hall.add(stall(3, 200, node="c6")) == ["join 1"]
    assert (hall.jobs(), hall.one().subject) == ([1, 2, 3], "c[3-4,6]")
    assert rule.said(hall.one()) == "3 jobs stalled on c[3-4,6]"
    # Within the window of a job that it shares a node with, not of the incident alone.
    assert hall.add(stall(4, INCIDENT_WINDOW_S + 20, node="c4"), watched=1000) == []
    assert hall.incidents.of(4) is None


def test_components_of_one_heterogeneous_job_are_one_job() -> None:
    hall = Hall()
    parts = [stall(100 + n, n, run=f"100+{n}", waits=(STORE,), node="c1") for n in range(6)]
    assert hall.add(*parts, watched=6) == []
    assert hall.incidents.wave(T + 10) == {"100"}
    assert hall.add(stall(200, 10, waits=(STORE,))) == ["open 1"]
    assert hall.end(stall(200, 10, waits=(STORE,)), 20) == []
    assert hall.look(20 + INCIDENT_REST_S) == ["close 1"]


def test_a_wave() -> None:
    hall = Hall()
    assert hall.add(*(stall(n, 100 * n) for n in range(1, 4))) == []
    assert hall.add(stall(4, 400)) == ["open 1"]
    assert (hall.one().cause, hall.one().subject, hall.jobs()) == ("breaker", "many jobs", [1, 2, 3, 4])
    assert rule.said(hall.one()) == "4 jobs stalled within 10m"
    assert rule.note(hall.one(), 2) == "incident 1: stalled together with other jobs; nothing is stopped"
    assert hall.add(stall(5, 500)) == ["join 1"]
    # The breaker's window is over: an ordinary stall, while the incident goes on.
    assert hall.add(stall(6, 500 + BREAKER_WINDOW_S + 1)) == []
    assert hall.jobs() == [1, 2, 3, 4, 5]


def test_a_wave_grows_with_the_cluster() -> None:
    hall = Hall()
    assert hall.add(*(stall(n, n) for n in range(20)), watched=1000) == []
    assert hall.add(stall(20, 20), watched=1000) == ["open 1"]
    assert len(hall.jobs()) == 21


def test_one_incident_where_some_of_a_wave_share_the_storage() -> None:
    hall = Hall()
    waits = [stall(n, n, waits=(STORE,)) for n in range(3)]
    assert hall.add(*waits, stall(10, 10), stall(11, 11)) == ["open 1", "join 1", "join 1", "join 1"]
    assert hall.jobs() == [0, 1, 2, 10, 11]
    assert rule.said(hall.one()) == "3 jobs wait on store1:/export, and 2 more beside"
    assert rule.note(hall.one(), 10) == "incident 1: stalled together with other jobs; nothing is stopped"


def test_the_cause_becomes_known_better() -> None:
    hall = Hall()
    first = [stall(n, n, node=f"n{n}") for n in range(4)]
    assert hall.add(*first) == ["open 1"]
    known = [stall(n, n, waits=(STORE,)) for n in range(2)]
    assert hall.add(known[0]) == []
    assert hall.add(known[1]) == ["better 1"]
    assert (hall.one().cause, hall.one().subject, hall.one().key) == ("storage", STORE, "lab/incident/1")
    assert [member.by for member in hall.one().jobs] == ["storage", "storage", "breaker", "breaker"]
    for one in known:
        hall.end(one, 100)
    assert hall.one().cause == "storage"


def test_two_that_turn_out_to_be_one() -> None:
    """Their nodes told them apart until it was known what their jobs wait for."""
    hall = Hall()
    nodes = {1: "c1", 2: "c1", 3: "c2", 4: "c2", 5: "c2"}
    first = [stall(n, n, node=node) for n, node in nodes.items()]
    assert hall.add(*first, watched=1000) == ["open 1", "open 2", "join 2"]
    hall.end(first[4], 10)
    turns = [turn for n in range(1, 5) for turn in hall.incidents.opened(
        stall(n, n, node=nodes[n], waits=(STORE,)), T + 60, 1000)]
    assert [(turn.kind, turn.incident.id, turn.into) for turn in turns] == [
        ("better", 1, 0), ("better", 2, 0), ("close", 2, 1), ("join", 1, 0)]
    assert (hall.one().id, hall.one().subject, hall.jobs()) == (1, STORE, [1, 2, 3, 4])
    assert hall.incidents.of(3) is hall.one()
    assert incident_over(turns[2].incident, T, (), turns[2].into).message == (
        "Incident 2 is part of incident 1 now: 2 jobs wait on store1:/export, and 1 more beside")


def test_what_hangs_on_opens_nothing_again() -> None:
    hall = Hall()
    stalls = [stall(n, n, node="c1") for n in range(2)]
    hall.add(*stalls)
    hall.end(stalls[0], 10)
    assert hall.look(10) == []
    assert hall.look(10 + INCIDENT_REST_S) == ["close 1"]
    assert hall.add(stall(1, 1, node="c1", pid=7)) == []
    assert hall.incidents.open == []


def test_all_go_on() -> None:
    hall = Hall()
    stalls = [stall(n, n, waits=(STORE,)) for n in range(3)]
    hall.add(*stalls)
    assert [hall.end(one, 60 + one.job) for one in stalls] == [[], [], ["close 1"]]
    assert hall.incidents.open == []
    assert hall.incidents.of(1) is None
    over = hall.incidents.lately(1)
    assert over is not None
    assert (over.closed_at, len(over.jobs)) == (T + 62, 3)


def test_the_last_one_is_an_ordinary_stall_after_a_rest() -> None:
    hall = Hall()
    stalls = [stall(n, n, waits=(STORE,)) for n in range(3)]
    hall.add(*stalls)
    hall.end(stalls[0], 100)
    assert hall.look(100 + 2 * INCIDENT_REST_S) == []
    began = 1000.0
    assert hall.end(stalls[1], began) == []
    assert hall.incidents.of(2) is hall.one()
    assert hall.look(began + INCIDENT_REST_S - 1) == []
    assert hall.look(began + INCIDENT_REST_S) == ["close 1"]
    assert hall.incidents.of(2) is None


def test_it_comes_and_goes() -> None:
    """A new stall on the same thing soon after: the same incident again, also for one job; later it is none."""
    hall = Hall()
    stalls = [stall(n, n, waits=(STORE,)) for n in range(2)]
    hall.add(*stalls)
    for one in stalls:
        hall.end(one, 60)
    again = stall(7, 60 + INCIDENT_AGAIN_S, waits=(STORE,))
    assert hall.add(again) == ["open 1"]
    assert (hall.jobs(), hall.one().closed_at) == ([0, 1, 7], None)
    closed = 60 + INCIDENT_AGAIN_S + INCIDENT_REST_S
    assert hall.look(closed) == ["close 1"]
    hall.end(again, closed)
    hall.look(closed + INCIDENT_AGAIN_S + 1)
    assert hall.add(stall(8, closed + INCIDENT_AGAIN_S + 1, waits=(STORE,))) == []
    assert hall.add(stall(9, closed + INCIDENT_AGAIN_S + 2, waits=(STORE,))) == ["open 2"]


def test_a_job_that_stalls_anew_is_held_while_the_incident_lasts() -> None:
    hall = Hall()
    stalls = [stall(n, n, node="c1") for n in range(3)]
    hall.add(*stalls)
    hall.end(stalls[2], 100)
    assert hall.add(stall(2, 4000, key="next", node="c9")) == []
    assert hall.incidents.of(2) is hall.one()
    hall.end(stalls[0], 4001)
    assert hall.look(4001 + INCIDENT_REST_S) == []  # two of its jobs hang


def test_a_controller_that_starts_anew_goes_on_with_it() -> None:
    hall = Hall()
    stalls = [stall(n, n, waits=(STORE,)) for n in range(3)]
    hall.add(*stalls)
    anew = Hall(past=[hall.one()], last=1, findings=stalls, wave=[(one.run, one.detected_at) for one in stalls])
    assert anew.add(stall(3, 20, waits=(STORE,))) == ["join 1"]
    assert anew.incidents.of(3) is anew.one()
    assert anew.incidents.wave(T + 20) == {"0", "1", "2", "3"}
    assert [anew.end(one, 60) for one in stalls] == [[], [], []]
    assert anew.look(60) == []
    assert anew.look(60 + INCIDENT_REST_S) == ["close 1"]
    last = Hall(last=1)
    assert last.add(*stalls[:2]) == ["open 2"]


def test_a_clock_that_is_set_back_closes_nothing_early() -> None:
    hall = Hall()
    stalls = [stall(n, n, waits=(STORE,)) for n in range(2)]
    hall.add(*stalls)
    hall.end(stalls[0], 5000)
    assert hall.look(100) == []
    assert hall.look(100 + INCIDENT_REST_S) == ["close 1"]


def test_hundreds_of_jobs_at_once_are_taken_quickly() -> None:
    hall = Hall()
    began = time.process_time()
    hall.add(*(stall(n, n / 100, node=f"c[{8 * n}-{8 * n + 7}]", rank=None) for n in range(200)))
    hall.add(*(stall(n, 10, waits=(STORE,)) for n in range(200, 400)))
    assert time.process_time() - began < 2
    assert len(hall.jobs()) == 400
