"""The fleet: attempts, ages, ties, shared output, who is watched."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.config import Config, parse
from astraeus_controller.fleet import Fleet
from astraeus_controller.rules.picture import Picture, StepView
from astraeus_controller.slurm.types import JobFacts, JobRow, Snapshot
from astraeus_protocol.devices import Gpu
from astraeus_protocol.readings import Finished
from astraeus_protocol.report import Job, Process, Report, Step, Worker

WALL = 1_000_000.0


def fleet(config: Config | None = None) -> Fleet:
    return Fleet(config or Config(), "lab", WALL)


def proc(pid: int, *ties: int, **more: Any) -> Process:
    return Process(pid=pid, start=pid, ties=list(ties), **more)


def task(rank: int, *processes: Process, **more: Any) -> Worker:
    return Worker(rank=rank, pid=4000 + rank, writing_s=0, processes=list(processes) or [proc(4000 + rank)],
                  **more)


def step(*workers: Worker, name: str = "0", **more: Any) -> Step:
    return Step(step=name, tasks=more.pop("tasks", len(workers)), workers=list(workers), **more)


def job(*steps: Step, number: int = 123, **more: Any) -> Job:
    return Job(job=number, nonce=more.pop("nonce", "n"), steps=list(steps), **more)


def report(*jobs: Job, node: str = "c1", seq: int = 1, session: str = "s", boot: str = "b") -> Report:
    return Report(node=node, boot=boot, session=session, seq=seq, nonce="x", at=0.0, jobs=list(jobs))


def one(of: Fleet, now: float) -> Picture:
    [picture] = of.pictures(now)
    return picture


def only(of: Fleet, now: float) -> StepView:
    [found] = one(of, now).job.steps
    return found


# Which reports count

def test_older_and_repeated_reports_are_dropped() -> None:
    f = fleet()
    assert f.report(report(job(step(task(0))), seq=2), 100) == [123]
    assert f.report(report(job(step(task(0))), seq=2), 101) == []
    assert f.report(report(job(step(task(0))), seq=1), 102) == []
    assert f.report(report(job(step(task(0))), seq=1, session="new"), 103) == [123]
    assert f.report(report(job(step(task(0))), seq=9), 104) == [], "the session before is over"


def test_a_report_of_long_ago_sent_again_does_not_shut_the_monitor_out() -> None:
    """A controller that was started anew knows no earlier session: it takes one for the newest."""
    f = fleet()
    assert f.report(report(job(step(task(0))), seq=40), 100) == [123]
    assert f.report(report(seq=7, session="long ago"), 101) == [123]
    assert f.report(report(job(step(task(0))), seq=41), 110) == [], "nobody can tell yet which is the older"
    assert f.report(report(job(step(task(0))), seq=40), 117) == [], "a repeated one never counts"
    assert f.report(report(job(step(task(0))), seq=42), 118) == [123]
    assert f.report(report(seq=7, session="long ago"), 150) == [], "the same again"
    assert not one(f, 118).job.ended


def test_an_id_given_anew_is_another_job() -> None:
    f = fleet()
    f.report(report(job(step(task(0)), uid=1001, restarts=2)), 100)
    f.job_facts(JobFacts(job=123, state="COMPLETED", restarts=2, name="old"), 101)
    f.report(report(job(step(task(0)), uid=1002, nonce="m"), seq=2), 200)
    assert (f.jobs[123].restarts, f.jobs[123].facts, f.jobs[123].ended) == (0, None, False)


def test_steps_that_are_over_are_forgotten_and_names_stay() -> None:
    f = fleet()
    f.report(report(job(step(task(0), name="0"), step(task(0), name="1"))), 100)
    f.report(report(job(step(task(0), name="1")), seq=2), 115)
    f.forget(115)
    assert set(f.jobs[123].steps) == {"1"}
    assert only(f, 115).workers[0].name == "123.1-0"


def test_tied_processes_that_are_gone_are_forgotten_in_the_end() -> None:
    f = fleet()
    for n in range(3000):
        pair = (task(0, proc(2 * n, n)), task(1, proc(2 * n + 1, n)))
        f.report(report(job(step(*pair)), seq=n + 1), 100 + n)
    assert 2 <= len(f.jobs[123].steps["0"].tied) <= 4098
    assert all(p.tied for w in only(f, 3099).workers for p in w.processes)


def test_a_job_that_was_configuring_is_asked_about_again() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    assert f.needs_facts() == [123]
    f.job_facts(JobFacts(job=123, state="CONFIGURING"), 101)
    assert f.needs_facts() == [123]
    f.job_facts(JobFacts(job=123, state="RUNNING", leader=122, component=1), 102)
    assert f.needs_facts() == []
    assert (f.component(122, 1), f.component(122, 0)) == (123, None)


def test_job_that_a_node_no_longer_lists_has_ended_there() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    f.report(report(job(step(task(1))), node="c2"), 100)
    assert f.report(report(seq=2), 115) == [123]
    assert not one(f, 115).job.ended
    assert [w.rank for w in only(f, 115).workers] == [1]
    f.report(report(node="c2", seq=2), 116)
    assert one(f, 116).job.ended


def test_later_attempt_replaces_the_earlier_and_late_words_of_it_are_dropped() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    f.report(report(job(step(task(1)), restarts=1), node="c2"), 110)
    f.report(report(job(step(task(0))), seq=2), 111)
    assert one(f, 111).job.restarts == 1
    assert [w.rank for w in only(f, 111).workers] == [1]


def test_absent_from_two_polls_is_ended_and_a_young_job_is_spared() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    assert f.slurm(Snapshot(jobs=()), 120) == []
    f.slurm(Snapshot(jobs=()), 180)
    assert not one(f, 180).job.ended
    f.slurm(Snapshot(jobs=()), 240)
    assert one(f, 240).job.ended
    f.forget(240)
    f.forget(841)
    assert list(f.pictures(841)) == []


def test_facts_of_a_later_attempt_end_this_one() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    assert f.needs_facts() == [123]
    f.job_facts(JobFacts(job=123, state="PENDING", restarts=1), 101)
    assert one(f, 101).job.ended


# Ages

def test_ages_grow_until_shortly_after_the_next_report_was_due() -> None:
    f = fleet()
    f.report(report(job(step(task(0, proc(4000, state="T", state_s=40.0)), output_s=40.0))), 100)
    assert [only(f, now).workers[0].processes[0].state_s for now in (100, 110, 118, 140)] == [40, 50, 58, 58]


def test_progress_is_known_up_to_the_last_look() -> None:
    """What came after the look is not known: it is no silence. Found 8 s late, output once made a stall of a job
    that printed every 5 s."""
    f = fleet()
    busy = Gpu(index=0, busy=0.0, idle_s=38.0, ever_busy=True, looked_s=3.0)
    seen = task(0, cpu_idle_s=39.0, looked_s=8.0, gpus=[busy])
    f.report(report(job(step(seen, output_s=40.0, looked_s=8.0))), 100)
    for now in (100, 110, 140):
        worker = only(f, now).workers[0]
        assert (worker.output_s, worker.cpu_idle_s, worker.gpus[0].idle_s) == (32, 31, 35)
    assert only(f, 140).workers[0].output_at == WALL + 60


def test_node_that_missed_three_reports_is_silent() -> None:
    f = fleet()
    f.report(report(job(step(task(0), task(1), output_s=1.0))), 100)
    assert only(f, 145).workers[0].state == "running"
    assert only(f, 146).workers[0].state == "stale"
    assert one(f, 146).job.silent_nodes == ("c1",)
    assert only(f, 146).workers[0].output_s is None


def test_output_of_the_node_that_holds_the_file_counts_for_all() -> None:
    f = fleet()
    f.report(report(job(step(task(0, output_s=90.0), output_s=20.0, tasks=2))), 100)
    f.report(report(job(step(task(1), tasks=2)), node="c2"), 100)
    assert [w.output_s for w in only(f, 100).workers] == [20, 20]
    for seq in (2, 3, 4):
        f.report(report(job(step(task(1, output_s=5.0), tasks=2)), node="c2", seq=seq), 100 + 15 * seq)
    assert [w.output_s for w in only(f, 160).workers] == [None, None], "who holds the file is silent"


def test_last_words_count_where_the_newest_output_stands() -> None:
    f = fleet()
    f.report(report(job(step(task(0, output_s=40), tasks=2, finished=Finished("Training done", 40)))), 100)
    f.report(report(job(step(task(1, output_s=50), tasks=2)), node="c2"), 100)
    found = only(f, 105).finished
    assert found is not None
    assert (found.line, found.s) == ("Training done", 45)
    f.report(report(job(step(task(1, output_s=1), tasks=2)), node="c2", seq=2), 115)
    assert only(f, 115).finished is None, "a rank of another file wrote on"
    done = step(task(1, output_s=2), tasks=2, finished=Finished("Training done", 2))
    f.report(report(job(done), node="c2", seq=3), 116)
    again = only(f, 116).finished
    assert again is not None
    assert again.s == 2


def test_no_output_known_at_all_stays_unknown() -> None:
    f = fleet()
    f.report(report(job(step(task(0)))), 100)
    assert only(f, 110).workers[0].output_s is None


def test_suspension_that_all_nodes_share_leaves_the_clocks() -> None:
    f = fleet()
    stopped = [(100.0, 40.0)]
    f.report(report(job(step(task(0), output_s=120.0), stopped=stopped, nodes=2)), 1000)
    f.report(report(job(step(task(1, gpus=[Gpu(index=0, idle_s=110.0)])), stopped=stopped, nodes=2), node="c2"),
             1000)
    workers = only(f, 1000).workers
    assert workers[0].output_s == 120 - 72
    assert workers[1].gpus[0].idle_s == 110 - 72
    assert not one(f, 1000).job.suspended


def test_one_rank_stopped_on_its_own_node_is_seen() -> None:
    f = fleet()
    f.report(report(job(step(task(0), output_s=120.0), nodes=2)), 1000)
    f.report(report(job(step(task(1, proc(4001, state="T", state_s=100.0))), stopped=[(100.0, 0.0)], nodes=2),
                    node="c2"), 1000)
    picture = one(f, 1000)
    assert not picture.job.suspended
    assert picture.job.steps[0].workers[1].processes[0].state_s == 100


def test_job_on_one_node_that_stands_still_is_suspended() -> None:
    f = fleet()
    f.report(report(job(step(task(0)), stopped=[(100.0, 0.0)])), 1000)
    assert one(f, 1000).job.suspended


def test_slurms_suspension_leaves_the_clocks() -> None:
    f = fleet()
    f.report(report(job(step(task(0), output_s=0.0))), 900)
    for now, state in ((900, "RUNNING"), (960, "SUSPENDED"), (1020, "SUSPENDED")):
        f.slurm(Snapshot(jobs=(JobRow(job=123, state=state),)), now)
    assert one(f, 1020).job.suspended
    f.slurm(Snapshot(jobs=(JobRow(job=123, state="RUNNING"),)), 1080)
    f.report(report(job(step(task(0), output_s=200.0)), seq=2), 1100)
    assert only(f, 1100).workers[0].output_s == 200 - 180, "from the last word before it to the first after it"


# Ties

def test_processes_that_share_a_connection_are_tied_for_the_attempt() -> None:
    f = fleet()
    f.report(report(job(step(task(0, proc(4000, 7, 9)), task(2, proc(4002, 5)), tasks=3))), 100)
    assert f.tied_steps("c1") == []
    f.report(report(job(step(task(1, proc(4001, 7)), tasks=3)), node="c2"), 100)
    assert [w.processes[0].tied for w in only(f, 100).workers] == [True, True, False]
    assert (f.tied_steps("c1"), f.tied_steps("c2")) == ([], ["123.0"])
    f.report(report(job(step(task(1, proc(4001)), tasks=3)), node="c2", seq=2), 110)
    assert only(f, 110).workers[1].processes[0].tied
    f.report(report(job(step(task(1, proc(5001)), tasks=3)), node="c2", seq=3), 120)
    assert not only(f, 120).workers[1].processes[0].tied, "another process starts anew"
    assert f.tied_steps("c2") == []


def test_processes_of_a_task_that_ended_are_remembered_with_its_status() -> None:
    f = fleet()
    f.report(report(job(step(task(0, proc(4100, 7)), task(1, proc(4101, 7))))), 100)
    gone = Worker(rank=1, pid=4001, state="exited", exit_status=9, exit_s=5.0)
    f.report(report(job(step(task(0, proc(4100)), gone)), seq=2), 115)
    [process] = only(f, 115).workers[1].processes
    assert (process.pid, process.state, process.state_s, process.exit_status, process.tied) == (
        4101, "X", 5.0, 9, True)


def test_processes_of_a_launcher_that_exited_0_are_finished() -> None:
    f = fleet()
    ended = Worker(rank=0, pid=4000, state="exited", exit_status=0, exit_s=5.0,
                   processes=[proc(10, state="X", state_s=6.0), proc(11, state="X", state_s=7.0)])
    f.report(report(job(step(ended))), 100)
    assert [p.exit_status for p in only(f, 100).workers[0].processes] == [0, 0]


def test_process_whose_place_was_taken_is_not_looked_at() -> None:
    f = fleet()
    f.report(report(job(step(task(0, proc(10, rank="0", state="X", state_s=9), proc(20, rank="0"))))), 100)
    assert [p.pid for p in only(f, 100).workers[0].processes] == [20]


# Names

@pytest.mark.parametrize(("facts", "steps", "name"), [
    ({}, ["0"], "123-0"), ({}, ["0", "1"], "123.0-0"), ({}, ["batch", "0"], "123-0"),
    ({"array_job": 120, "array_task": 4}, ["0"], "120_4-0"), ({"leader": 122, "component": 1}, ["0"], "122+1-0"),
])
def test_names(facts: dict[str, Any], steps: list[str], name: str) -> None:
    f = fleet()
    f.report(report(job(*(step(task(0), name=s) for s in steps))), 100)
    f.job_facts(JobFacts(job=123, state="RUNNING", **facts), 100)
    assert next(s for s in one(f, 100).job.steps if s.step == "0").workers[0].name == name


# Who is watched

ASKS = {"stall_after": "60"}


@pytest.mark.parametrize(("facts", "gpus", "job_settings", "step_settings", "watched", "words"), [
    ({"batch": True}, [0], {}, {}, True, "a batch job with GPUs"),
    (None, [0], {}, {}, False, "Slurm has not said"),
    ({"batch": False}, [0], {}, {}, False, "without a batch script"),
    ({"batch": True}, [], {}, {}, False, "without GPUs"),
    ({"batch": True, "name": "my-jupyter"}, [0], {}, {}, False, "job_name *jupyter*"),
    ({"batch": True, "name": "my-jupyter"}, [0], ASKS, {}, True, "asks for it"),
    (None, [], {}, ASKS, True, "asks for it"),
    ({"batch": True}, [0], {"no_stall_watch": "1"}, {}, False, "--no-stall-watch"),
    ({"batch": True}, [0], {"no_stall_watch": "1"}, ASKS, True, "asks for it"),
    ({"batch": True}, [0], ASKS, {"no_stall_watch": "1"}, False, "--no-stall-watch"),
])
def test_watched(facts: dict[str, Any] | None, gpus: list[int], job_settings: dict[str, str],
                 step_settings: dict[str, str], watched: bool, words: str) -> None:
    f = fleet()
    workers = [task(0, gpus=[Gpu(index=i) for i in gpus])]
    f.report(report(job(step(*workers, settings=step_settings), gpus=gpus, settings=job_settings)), 100)
    if facts is not None:
        f.job_facts(JobFacts(job=123, state="RUNNING", **facts), 100)
    found = only(f, 100)
    assert (found.watched, words in found.watch_reason) == (watched, True), found.watch_reason


@pytest.mark.parametrize(("own", "watched"), [({}, False), (ASKS, False), ({"stall_after": "90"}, True)])
def test_step_without_gpus_in_a_gpu_job_must_ask_itself(own: dict[str, str], watched: bool) -> None:
    f = fleet()
    f.report(report(job(step(task(0), settings=own), gpus=[0], settings=ASKS)), 100)
    assert only(f, 100).watched is watched


def test_batch_step_is_a_worker_only_while_it_runs_alone() -> None:
    f = fleet()
    gpus = [Gpu(index=0)]
    batch = step(task(0, gpus=gpus), name="batch")
    f.report(report(job(batch, gpus=[0], settings=ASKS)), 100)
    assert only(f, 100).watched
    f.report(report(job(batch, step(task(0, gpus=gpus)), gpus=[0], settings=ASKS), seq=2), 110)
    assert [s.watched for s in one(f, 110).job.steps] == [False, True]
    f.report(report(job(batch, step(task(0, gpus=gpus), ended=True), gpus=[0], settings=ASKS), seq=3), 120)
    assert one(f, 120).job.steps[0].watched


def test_settings_of_a_step_go_over_its_jobs_and_these_over_the_partitions() -> None:
    f = fleet(parse('[partition.gpu]\nstall_after = "5m"\nstall_action = "restart"\n'))
    f.report(report(job(step(task(0), settings={"stall_after": "90"}), partition="gpu", settings=ASKS)), 100)
    picture = one(f, 100)
    assert (picture.job.policy.after, picture.job.steps[0].policy.after) == (60, 90)
    assert picture.job.steps[0].policy.action == "restart"


# For the replies

def test_when_to_report_next() -> None:
    f = fleet()
    f.report(report(job(step(task(0), output_s=5.0))), 100)
    assert f.next_s("c1", set()) == 15
    f.report(report(job(step(task(0), output_s=5.0)), seq=2), 220)
    assert (f.next_s("c1", set()), f.next_s("c1", {123})) == (30, 2)
    f.report(report(job(step(task(0), output_s=130.0)), seq=3), 235)
    assert f.next_s("c1", set()) == 15
    assert f.next_s("c1", {7}) == 15


def test_commands_and_stop_files() -> None:
    f = fleet()
    f.report(report(job(step(task(0)), nonce="n1", stop_file=True)), 100)
    f.report(report(job(step(task(1)), nonce="n2"), node="c2"), 100)
    assert f.nodes_of(123) == {"c1": "n1", "c2": "n2"}
    assert f.stop_file_acks(123) == ({"c1"}, {"c1", "c2"})
    assert (f.nodes_of(9), f.stop_file_acks(9)) == ({}, (set(), set()))


def test_gone_attempts() -> None:
    f = fleet()
    assert not f.gone(5, 0)
    f.slurm(Snapshot(jobs=(JobRow(job=6, state="RUNNING"),)), 100)
    f.slurm(Snapshot(jobs=()), 160)
    assert (f.gone(5, 0), f.gone(6, 0)) == (True, False)
    f.report(report(job(step(task(0)), restarts=1)), 170)
    assert (f.gone(123, 0), f.gone(123, 1)) == (True, False)


def test_settled_once_every_node_was_heard_for_a_while() -> None:
    f = fleet()
    f.report(report(job(step(task(0), tasks=2), nodes=2)), 100)
    assert not one(f, 110).job.settled, "the second node has not been heard"
    f.report(report(job(step(task(1), tasks=2), nodes=2), node="c2"), 112)
    assert not one(f, 113).job.settled
    assert one(f, 117).job.settled


def test_a_node_that_never_reports_does_not_hold_back_for_ever() -> None:
    f = fleet()
    f.report(report(job(step(task(0), tasks=2), nodes=2)), 100)
    assert one(f, 160).job.settled


def test_since_when_nobody_is_on_the_gpus() -> None:
    def held(pids: list[int] | None, seq: int, *, node: str = "c1", steps: bool = True) -> Report:
        batch = step(task(0, gpus=[Gpu(0, pids=pids), Gpu(1, pids=[])], rests_s=40.0, looked_s=10.0), name="batch")
        return report(job(*([batch] if steps else []), nodes=2, gpus=[0, 1]), node=node, seq=seq)

    f = fleet()
    f.report(held([4000], 1), 100)
    assert (one(f, 100).job.bare_s, one(f, 100).job.all_heard) == (0.0, False)
    f.report(held([], 1, node="c2", steps=False), 100)  # nothing of it runs there: nobody reads its GPUs
    f.report(held([], 2), 115)
    f.report(held([], 3), 130)
    assert (one(f, 140).job.bare_s, one(f, 140).job.all_heard) == (25.0, True)
    assert only(f, 140).workers[0].rests_s == 30.0, "up to the last look"
    f.report(held(None, 4), 145)
    assert one(f, 145).job.bare_s is None, "of one GPU it is not known"
    f.report(held([], 5), 160)
    assert one(f, 175).job.bare_s == 15.0, "it begins anew"
