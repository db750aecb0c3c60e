"""What opens, changes and closes."""

from __future__ import annotations

from typing import Any

import msgspec
from astraeus_controller.config import Config
from astraeus_controller.fleet import Fleet
from astraeus_controller.judging.pass_ import Change, Pass
from astraeus_controller.rules.picture import Picture
from astraeus_protocol.readings import Finished, Wait
from msgspec import structs

from .views import NOW, gpu, odd, picture, process, waiting, worker

BOOT = 5000.0


class InTime(Pass):
    """Its pictures' time of day runs with the fleet's time, ``set_by`` aside."""

    set_by = 0.0

    def judge(self, picture: Picture, now: float) -> list[Change]:
        return super().judge(structs.replace(picture, now=NOW + now - BOOT + self.set_by), now)


def passes() -> InTime:
    return InTime(Fleet(Config(), "lab", NOW - BOOT), "lab")


def stuck(sign_s: float = 600.0, output_s: float = 720.0, **job: Any) -> Picture:
    members = [waiting(rank, sign_s, output_s=output_s) for rank in range(8) if rank != 5]
    members.insert(5, odd(5, "T", sign_s, output_s=output_s))
    return picture(*members, **job)


def well(output_s: float = 3.0, **job: Any) -> Picture:
    return picture(*(worker(rank, output_s) for rank in range(8)), **job)


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    return [(c.kind, c.finding.kind) for c in changes]


def test_stall_opens_with_the_seeds_message_and_closes_by_progress() -> None:
    p = passes()
    [opened] = p.judge(stuck(facts_s=1.0, report_s=2.0), BOOT)
    assert opened.finding.key == "lab/123/0/0/stalled/123-5"
    assert opened.event is not None
    assert opened.event.message == (
        "Stalled: No progress for 12m: no output since 14:02 UTC; rank 5 (node c3, PID 4005) is stopped "
        "(state T) for 10m; 7 of 7 other ranks wait")
    assert (opened.event.state, opened.event.kind, opened.finding.since) == ("Running", "stalled", NOW - 720)
    assert opened.event.details["stall"]["evidence"] == opened.finding.said  # type: ignore[index]
    assert p.suspect_jobs() == {123}
    assert p.judge(stuck(), BOOT + 15) == []
    [closed] = p.judge(well(), BOOT + 30)
    assert (closed.kind, closed.why, closed.finding.key) == ("close", "progress", opened.finding.key)
    assert closed.event is not None
    assert closed.event.message == "Progress again: no longer stalled"
    assert p.memory == []


def test_old_facts_ask_for_new_ones_first() -> None:
    p = passes()
    [check] = p.judge(stuck(facts_s=60.0, report_s=2.0), BOOT)
    assert (check.kind, check.needs_facts, check.event) == ("check", True, None)
    assert p.judge(stuck(facts_s=61.0, report_s=0.0), BOOT + 1) == [], "asked already"
    assert kinds(p.judge(stuck(facts_s=62.0), BOOT + 11)) == [("check", "stalled")], "no answer came"
    # Facts older than the newest report, younger than the one that first led to the verdict.
    assert kinds(p.judge(stuck(facts_s=3.0, report_s=0.5), BOOT + 12)) == [("open", "stalled")]


def test_no_facts_at_all() -> None:
    assert kinds(passes().judge(stuck(facts_s=None), BOOT)) == [("check", "stalled")]


def test_stall_stays_when_only_the_odd_state_is_gone() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    unknown = [worker(rank, 720, processes=(process(pulse_gone_s=None),)) for rank in range(8)]
    assert p.judge(picture(*unknown), BOOT + 15) == []
    nothing_known = [worker(rank, None, processes=()) for rank in range(8)]
    assert p.judge(picture(*nothing_known), BOOT + 30) == []
    assert len(p.memory) == 1


def test_majoritys_pulse_for_ten_seconds_is_progress() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    beating = picture(*(worker(rank, 720) for rank in range(8)))
    assert p.judge(beating, BOOT + 15) == []
    assert p.judge(stuck(), BOOT + 20) == [], "gone again"
    assert p.judge(beating, BOOT + 22) == []
    assert [c.why for c in p.judge(beating, BOOT + 32)] == ["progress"]


