"""May a stalled job be restarted: every reason against it, by its sentence."""

import msgspec
import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.may_restart import Decision, Facts, breaker, may_restart
from astraeus_controller.config import Restart, Watch
from astraeus_controller.history.store import Store
from astraeus_controller.rules.picture import (
    GpuView,
    JobView,
    MetricView,
    Picture,
    Policy,
    ProcessView,
    StepView,
    WorkerView,
)
from astraeus_controller.slurm.types import JobFacts
from astraeus_protocol.readings import Wait
from service_kit import SINCE, finding

GOOD = Facts(act=True, stalled=True, state="RUNNING", ranks=8, run_time_s=1800, progressed_s=700)

CASES = [
    ({"act": False}, "no", "the partition is in observe mode, where nothing is stopped"),
    ({"stalled": False}, "no", "it is no longer stalled"),
    ({"state": ""}, "no", "Slurm no longer knows the job"),
    ({"same_attempt": False}, "no", "the job was requeued meanwhile"),
    ({"batch": False}, "no", "it is interactive: Slurm requeues only batch jobs"),
    ({"requeue": False}, "no", "it is not requeueable (--no-requeue, or JobRequeue=0)"),
    ({"budget": 0}, "no", "its restart budget is 0 (--max-restarts=0)"),
    ({"spent": 10}, "no", "its restart budget is spent (10 of 10)"),
    ({"total": 50}, "no", "the site's bound on restarts of one job is reached (50 of 50)"),
    ({"progressed_s": 5, "progressed_before_s": 12}, "no",
     "two attempts running made no progress; another would hang in the same place"),
    ({"at_end": "step is at its last value (100)"}, "no",
     "the training is over (step is at its last value (100)); another attempt would do it all again"),
    ({"last_words": "Training completed"}, "no",
     "the training is over (its last words: Training completed); another attempt would do it all again"),
    ({"incident": "it is part of incident 3 (4 jobs wait on store1:/export), so nothing is stopped",
      "stalled_jobs": 4}, "not_now",
     "it is part of incident 3 (4 jobs wait on store1:/export), so nothing is stopped"),
    ({"stalled_jobs": 4}, "not_now",
     "4 jobs stalled within 10 min: the cause lies outside of them, so nothing is stopped"),
    ({"state": "SUSPENDED"}, "not_now", "the job is suspended"),
    ({"state": "STOPPED"}, "not_now", "the job is stopped by its user"),
    ({"state": "COMPLETING"}, "not_now", "the job is completing"),
    ({"state": "PENDING"}, "not_now", "the job is PENDING"),
    ({"held": True}, "not_now", "the job is held: once requeued it would stay so"),
    ({"time_limit_s": 1860}, "not_now", "it is at its time limit (60s left)"),
    ({"time_limit_s": 1800 + 30 + 60 + 299, "grace_s": 300}, "not_now", "it is at its time limit (6m left)"),
    ({"beside": "1"}, "not_now", "step 1 progresses beside the stalled one, and Slurm requeues whole jobs"),
    ({"in_d": ("123-5",)}, "not_now", "123-5 is in uninterruptible sleep (state D): a kill would not end it and "
                                      "Slurm would drain its node"),
    ({"in_d": ("123-5",), "on_storage": ("123-5",), "stores": ("store1:/export",)}, "not_now",
     "123-5 waits for storage (store1:/export): a kill may not end it, and Slurm would drain its node"),
    ({"on_storage": ("123-5", "123-6")}, "not_now",
     "123-5 and 1 more wait for storage: a kill may not end it, and Slurm would drain its node"),
    ({"traced": ("123-5", "123-6")}, "not_now", "123-5 and 1 more is under a debugger"),
    ({"silent_nodes": ("c1", "c2")}, "not_now", "2 of its nodes are silent (c1 and 1 more)"),
    ({"ranks": 100, "ranks_unknown": 6}, "not_now", "6 of its 100 ranks are unknown"),
    ({"completing_nodes": ("c2",)}, "not_now", "nodes of its last attempt are still completing (c2)"),
    ({"stops_last_hour": 20}, "not_now", "the site's bound of 20 stops an hour is reached"),
    ({"since_last_stop_s": 10}, "wait", "another job was stopped 10s ago"),
]


@pytest.mark.parametrize(("values", "answer", "sentence"), CASES)
def test_each_reason(values: dict[str, object], answer: str, sentence: str) -> None:
    assert may_restart(msgspec.structs.replace(GOOD, **values)) == Decision(answer, sentence)


def test_yes() -> None:
    assert may_restart(GOOD) == Decision("yes")
    for values in ({"spent": 9}, {"progressed_s": 5}, {"progressed_s": 700, "progressed_before_s": 1},
                   {"beside": "1", "allow_beside": True}, {"silent_nodes": ("c1",)}, {"time_limit_s": 3600},
                   {"ranks": 100, "ranks_unknown": 5}, {"stalled_jobs": 3}, {"since_last_stop_s": 31},
                   {"grace_s": 300}):
        assert may_restart(msgspec.structs.replace(GOOD, **values)).answer == "yes", values


def test_lasting_reasons_come_first() -> None:
    both = msgspec.structs.replace(GOOD, requeue=False, state="SUSPENDED", stops_last_hour=20)
    assert may_restart(both).answer == "no"


def test_breaker_grows_with_the_cluster() -> None:
    assert breaker(msgspec.structs.replace(GOOD, stalled_jobs=4, watched_jobs=100))
    assert not breaker(msgspec.structs.replace(GOOD, stalled_jobs=20, watched_jobs=1000))
    assert breaker(msgspec.structs.replace(GOOD, stalled_jobs=21, watched_jobs=1000))


