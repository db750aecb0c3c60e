"""No job of an open incident is stopped: declined, taken back before the stop file, and restarted when it is over."""

import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.way import Stop
from astraeus_controller.rules.limits import INCIDENT_REST_S
from astraeus_controller.slurm.jobs import Texts
from fake_slurm import job
from service_kit import SINCE, finding
from test_restarts import Bench

STORE = {"waits_on": ["store1:/export"]}
REASON = "restart declined: it is part of incident 1 (2 jobs wait on store1:/export), so nothing is stopped"
NOTE = "incident 1: waits on store1:/export as other jobs do; nothing is stopped"


def messages(bench: Bench, number: int) -> list[str]:
    return [event.message for event in bench.store.events(job=number)]


async def test_declined_and_not_asked_about_again() -> None:
    bench = Bench(job(1), job(2), job(3, requeue=0))
    stalls = [bench.stall(n, details=STORE) for n in (1, 2)]
    await bench.until(lambda: bench.kinds(1) and bench.kinds(2))
    assert (messages(bench, 1), messages(bench, 2)) == ([REASON], [REASON])
    assert bench.restarts.note(1) == NOTE
    # Judging writes the incident into the comments; the decision adds nothing to them.
    assert bench.wanted(1) == ""
    asked = len(bench.slurm.called("squeue"))
    await bench.wait(3600)
    assert len(bench.slurm.called("squeue")) == asked
    # One that joins: a reason that lasts is told instead, beside the incident in its comments.
    bench.stall(3, details=STORE)
    await bench.until(lambda: bench.kinds(3))
    assert messages(bench, 3) == ["restart declined: it is not requeueable (--no-requeue, or JobRequeue=0)"]
    assert bench.wanted(3).endswith(f", {NOTE}; not restarted: it is not requeueable (--no-requeue, or JobRequeue=0)")
    assert messages(bench, 1) == [REASON], "that it grew is no new reason"
    # Over: who still hangs is restarted.
    bench.restarts.drop("k3")
    assert bench.heal(stalls[0]) == []
    assert bench.turns(bench.incidents.closed(finding(key="k3", job=3), bench.time.wall())) == []
    await bench.wait(INCIDENT_REST_S)
    assert bench.slurm.called("scontrol", "requeue") == []
    assert bench.turns(bench.incidents.look(bench.time.wall())) == ["close"]
    await bench.until(lambda: "restarted" in bench.kinds(2))
    assert bench.slurm.job(1)["requeued"] == 0


@pytest.mark.parametrize("stage", ["decided", "annotated"])
async def test_a_restart_is_taken_back_before_the_stop_file(stage: str) -> None:
    """Also by a controller that starts anew while the incident is open."""
    bench = Bench(job(1), job(2))
    first = bench.stall(1, details=STORE)
    shown = await bench.restarts.jobs.show(1)
    assert shown
    intent = evidence.new_intent(first, shown.facts, number=1, budget=10, backoff_s=10, progressed_s=700,
                                 stop=Stop("TERM", 8), now=bench.time.wall())
    assert bench.store.begin(intent, bench.store.finding_id(first.key) or 0)
    bench.store.reach(intent, stage)
    bench.restarts.drop(first.key)
    bench.stall(2, details=STORE)
    bench.restarts.resume()
    await bench.until(lambda: not bench.store.open_intents())
    assert messages(bench, 1) == [REASON]
    assert bench.store.stops_between(0, SINCE * 2) == (0, None), "a stop that was none counts for no pace"
    await bench.wait(120)
    assert messages(bench, 1) == [REASON]
    assert bench.slurm.called("scontrol", "requeue") == []
    assert bench.wanted(1).endswith(f", {NOTE}")
    for one in (first, finding(key="k2", job=2)):
        bench.turns(bench.incidents.closed(one, bench.time.wall()))
    assert bench.incidents.open == []
    await bench.until(lambda: "restarted" in bench.kinds(1))
    assert bench.slurm.job(1)["requeued"] == 1


async def test_what_has_its_stop_file_goes_on() -> None:
    """The first job of an outage may be stopped before the second is stalled: that is carried through."""
    bench = Bench(job(1), job(2))
    bench.stall(1, details=STORE)
    await bench.until(lambda: "stopping" in bench.kinds(1))
    bench.stall(2, details=STORE)
    assert bench.incidents.of(1)
    await bench.until(lambda: "restarted" in bench.kinds(1))
    assert bench.slurm.job(2)["requeued"] == 0


async def test_it_opens_in_the_last_moment() -> None:
    """While Slurm is asked for the last time before the stop file."""
    bench = Bench(job(1), job(2))
    show = bench.restarts.jobs.show

    async def slow(number: int) -> Texts | None:
        shown = await show(number)
        if any(intent.stage == "annotated" for intent in bench.store.open_intents()) and not bench.incidents.open:
            bench.stall(2, details=STORE)
        return shown

    bench.restarts.jobs.show = slow  # type: ignore[method-assign]
    bench.stall(1, details=STORE)
    await bench.until(lambda: bench.kinds(2))
    assert bench.kinds(1) == ["restart_intended", "restart_declined"]
    assert (bench.store.open_intents(), bench.slurm.called("scontrol", "requeue")) == ([], [])
    assert bench.wanted(1).endswith(f", {NOTE}")
