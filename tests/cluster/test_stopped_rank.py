"""A rank of a gang is stopped: named as suspect, then as stalled, written into both comments, and healed."""

from __future__ import annotations

import re
import time

from slurm_test_cluster import wait_for

from .conftest import Site


def test_stopped_rank_is_named_and_its_progress_again_is_said(site: Site) -> None:
    own = "my sweep, lr=3e-4 | keep"
    job = site.gang("--stall-after=60s", f"--comment={own}", "-J", "llm")
    victim = site.cluster.rank_pid(job, 0, 5)
    stopped = time.monotonic()
    site.cluster.signal_rank(job, 0, 5, "STOP")

    suspect = site.wait_finding("suspects", job, timeout=30)
    assert time.monotonic() - stopped <= 30
    assert (suspect["worker"], suspect["rank"], suspect["machine"]) == (f"{job}-5", 5, victim.node)
    assert suspect["pid"] == victim.pid
    assert f"rank 5 (node {victim.node}, PID {victim.pid}) is stopped (state T)" in suspect["stall"]["evidence"]

    stalled = site.wait_finding("stalled", job, timeout=60 + 20 - (time.monotonic() - stopped))
    assert 60 <= time.monotonic() - stopped <= 60 + 20, stalled
    assert (stalled["worker"], stalled["machine"], stalled["pid"]) == (f"{job}-5", victim.node, victim.pid)
    assert stalled["stall"]["action"] == "alert"
    assert "7 of 7 other ranks wait" in stalled["stall"]["evidence"]
    assert len(site.findings("stalled", job)) == 1, "the waiters are not named"
    assert not site.findings("suspects", job), "a suspect that became stalled is no suspect"
    line = site.cluster.run("ctl", ["astraeus", "stalls"]).out
    assert f"STALLED  {job}-5 (run {job} llm, on {victim.node}) since " in line
    event = site.wait_event(job, "stalled", timeout=5)
    assert re.match(r"Stalled: No progress for (6|7)\ds: no output since \d\d:\d\d UTC; rank 5 ", event["message"])

    comment = wait_for(lambda: "[astraeus: " in site.comment(job) and site.comment(job), 10, what="comment")
    assert comment.startswith(own + " [astraeus: ")
    assert f"rank 5 on {victim.node}" in comment
    assert f"rank 5 on {victim.node}" in site.admin_comment(job)

    site.cluster.signal_rank(job, 0, 5, "CONT")
    again = site.wait_event(job, "progress", timeout=60)
    assert again["message"] == "Progress again: no longer stalled"
    wait_for(lambda: site.comment(job) == own, 15, what="the user's comment as it was",
             saw=lambda: site.comment(job))
    closing = wait_for(lambda: "progress again" in site.admin_comment(job) and site.admin_comment(job), 15,
                       what="closing piece", saw=lambda: site.admin_comment(job))
    assert f"rank 5 on {victim.node}" in closing
    assert closing.count("[astraeus:") == 1
    assert not site.findings("stalled", job)
    site.cluster.run("ctl", ["scancel", str(job)])