def process(**values: object) -> ProcessView:
    return ProcessView(**({"pid": 1, "local": 0, "rank": "", "comm": "python", "state": "S", "state_s": None,
                           "exit_status": None, "pulse": None, "pulse_base": None, "pulse_gone_s": None,
                           "traced": False, "tied": True} | values))


def worker(rank: int, **values: object) -> WorkerView:
    return WorkerView(**({"name": f"123-{rank}", "rank": rank, "node": "c1", "pid": 1, "state": "running",
                          "exit_status": None, "exit_s": None, "output_s": 720.0, "writing_s": None,
                          "cpu_idle_s": None, "began_s": 1800.0, "processes": (process(),), "gpus": (),
                          "unknown": ()} | values))


def step(number: str, *workers: WorkerView, **values: object) -> StepView:
    return StepView(**({"step": number, "name": "123", "nodes": 1, "tasks": len(workers), "nodelist": "c1",
                        "policy": Policy(action="restart", mode="act"), "watched": True, "watch_reason": "",
                        "ended": False, "complete": True, "output_s": None, "output_gap_s": None, "log": "",
                        "workers": workers} | values))


def picture(*steps: StepView, **values: object) -> Picture:
    return Picture(now=SINCE + 720, cluster="test", job=JobView(**({
        "job": 123, "run": "123", "name": "llm", "user": "alice", "account": "a", "partition": "main",
        "state": "RUNNING", "restarts": 0, "nodes": 4, "nodelist": "c[1-4]", "gpus": 8, "batch": True,
        "suspended": False, "silent_nodes": (), "policy": Policy(action="restart", mode="act"),
        "steps": steps} | values)))


def gather(shown: Picture, slurm: JobFacts | None = None, store: Store | None = None, **values: object) -> Facts:
    store = store or Store(":memory:")
    if not store.open_findings():
        store.put_finding(finding())
    return evidence.gather(
        finding(), shown, slurm or JobFacts(job=123, state="RUNNING", batch=True, requeue=True, run_time_s=1800),
        store, **({"site": Restart(), "watch": Watch(mode="act"), "now": SINCE + 720, "kill_wait_s": 8,
                   "stalled_steps": {"0"}, "watched_jobs": 5, "completing_nodes": ()} | values))


@pytest.mark.parametrize(("value", "said"), [(99.0, ""), (100.0, "step is at its last value (100)")])
def test_a_metric_at_its_end(value: float, said: str) -> None:
    named = Policy(action="restart", mode="act", progress_metric="step", progress_end=100)
    ranks = (worker(0, metrics=(MetricView("step", value, 900.0, SINCE),)), worker(1))
    assert gather(picture(step("0", *ranks, policy=named))).at_end == said


def test_gathered() -> None:
    facts = gather(picture(step("0", *(worker(r) for r in range(8)))))
    assert (facts.ranks, facts.ranks_unknown, facts.progressed_s, facts.kill_wait_s) == (8, 0, 1080, 8)
    assert may_restart(facts).answer == "yes"


def test_gathered_states() -> None:
    shown = picture(step("0", worker(0, processes=(process(state="D", state_s=40.0),)),
                         worker(1, processes=(process(state="D", state_s=1.0),)),
                         worker(2, processes=(process(traced=True),)), worker(3, state="stale"), tasks=10))
    facts = gather(shown)
    assert (facts.in_d, facts.traced, facts.ranks, facts.ranks_unknown) == (("123-0",), ("123-2",), 10, 7)


def test_gathered_waits_for_storage() -> None:
    fuse = Wait("request_wait_answer", 1.0, "openat", "store1:/export", "/data", "fuse.x")
    nowhere = Wait("rpc_wait_bit_killable", 1.0, "openat", kind="nfs")
    facts = gather(picture(step("0", worker(0, processes=(process(wait=fuse), process(wait=fuse))),
                                worker(1, processes=(process(wait=Wait("futex_do_wait", 90.0, "futex")),)),
                                worker(2, processes=(process(wait=nowhere),)))))
    assert (facts.on_storage, facts.stores, facts.in_d) == (("123-0", "123-2"), ("store1:/export",), ())


@pytest.mark.parametrize(("beside", "answer"), [
    (worker(0, output_s=3.0), "1"), (worker(0, gpus=(GpuView(0, 90.0, 0.0, True),)), "1"),
    (worker(0, cpu_idle_s=0.0), "1"), (worker(0), ""), (worker(0, state="exited", output_s=1.0), "")])
def test_a_step_beside(beside: WorkerView, answer: str) -> None:
    assert gather(picture(step("0", worker(0)), step("1", beside))).beside == answer
    assert gather(picture(step("0", worker(0)), step("1", beside, watched=False))).beside == ""
    assert gather(picture(step("0", worker(0)), step("1", beside)), stalled_steps={"0", "1"}).beside == ""


def test_gone_from_slurm_and_healed() -> None:
    store = Store(":memory:")
    store.put_finding(finding())
    store.close_finding(finding().key, "progress")
    store.put_finding(finding(key="other"))
    assert not gather(picture(step("0", worker(0))), store=store).stalled


def test_backoff_doubles_to_its_bound() -> None:
    assert [evidence.backoff_s(Restart(), n) for n in range(7)] == [10, 20, 40, 80, 160, 300, 300]


def test_a_suspension_is_not_taken_from_what_an_attempt_progressed() -> None:
    """Run for 800 s, quiet for 140 of them, and suspended for ten minutes in between."""
    slurm = JobFacts(job=123, state="RUNNING", run_time_s=800)
    one = finding(details={"no_progress_s": 120.0})  # found 720 s after its last progress
    assert evidence.progressed_s(slurm, one, SINCE + 740) == 660
    assert evidence.progressed_s(slurm, finding(), SINCE + 740) == 60
