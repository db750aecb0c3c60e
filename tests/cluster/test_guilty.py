"""A rank that hangs in no odd state: found among those that wait for it by where its main thread is."""

from __future__ import annotations

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site


@pytest.mark.full
def test_a_rank_that_sleeps_is_named_among_those_that_wait_for_it(site: Site) -> None:
    job = site.gang("--stall-after=60s", ring="--sleep-at 400 5")
    victim = site.cluster.rank_pid(job, 0, 5)
    words = (f"rank 5 (node {victim.node}, PID {victim.pid}) sleeps in hrtimer_nanosleep (clock_nanosleep); "
             "7 of 7 other ranks wait in wait_woken (recvfrom)")
    suspect = wait_for(lambda: [f for f in site.findings("suspects", job) if f["rank"] == 5], 240, every=0.5,
                       what="a suspect that names rank 5", saw=lambda: (site.history(job), site.progress(job)))[0]
    assert words in suspect["stall"]["evidence"]
    stalled = site.wait_finding("stalled", job, timeout=80)
    assert (stalled["worker"], stalled["machine"], stalled["pid"]) == (f"{job}-5", victim.node, victim.pid)
    assert words in stalled["stall"]["evidence"]
    assert stalled["stall"]["cause"] == "collective stuck: rank 5 does not join it"
    assert stalled["stall"]["rests_on"]["by"] == "place"
    read = site.cluster.run(victim.node, ["astraeus-monitor", "read", "process", str(victim.pid)])
    assert read.ok, read
    assert "main thread: hrtimer_nanosleep (clock_nanosleep) in 100% of 25 samples" in read.out
    assert " bytes unread" in read.out
    site.cluster.run("ctl", ["scancel", str(job)])
