"""The rules, by their numbers and words."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.rules import Conclusion, judge
from astraeus_protocol.readings import Finished, Wait
from msgspec import structs

from .views import NOW, gpu, odd, picture, process, shows, waiting, worker


def verdicts(found: list[Conclusion]) -> list[tuple[str, str]]:
    return [(c.verdict, c.rule) for c in found]


def stalled(found: list[Conclusion]) -> list[Conclusion]:
    return [c for c in found if c.verdict == "stalled"]


def gang(*others: Any, count: int = 8, **waits: Any) -> list[Any]:
    taken = {w.rank for w in others}
    members = [waiting(rank, gpus=(gpu(),), **waits) for rank in range(count) if rank not in taken]
    return sorted([*members, *others], key=lambda w: w.rank)


# A collective is stuck

def test_stopped_member_is_named_with_the_seeds_words() -> None:
    [found] = judge(picture(*gang(odd(5, "T", 600))))
    assert (found.verdict, found.rule, found.worker, found.rank, found.node, found.pid) == (
        "stalled", "collective_stuck", "123-5", 5, "c3", 4005)
    assert found.said == ("no output since 14:02 UTC; rank 5 (node c3, PID 4005) is stopped (state T) for 10m; "
                          "7 of 7 other ranks wait")
    assert (found.since_s, found.gang) == (720.0, True)


@pytest.mark.parametrize(("after", "sign_s", "output_s", "expected"), [
    (900, 600, 720, True),      # ten minutes of the sign are enough whatever the patience
    (900, 599, 720, False),
    (900, 720, 599, False),     # output after the sign counts
    (60, 60, 60, True),
    (60, 59, 60, False),
])
def test_shorter_of_patience_and_ten_minutes(after: float, sign_s: float, output_s: float,
                                             expected: bool) -> None:
    workers = gang(odd(5, "T", sign_s, output_s=output_s), output_s=output_s)
    assert bool(stalled(judge(picture(*workers, after=after)))) is expected


@pytest.mark.parametrize(("state", "status", "words"), [
    ("Z", None, "rank 5 (node c3, PID 4005) is a zombie (state Z) for 10m"),
    ("X", 9, "rank 5 (node c3, PID 4005) is gone: killed by signal 9 (KILL)"),
    ("X", 3 << 8, "rank 5 (node c3, PID 4005) is gone: exited with code 3"),
    ("X", None, "rank 5 (node c3, PID 4005) is gone: nobody saw how it ended"),
    ("D", None, "rank 5 (node c3, PID 4005) is in uninterruptible sleep (state D) for 10m"),
])
def test_signs_in_words(state: str, status: int | None, words: str) -> None:
    [found] = judge(picture(*gang(odd(5, state, 600, status))))
    assert found.verdict == "stalled"
    assert words in found.said


@pytest.mark.parametrize(("state", "status", "for_s", "suspect"), [
    ("X", 9, 9, False),         # for a second the others of a job that ends have not been reported yet
    ("X", 9, 10, True),
    ("Z", None, 9, False),
    ("X", 15, 44, False),       # cancelled: who handles TERM lives on for KillWait
    ("X", 15, 45, True),
    ("X", 143 << 8, 10, True),
])
def test_who_has_just_ended_is_not_waited_for(state: str, status: int | None, for_s: float, suspect: bool) -> None:
    found = judge(picture(*gang(odd(5, state, for_s, status), output_s=5.0), gap=1000))
    assert [c.rank for c in found] == ([5] if suspect else [])


def test_a_stall_keeps_its_sentence_while_its_job_is_cancelled() -> None:
    workers = [waiting(rank, gone_s=60, output_s=60.0) for rank in range(8)]
    workers[2] = odd(2, "X", 1, 15, output_s=60.0)
    [found] = stalled(judge(picture(*workers, after=30)))
    assert (found.rule, found.rank) == ("silent", None)


def test_member_that_exited_0_is_evidence_of_nothing() -> None:
    assert judge(picture(*gang(odd(5, "X", 600, 0)), gap=1000)) == []


@pytest.mark.parametrize("state_s", [None, 29.0])
def test_short_d_is_no_sign(state_s: float | None) -> None:
    assert judge(picture(*gang(odd(5, "D", state_s)), gap=1000)) == []


def test_others_with_unknown_pulse_don_t_wait() -> None:
    unknown = [worker(rank, processes=(process(pulse_gone_s=None),), gpus=(gpu(),)) for rank in range(4)]
    assert judge(picture(*gang(odd(5, "T"), *unknown))) == []


def test_more_than_half_of_the_others_must_wait() -> None:
    beating = [worker(rank, gpus=(gpu(),)) for rank in (0, 1, 2, 3)]
    assert judge(picture(*gang(odd(5, "T"), *beating))) == []
    assert stalled(judge(picture(*gang(odd(5, "T"), *beating[:3]))))


def test_pulse_lost_for_a_moment_only_makes_a_suspect() -> None:
    found = judge(picture(*gang(odd(5, "T", 800), gone_s=12)))
    assert verdicts(found) == [("suspect", "suspect")]


def test_writing_forbids_it() -> None:
    assert judge(picture(*gang(odd(5, "D"), waiting(0, writing_s=40.0, gpus=(gpu(),))))) == []
    late = judge(picture(*gang(odd(5, "D"), waiting(0, writing_s=7201.0, gpus=(gpu(),)))))
    assert [c.rank for c in stalled(late)] == [5]


def test_debugger_forbids_it() -> None:
    traced = worker(0, processes=(process(traced=True),), gpus=(gpu(),))
    assert judge(picture(*gang(odd(5, "T"), traced))) == []
    assert judge(picture(*gang(odd(5, "t")))) == []


def test_untied_tasks_are_no_gang() -> None:
    loose = [structs.replace(w, processes=tuple(structs.replace(p, tied=False) for p in w.processes))
             for w in gang(odd(5, "T"))]
    assert judge(picture(*loose)) == []


def test_half_of_the_gang_names_nobody() -> None:
    [found] = judge(picture(*gang(*(odd(rank, "T", gpus=(gpu(),)) for rank in range(4)))))
    assert (found.worker, found.rank, found.pid, found.node) == ("123", None, None, "c[1-4]")
    assert found.said == "no output since 14:02 UTC; no rank stands out; 4 of 4 other ranks wait"


def test_of_two_the_stopped_one_is_named() -> None:
    [found] = judge(picture(*gang(odd(1, "T"))[:2]))
    assert (found.rank, found.worker) == (1, "123-1")


def test_the_stopped_one_is_named_before_those_that_died_of_it() -> None:
    dead = [odd(rank, "X", 100, 6) for rank in (0, 1)]
    [found] = judge(picture(*gang(odd(5, "T", 650), *dead)))
    assert found.rank == 5


def test_local_process_of_a_launcher_is_named() -> None:
    parts = [process(4240 + i, local=i, rank=str(i), pulse_gone_s=650.0) for i in range(4)]
    parts[2] = process(4242, local=2, rank="2", state="T", state_s=650.0, pulse_gone_s=None)
    [found] = judge(picture(worker(0, processes=tuple(parts), gpus=(gpu(),))))
    assert (found.worker, found.rank, found.pid) == ("123-0", 0, 4242)
    assert "rank 0 · local process 2 (RANK=2, PID 4242) on c1 is stopped (state T) for 10m" in found.said
    assert found.said.endswith("3 of 3 other processes wait")


@pytest.mark.parametrize(("state", "dead", "expected"), [("X", 1, True), ("X", 2, False), ("Z", 3, False)])
def test_unseen_deaths_count_only_as_a_minority(state: str, dead: int, expected: bool) -> None:
    parts = [process(4240 + i, local=i, state=state, state_s=650.0, pulse_gone_s=None) for i in range(dead)]
    parts += [process(4250 + i, local=dead + i, pulse_gone_s=650.0) for i in range(4 - dead)]
    found = judge(picture(worker(0, processes=tuple(parts), gpus=(gpu(),)), gap=1000))
    assert bool(stalled(found)) is expected


def test_unknown_output_of_one_member_makes_it_unknown() -> None:
    found = judge(picture(*gang(odd(5, "T"), waiting(0, output_s=None, gpus=(gpu(),)))))
    assert ("unknown", "collective_stuck") in verdicts(found)
    assert not stalled(found)


# GPUs

def test_idle_and_quiet_worker() -> None:
    idle = worker(0, 720, gpus=(gpu(0, 780.0), gpu(1, 800.0)), processes=(process(tied=False),))
    [found] = judge(picture(idle, after=600, asked=False))
    assert (found.verdict, found.rule, found.worker, found.pid) == ("stalled", "gpus_idle", "123-0", 4000)
    assert found.said == "no output since 14:02 UTC; its 2 GPUs idle since 14:01 UTC"
    assert found.since_s == 720


def test_last_progress_is_the_younger_of_output_and_gpus() -> None:
    idle = worker(0, 720, gpus=(gpu(0, 660.0),), processes=(process(tied=False),))
    [found] = judge(picture(idle, after=600))
    assert (found.since_s, found.since) == (660.0, idle.gpus[0].busy_at)


@pytest.mark.parametrize(("change", "expected"), [
    ({"output_s": 599.0, "output_at": 1.0}, []),
    ({"gpus": (gpu(0, 599.0),)}, []),
    ({"gpus": (gpu(0, 700.0), gpu(1, 0.0))}, []),
    ({"writing_s": 30.0}, []),
    ({"gpus": (gpu(0, 700.0), gpu(1, None))}, [("unknown", "gpus_idle")]),
    ({"gpus": (), "unknown": (("gpu", "NVML does not answer"),)}, [("unknown", "gpus_idle")]),
    ({"output_s": None}, [("unknown", "gpus_idle")]),
    ({"writing_s": None}, [("unknown", "gpus_idle")]),
    ({"state": "stale"}, [("unknown", "gpus_idle")]),
    ({"gpus": (gpu(0, 599.0), gpu(1, None))}, []),
    ({"writing_s": 7201.0}, [("stalled", "gpus_idle")]),
    ({"gpus": (gpu(0, 700.0, ever_busy=False),)}, [("stalled", "never_began")]),
])
def test_gpu_verdicts(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    idle = worker(0, 720, gpus=(gpu(0, 700.0),), processes=(process(tied=False),))
    found = judge(picture(structs.replace(idle, **change), after=600))
    assert verdicts(found) == expected


def test_a_gang_whose_rank_0_saves_is_well() -> None:
    members = [worker(rank, 720, gpus=(gpu(0, 720.0),)) for rank in range(4)]
    members[0] = structs.replace(members[0], writing_s=300.0)
    assert stalled(judge(picture(*members, after=600))) == []


def test_ranks_of_an_idle_gang_whose_reports_are_older_count_too() -> None:
    """The first to be idle for its patience would else stand for a gang of which 7 of 8 seem to work."""
    ages = {0: 600.0, 1: 585.0, 2: 571.0, 3: 569.0}
    gang_of_4 = [worker(rank, 720, gpus=(gpu(0, age),)) for rank, age in ages.items()]
    [found] = judge(picture(*gang_of_4, after=600))
    assert "the GPUs of 3 of 4 ranks idle" in found.said


def test_idle_gang_is_one_conclusion() -> None:
    members = [worker(rank, 720, gpus=(gpu(0, 720.0),)) for rank in range(4)]
    [found] = stalled(judge(picture(*members, after=600)))
    assert (found.worker, found.rank, len(found.workers)) == ("123", None, 4)
    assert found.said == ("no output since 14:02 UTC; the GPUs of 4 of 4 ranks idle since 14:02 UTC; "
                          "no rank stands out")


def test_two_of_three_independent_workers() -> None:
    loose = (process(tied=False),)
    members = [worker(rank, 720, gpus=(gpu(0, 720.0),), processes=loose) for rank in range(2)]
    members.append(worker(2, 720, gpus=(gpu(0, 0.0),), processes=loose))
    assert [c.worker for c in judge(picture(*members, after=600))] == ["123-0", "123-1"]


# Silent

@pytest.mark.parametrize(("change", "expected"), [
    ({}, [("stalled", "silent")]),
    ({"cpu_idle_s": 599.0}, []),
    ({"cpu_idle_s": None}, [("unknown", "silent")]),
    ({"writing_s": 10.0}, []),
    ({"output_s": 599.0}, []),
])
def test_one_task_without_gpus(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    quiet = worker(0, 720, cpu_idle_s=700.0, processes=(process(tied=False),))
    assert verdicts(judge(picture(structs.replace(quiet, **change), after=600))) == expected
    assert judge(picture(structs.replace(quiet, **change), after=600, asked=False)) == []


def test_in_a_gang_the_cpu_says_nothing_and_the_pulse_does() -> None:
    spinning = [waiting(rank, cpu_idle_s=0.0) for rank in range(4)]
    assert stalled(judge(picture(*spinning, after=600)))
    beating = [worker(rank, 720, cpu_idle_s=0.0) for rank in range(4)]
    assert judge(picture(*beating, after=600)) == []
    unknown = [worker(rank, 720, cpu_idle_s=0.0, processes=(process(pulse_gone_s=None),)) for rank in range(4)]
    assert stalled(judge(picture(*unknown, after=600)))


# Storage

NFS = Wait("rpc_wait_bit_killable", 600.0, "openat", "store1:/export", "/data", "nfs4")
FUSE = Wait("request_wait_answer", 600.0, "read", "store1:/export", "/data", "fuse.x")
ON_NFS = "store1:/export (mounted at /data, nfs4)"


def on_storage(rank: int, wait: Wait = NFS, state: str = "S", gone_s: float = 600.0, **more: Any) -> Any:
    state_s = gone_s if state == "D" else None
    return worker(rank, processes=(process(4000 + rank, state=state, state_s=state_s, pulse=0.0, pulse_gone_s=gone_s,
                                           wait=wait),), **more)


@pytest.mark.parametrize("state", ["S", "D"])
def test_one_rank_that_waits_for_storage_is_named_with_its_store(state: str) -> None:
    [found] = judge(picture(*gang(on_storage(5, state=state))))
    assert (found.verdict, found.rule, found.rank, found.pid) == ("stalled", "collective_stuck", 5, 4005)
    assert found.said == (f"no output since 14:02 UTC; rank 5 (node c3, PID 4005) waits for storage: {ON_NFS} "
                          "for 10m; 7 of 7 other ranks wait")
    assert found.evidence["waits_on"] == ["store1:/export"]
    assert found.evidence["on_storage"] == [[5, 4005, "store1:/export", "/data", "nfs4", "openat", 600.0]]


def test_a_data_loader_and_an_unknown_mount_in_words() -> None:
    [found] = judge(picture(*gang(on_storage(5, structs.replace(NFS, helper=4321)))))
    assert f"waits in its process 4321 for storage: {ON_NFS} for 10m" in found.said
    [found] = judge(picture(*gang(on_storage(5, Wait("rpc_wait_bit_killable", 600.0, "openat", kind="nfs")))))
    assert "waits for storage: nfs for 10m" in found.said
    assert found.evidence["waits_on"] == []


def test_a_fault_of_mapped_memory_tells_of_no_store_but_of_its_place() -> None:
    mapped = Wait("folio_wait_bit_common", 600.0, "page fault")
    [found] = judge(picture(*gang(on_storage(5, mapped, state="D"))))
    assert ("rank 5 (node c3, PID 4005) is in uninterruptible sleep (state D) in folio_wait_bit_common (page fault) "
            "for 10m") in found.said
    assert found.evidence["waits_on"] == []


@pytest.mark.parametrize("count", [4, 6, 8])
def test_half_of_the_gang_or_more_on_storage_names_the_store_and_nobody(count: int) -> None:
    hung = [on_storage(rank, FUSE) for rank in range(count)]
    [found] = judge(picture(*gang(*hung)))
    assert (found.rule, found.rank, found.evidence["waits_on"]) == ("collective_stuck", None, ["store1:/export"])
    others = f"; {8 - count} of {8 - count} other ranks wait" if count < 8 else ""
    assert found.said == (f"no output since 14:02 UTC; {count} of 8 ranks wait for storage: store1:/export (mounted "
                          f"at /data, fuse.x); no rank stands out{others}")


def test_a_launchers_processes_are_counted_as_such() -> None:
    parts = tuple(process(4240 + i, local=i, rank=str(i), pulse=0.0, pulse_gone_s=650.0, wait=FUSE) for i in range(4))
    [found] = judge(picture(worker(0, processes=parts, gpus=(gpu(),))))
    assert "; 4 of 4 processes wait for storage: store1:/export (mounted at /data, fuse.x); no rank" in found.said


def test_a_stopped_rank_goes_before_those_on_storage() -> None:
    [found] = judge(picture(*gang(odd(2, "T"), on_storage(5))))
    assert found.rank == 2
    assert f"1 of 8 ranks waits for storage: {ON_NFS}; rank 2 (node c2, PID 4002) is stopped" in found.said
    assert found.evidence["waits_on"] == ["store1:/export"]


def test_a_short_wait_for_storage_is_nothing_and_so_is_a_long_one_for_something_else() -> None:
    for wait in (structs.replace(NFS, s=29.0), Wait("futex_do_wait", 600.0, "futex")):
        [found] = judge(picture(*gang(on_storage(5, wait, gone_s=11.0), gone_s=11.0, output_s=40.0)))
        assert (found.verdict, found.rank, found.evidence["waits_on"]) == ("suspect", None, [])
        assert "storage" not in found.said


def test_only_what_is_one_store_on_every_node_is_waited_on() -> None:
    local = Wait("folio_wait_bit_common", 600.0, "read", "/dev/vda1", "/scratch", "xfs")
    image = Wait("request_wait_answer", 600.0, "read", "squashfuse", "/rootfs", "fuse.squashfuse")
    [found] = judge(picture(*gang(on_storage(3, local), on_storage(4, image), on_storage(5))))
    assert "rank 3 (node c2, PID 4003) waits for storage: /dev/vda1 (mounted at /scratch, xfs)" in found.said
    assert found.evidence["waits_on"] == ["store1:/export"]


def test_a_worker_of_its_own_names_its_own_store() -> None:
    loose = [worker(rank, 720, cpu_idle_s=720.0, processes=(process(4000 + rank, tied=False, wait=wait),))
             for rank, wait in enumerate((NFS, None))]
    busy = worker(2, 3.0, processes=(process(4002, tied=False),))
    first, second = judge(picture(*loose, busy, after=600))
    assert first.evidence["waits_on"] == ["store1:/export"]
    assert first.said.endswith(f"rank 0 (node c1, PID 4000) waits for storage: {ON_NFS} for 10m")
    assert second.evidence["waits_on"] == []


def test_a_suspect_says_the_store_as_soon_as_it_is_known() -> None:
    hung = [on_storage(rank, structs.replace(FUSE, s=31.0), gone_s=40.0) for rank in range(8)]
    [found] = judge(picture(*gang(*hung)))
    assert (found.verdict, found.rank) == ("suspect", None)
    assert "8 of 8 ranks wait for storage: store1:/export" in found.said


# Suspect

def test_suspect_at_the_first_look() -> None:
    workers = gang(odd(5, "T", 12, output_s=14.0), output_s=14.0, gone_s=11)
    [found] = judge(picture(*workers))
    assert (found.verdict, found.rank, found.pid, found.node) == ("suspect", 5, 4005, "c3")
    assert found.said == ("no output since 14:13 UTC; rank 5 (node c3, PID 4005) is stopped (state T) for 12s; "
                          "7 of 7 other ranks wait")


@pytest.mark.parametrize(("output_s", "gap", "expected"), [
    (29, 1, False), (30, 1, True), (44, 15, False), (45, 15, True), (30, None, True)])
def test_lost_pulse_needs_quiet_output(output_s: float, gap: float | None, expected: bool) -> None:
    found = judge(picture(*gang(output_s=output_s, gone_s=11), gap=gap))
    assert bool(found) is expected
    if found:
        assert found[0].said.endswith("8 of 8 ranks wait; no rank stands out")


# Everything

def test_last_words_are_said_with_stall_and_suspect() -> None:
    line = "2026-10-07 14:01:50 | INFO | __main__:main:42 - " + "Training completed " * 4
    over = Finished(line, 730.0)
    members = [waiting(rank) for rank in range(4)]

    def said(output_s: float) -> Conclusion:
        found = picture(*(structs.replace(one, output_s=output_s, output_at=NOW - output_s) for one in members))
        steps = tuple(structs.replace(step, finished=over) for step in found.job.steps)
        [conclusion] = judge(structs.replace(found, job=structs.replace(found.job, steps=steps)))
        return conclusion

    for output_s, verdict in ((1000.0, "stalled"), (730.0, "suspect")):
        conclusion = said(output_s)
        assert conclusion.verdict == verdict
        assert conclusion.said.endswith(
            'no rank stands out; finished but not exited: last words "2026-10-07 14:01:50 | INFO | __main__:main:42 - '
            'Training completed Training com…" at 14:01 UTC')
        assert conclusion.evidence["finished"] == line


def test_metric_named_silences_the_other_rules() -> None:
    found = judge(picture(*gang(odd(5, "T")), metric="step"))
    assert verdicts(found) == [("unknown", "metric_unchanged")]
    assert found[0].said == "the progress metric step of 123-0 is not known: not read yet"


@pytest.mark.parametrize(("unchanged_s", "expected"), [
    (899, []), (900, [("stalled", "metric_unchanged")]), (None, [("unknown", "metric_unchanged")])])
def test_metric_decides_alone(unchanged_s: float | None, expected: list[tuple[str, str]]) -> None:
    """Output a second ago, GPUs busy, CPU in use: nothing else is looked at."""
    busy = worker(0, output_s=1.0, gpus=(gpu(idle_s=0.0),), metrics=shows(4321, unchanged_s))
    found = judge(picture(busy, metric="step"))
    assert verdicts(found) == expected
    if expected == [("stalled", "metric_unchanged")]:
        assert (found[0].said, found[0].since_s) == ("metric step unchanged at 4321 since 13:59 UTC", 900)


def test_metric_that_only_rank_0_serves() -> None:
    """The ranks that never served it do not count, the one that is stopped is named."""
    members = [w if w.rank else structs.replace(w, metrics=shows(4321, 1000)) for w in gang(odd(5, "T"))]
    found = judge(picture(*members, metric="step"))
    assert verdicts(found) == [("stalled", "metric_unchanged")]
    assert (found[0].rank, found[0].evidence["metric"], found[0].evidence["value"]) == (5, "step", 4321)
    assert found[0].said.startswith("metric step unchanged at 4321 since 13:57 UTC; rank 5 (node c3, PID 4005) is stop")


def test_metric_that_was_served_and_is_gone_is_unknown() -> None:
    members = [structs.replace(w, metrics=shows(4321, None if w.rank == 3 else 1000)) for w in gang(odd(5, "T"))]
    assert verdicts(judge(picture(*members, metric="step"))) == [("unknown", "metric_unchanged")]


def test_metric_of_one_rank_that_changes_is_progress_of_its_gang() -> None:
    members = [structs.replace(w, metrics=shows(4321, 5 if w.rank == 3 else 1000)) for w in gang(odd(5, "T"))]
    assert judge(picture(*members, metric="step")) == []


def test_metric_at_its_end() -> None:
    found = judge(picture(worker(0, metrics=shows(10_000, 1000)), metric="step", end=10_000))
    assert found[0].said == "metric step unchanged at 10000 since 13:57 UTC, which is its last value (10000)"
    assert found[0].evidence["ended"] == 10_000


@pytest.mark.parametrize("job", [{"suspended": True}, {"ended": True}, {"state": "COMPLETING"},
                                 {"state": "SUSPENDED"}])
def test_nothing_is_said_of_a_job_that_does_not_run(job: dict[str, Any]) -> None:
    assert judge(picture(*gang(odd(5, "T")), **job)) == []


def test_unwatched_step_is_left_alone() -> None:
    found = picture(*gang(odd(5, "T")))
    step = structs.replace(found.job.steps[0], watched=False)
    assert judge(structs.replace(found, job=structs.replace(found.job, steps=(step,)))) == []


def test_silent_node_is_said_and_not_blamed() -> None:
    members = gang(odd(5, "T"), worker(6, None, state="stale"), worker(7, None, state="stale"))
    found = judge(picture(*members, silent_nodes=("c4",), silent_s=(60.0,)))
    assert not stalled(found)
    [node] = [c for c in found if c.verdict == "node_silent"]
    assert (node.node, node.rank) == ("c4", None)
    assert node.said == ("node c4 has not reported since 14:13 UTC, for 60s; 2 workers are stale, "
                         "which proves nothing about them")