def test_clocks_that_a_killed_monitor_lost_are_no_progress() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    assert p.judge(stuck(output_s=720 - 15), BOOT + 15) == []
    assert p.judge(stuck(30.0, 720 - 21), BOOT + 30)[0].why == "progress"


def test_clock_that_is_set_is_no_progress() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    assert p.judge(stuck(), BOOT + 15) == []
    p.set_by = 3600.0
    assert p.judge(stuck(output_s=720.0 - 3600.0), BOOT + 30) == [], "the output of 14:02 is now one of 15:02"


def test_second_stall_is_a_new_finding() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    p.judge(well(), BOOT + 30)
    [again] = p.judge(stuck(), BOOT + 2000)
    assert again.finding.key == "lab/123/0/0/stalled/123-5#2"
    fresh = passes()
    fresh.keys_of = lambda job: ["lab/123/0/0/stalled/123-5", "lab/123/0/0/stalled/123-5#2"]
    assert fresh.judge(stuck(), BOOT)[0].finding.key.endswith("#3")


def test_suspect_becomes_stalled() -> None:
    p = passes()
    assert kinds(p.judge(stuck(20.0, 22.0), BOOT)) == [("open", "suspect")]
    assert p.judge(stuck(25.0, 27.0), BOOT + 5) == []
    changes = p.judge(stuck(), BOOT + 600)
    assert kinds(changes) == [("open", "stalled"), ("close", "suspect")]
    assert changes[1].event is not None
    assert changes[1].event.message == "No longer suspect: it is stalled"


def test_suspect_is_over_by_an_event_and_kept_while_unknown() -> None:
    p = passes()
    p.judge(stuck(20.0, 22.0), BOOT)
    stale = [structs.replace(worker(rank, None), state="stale") for rank in range(8)]
    assert p.judge(picture(*stale), BOOT + 60) == []
    [closed] = p.judge(well(), BOOT + 70)
    assert closed.event is not None
    assert closed.event.message == "No longer suspect"


def test_guilty_rank_is_refined_and_the_key_stays() -> None:
    p = passes()
    members = [waiting(rank, 40.0, output_s=40.0) for rank in range(8)]
    [opened] = p.judge(picture(*members), BOOT)
    assert (opened.finding.key, opened.finding.rank) == ("lab/123/0/0/suspect/-", None)
    [update] = p.judge(stuck(45.0, 45.0), BOOT + 5)
    assert (update.kind, update.finding.key, update.finding.rank, update.finding.worker) == (
        "update", opened.finding.key, 5, "123-5")
    assert update.event is not None
    assert update.event.message.startswith("Suspect: no output since")


def test_last_words_that_come_later_are_told_and_taken_back() -> None:
    p = passes()

    def quiet(line: str = "") -> Picture:
        found = picture(*(waiting(rank, output_s=1000.0) for rank in range(4)))
        over = Finished(line, 1000.0) if line else None
        return structs.replace(found, job=structs.replace(found.job, steps=tuple(
            structs.replace(step, finished=over) for step in found.job.steps)))

    [opened] = p.judge(quiet(), BOOT)
    [told] = p.judge(quiet("Training done"), BOOT + 15)
    assert (told.kind, told.finding.key) == ("update", opened.finding.key)
    words = '; finished but not exited: last words "Training done" at 13:57 UTC'
    assert told.finding.said == opened.finding.said + words
    assert told.finding.details["finished"] == "Training done"
    assert p.judge(quiet("Training done"), BOOT + 30) == []
    [back] = p.judge(quiet(), BOOT + 45)
    assert (back.finding.said, "finished" in back.finding.details) == (opened.finding.said, False)
    assert p.judge(quiet(), BOOT + 60) == []


