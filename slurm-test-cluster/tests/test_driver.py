"""What the driver reads out of Slurm's text, and what it writes; no cluster needed."""

from __future__ import annotations

import itertools

import pytest
from slurm_test_cluster.faults import changed_gpu_state, parse_gpu_state
from slurm_test_cluster.jobs import parse_sacct, parse_show_job
from slurm_test_cluster.ranks import choose
from slurm_test_cluster.releases import release_named
from slurm_test_cluster.slurm_conf import slurm_conf
from slurm_test_cluster.variants import variant_named
from slurm_test_cluster.waiting import WaitTimeout, wait_for

SHOW_JOB = """\
JobId=4 JobName=my run
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   NodeList=c[1-4]
   Command=/home/alice/a b.sh
   WorkDir=/home/alice
   AdminComment=x = y
zwei | drei

vier\x20
   Comment=a user's | own = comment\x20
   StdErr=/home/alice/slurm-4.out
   StdOut=/home/alice/slurm-4.out
"""


def test_show_job_keeps_free_text_whole():
    job = parse_show_job(SHOW_JOB)
    assert job["JobId"] == "4"
    assert job["JobName"] == "my run"
    assert (job["JobState"], job["Restarts"], job["NodeList"]) == ("RUNNING", "0", "c[1-4]")
    assert job["Command"] == "/home/alice/a b.sh"
    assert job["AdminComment"] == "x = y\nzwei | drei\n\nvier"
    assert job["Comment"] == "a user's | own = comment"
    assert job["StdOut"] == "/home/alice/slurm-4.out"


def test_sacct_rows_with_newlines():
    text = "7\x1fREQUEUED\x1ffirst\nsecond\n\n7\x1fCOMPLETED\x1f\n"
    assert parse_sacct(text, ["JobID", "State", "AdminComment"]) == [
        {"JobID": "7", "State": "REQUEUED", "AdminComment": "first\nsecond\n"},
        {"JobID": "7", "State": "COMPLETED", "AdminComment": ""},
    ]
    assert parse_sacct("REQUEUED\nCOMPLETED\n", ["State"]) == [{"State": "REQUEUED"}, {"State": "COMPLETED"}]


def process(pid: int, ppid: int, comm: str, **env: str) -> dict:
    return {"pid": pid, "ppid": ppid, "state": "S", "comm": comm, "argv": [comm], "env": env}


def test_the_leaf_below_a_wrapper_is_the_rank():
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5"}
    rows = [
        process(10, 9, "bash", **step),
        process(11, 10, "python3", **step),
        process(12, 10, "cat", **step),
    ]
    leaf, task = choose(rows, 0, 5) or ({}, {})
    assert (leaf["pid"], task["pid"]) == (11, 10)
    assert choose(rows, 1, 5) is None
    assert choose(rows, 0, 4) is None


def test_a_launchers_rank_goes_before_slurms():
    batch = {"SLURM_PROCID": "0"}
    rows = [
        process(10, 9, "bash", **batch),
        process(11, 10, "python3", **batch),
        process(15, 10, "srun", **batch),
    ]
    rows += [process(12 + rank, 11, "python3", **batch, RANK=str(rank)) for rank in (0, 1)]
    leaf, task = choose(rows, "batch", 1) or ({}, {})
    assert (leaf["pid"], task["pid"]) == (13, 13)
    leaf, task = choose(rows, "batch", 0) or ({}, {})
    assert (leaf["pid"], task["pid"]) == (12, 10)


def test_the_batch_step_of_26_05_has_a_number():
    leaf, _ = choose([process(10, 9, "python3", SLURM_STEP_ID="-5", SLURM_PROCID="0")], "batch", 0) or (
        {},
        {},
    )
    assert leaf["pid"] == 10


def test_gpu_changes_keep_the_rest_and_the_past():
    old = {"gpu.0.util": "97", "gpu.1.temp": "50", "gpu.0.lost": "1"}
    state = changed_gpu_state(old, 0, {"util": 0, "lost": None}, 12.5)
    assert state == {
        "gpu.0.util": "0", "gpu.0.util_before": "97", "gpu.0.util_since": "12.500", "gpu.1.temp": "50",
    }  # fmt: skip
    assert parse_gpu_state("# a\ngpu.0.util = 97\n") == {"gpu.0.util": "97"}


def test_slurm_conf_takes_settings():
    text = slurm_conf(2, {"KillWait": 20, "RequeueExit": 99, "MinJobAge": None})
    assert "NodeName=c[1-2] CPUs=16" in text
    assert "\nKillWait=20\n" in text
    assert "KillWait=8" not in text
    assert text.startswith("RequeueExit=99\n")
    assert "MinJobAge" not in text


def test_an_unknown_release_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"'23.02'.*22.05, 24.11, 26.05"):
        release_named("23.02")


def test_variants():
    assert variant_named("plain").slurm == {}
    assert "\nProctrackType=proctrack/cgroup\n" in slurm_conf(2, variant_named("cgroup").slurm)
    with pytest.raises(ValueError, match=r"'docker'.*plain, cgroup, systemd"):
        variant_named("docker")


def test_waiting_says_what_it_saw_last():
    numbers = itertools.count()
    assert wait_for(lambda: next(numbers) > 2, timeout=2, every=0.001)
    with pytest.raises(WaitTimeout, match=r"the moon: not within 0.01 s; seen last: 'clouds'"):
        wait_for(lambda: False, timeout=0.01, every=0.001, what="the moon", saw=lambda: "clouds")
    with pytest.raises(WaitTimeout, match="no such job"):
        wait_for(lambda: {}["no such job"], timeout=0.01, every=0.001)