def test_a_store_that_becomes_known_is_told_and_stays() -> None:
    def hung(store: str, at: float) -> Picture:
        wait = Wait("request_wait_answer", 60.0, "openat", store, "/data", "fuse.x") if store else None
        members = [worker(rank, 720.0 + at, processes=(process(4000 + rank, pulse=0.0, pulse_gone_s=600.0,
                                                               wait=wait),)) for rank in range(8)]
        return picture(*members)

    p = passes()
    [opened] = p.judge(hung("", 0), BOOT)
    assert opened.finding.details["waits_on"] == []
    [update] = p.judge(hung("s1:/a", 15), BOOT + 15)
    assert (update.kind, update.finding.key, update.finding.rank) == ("update", opened.finding.key, None)
    assert update.finding.details["waits_on"] == ["s1:/a"]
    assert update.event is not None
    assert "8 of 8 ranks wait for storage: s1:/a (mounted at /data, fuse.x)" in update.event.message
    assert p.judge(hung("s1:/a", 30), BOOT + 30) == []
    [update] = p.judge(hung("s2:/b", 45), BOOT + 45)
    assert update.finding.details["waits_on"] == ["s1:/a", "s2:/b"]
    assert p.judge(hung("", 60), BOOT + 60) == []
    assert p.memory[0].details["waits_on"] == ["s1:/a", "s2:/b"]


def test_the_store_of_a_worker_of_its_own_becomes_known() -> None:
    def loose(wait: Wait | None, at: float) -> Picture:
        held = process(4000, tied=False, wait=wait)
        return picture(worker(0, 1000.0 + at, cpu_idle_s=1000.0 + at, processes=(held,)),
                       worker(1, 3.0, processes=(process(4001, tied=False),)))

    p = passes()
    [opened] = p.judge(loose(None, 0), BOOT)
    assert (opened.finding.worker, opened.finding.details["waits_on"]) == ("123-0", [])
    wait = Wait("request_wait_answer", 60.0, "openat", "s1:/a", "/data", "fuse.x")
    [update] = p.judge(loose(wait, 15), BOOT + 15)
    assert (update.kind, update.finding.key, update.finding.details["waits_on"]) == (
        "update", opened.finding.key, ["s1:/a"])
    assert p.judge(loose(wait, 30), BOOT + 30) == []
    assert p.judge(loose(None, 45), BOOT + 45) == []


def test_suspended_changes_nothing() -> None:
    p = passes()
    assert p.judge(stuck(suspended=True), BOOT) == []
    p.judge(stuck(), BOOT)
    assert p.judge(well(suspended=True), BOOT + 10) == []
    assert len(p.memory) == 1


def test_ends() -> None:
    for job, why in (({"ended": True}, "the job ended"), ({"restarts": 1}, "a new attempt began")):
        p = passes()
        p.judge(stuck(), BOOT)
        [closed] = p.judge(well(720.0, **job), BOOT + 15)
        assert (closed.why, closed.event and closed.event.message) == (why, f"No longer stalled: {why}")
    p = passes()
    p.judge(stuck(), BOOT)
    assert p.judge(well(steps=()), BOOT + 15) == [], "not every node has reported since the controller started"


def test_observed_facts_not_running_open_nothing() -> None:
    assert passes().judge(stuck(state="COMPLETING"), BOOT) == []
    assert passes().judge(stuck(state=""), BOOT) == []


def idle(*ranks: int, of: int = 3, output_s: float = 2000.0) -> Picture:
    loose = (process(tied=False),)
    return picture(*(worker(rank, output_s if rank in ranks else 1.0, processes=loose,
                            gpus=(gpu(0, output_s if rank in ranks else 0.0),)) for rank in range(of)))


def test_independent_workers_have_findings_of_their_own() -> None:
    p = passes()
    assert [c.finding.worker for c in p.judge(idle(0, 1), BOOT)] == ["123-0", "123-1"]
    [third] = p.judge(idle(0, 1, 2), BOOT + 15)
    assert (third.finding.worker, third.finding.details["ranks"]) == ("123", [2])
    assert [c.finding.worker for c in p.judge(idle(1, 2), BOOT + 30)] == ["123-0"]
    assert len(p.memory) == 2


def test_finding_of_all_closes_when_all_go_on() -> None:
    p = passes()
    [opened] = p.judge(idle(0, 1, 2), BOOT)
    assert opened.finding.key == "lab/123/0/0/stalled/-"
    assert p.judge(idle(1, 2), BOOT + 15) == []
    assert [c.why for c in p.judge(idle(), BOOT + 30)] == ["progress"]


def test_node_silent_and_back() -> None:
    p = passes()
    members = [worker(0, 3.0), structs.replace(worker(1, 3.0), state="stale", node="c9")]
    [opened] = p.judge(picture(*members, silent_nodes=("c9",), silent_s=(60.0,)), BOOT)
    assert (opened.finding.kind, opened.finding.key) == ("node_silent", "lab/123/0/-/node_silent/c9")
    [closed] = p.judge(picture(worker(0, 3.0), worker(1, 3.0)), BOOT + 15)
    assert closed.event is not None
    assert closed.event.message == "Node c9 reports again"


def test_memory_survives_the_store() -> None:
    p = passes()
    p.judge(stuck(), BOOT)
    again = passes()
    stored = [msgspec.json.decode(msgspec.json.encode(f), type=type(f)) for f in p.memory]
    again.memory = stored
    assert again.judge(stuck(), BOOT) == []
    assert [c.why for c in again.judge(well(), BOOT + 15)] == ["progress"]


def test_never_began_is_only_listed_where_the_site_says_so() -> None:
    lone = worker(0, 2000, gpus=(gpu(0, 2000.0, ever_busy=False),), processes=(process(tied=False),))
    base = picture(lone, asked=False)
    policy = structs.replace(base.job.policy, never_began="list", asked=False)
    step = structs.replace(base.job.steps[0], policy=policy)
    listed = structs.replace(base, job=structs.replace(base.job, policy=policy, steps=(step,)))
    assert passes().judge(base, BOOT)[0].finding.action == "alert"
    assert passes().judge(listed, BOOT)[0].finding.action == "list"


def test_a_listed_run_that_turns_out_to_be_stuck_is_acted_on_by_policy() -> None:
    p = passes()
    [opened] = p.judge(stuck(), BOOT)
    p.memory = [structs.replace(opened.finding, action="list", rule="never_began", rank=None, pid=None)]
    [better] = p.judge(stuck(), BOOT + 15)
    assert (better.kind, better.finding.rule, better.finding.action) == (
        "update", "collective_stuck", opened.finding.action)
    assert better.finding.action != "list"


def test_what_a_stop_brings_about_is_no_progress() -> None:
    p = passes()
    [opened] = p.judge(stuck(facts_s=1.0, report_s=2.0), BOOT)
    p.being_stopped = lambda job, restarts: (job, restarts) == (123, 0)
    assert p.judge(well(), BOOT + 30) == [], "ranks that say that they save"
    assert p.memory == [opened.finding]
    p.memory = []
    assert p.judge(stuck(), BOOT + 40) == [], "its step ended, and the frozen batch script is left"
    p.memory = [opened.finding]
    p.being_stopped = lambda job, restarts: False
    assert kinds(p.judge(well(), BOOT + 45)) == [("close", "stalled")]


def test_steps_that_went_quiet_are_looked_at_closer_on_every_node() -> None:
    p = passes()
    p.judge(well(), BOOT)
    assert p.quiet_steps([123]) == []
    half = [waiting(0), waiting(1), worker(2), worker(3)]
    p.judge(picture(*half), BOOT + 15)
    assert p.quiet_steps([123]) == []
    p.judge(picture(*half[:3], waiting(3)), BOOT + 30)  # rank 2 works: the others wait for it
    assert p.quiet_steps([7, 123]) == ["123.0"]
    p.forget()  # the fleet does not hold it
    assert p.quiet_steps([123]) == []
    p.judge(picture(*half[:3], waiting(3), ended=True), BOOT + 45)
    assert p.quiet_steps([123]) == []
