"""A run that names a metric of its own: the metric alone tells its progress."""

from __future__ import annotations

import time

from slurm_test_cluster import wait_for

from .conftest import Site

NAMED = ("--progress-metric=ring_step", "--metrics-port=9400", "--stall-after=40s")


def metrics(site: Site, job: int) -> dict[int, dict]:
    """Rank to its metric, of those that can be read now."""
    return {w["rank"]: w["metric"] for w in site.progress(job)["workers"]
            if w["metric"] and w["metric"]["last_change_at"]}


def test_metric_that_stands_still_is_a_stall_whatever_is_printed(site: Site) -> None:
    """Rank 0 alone serves it; a heartbeat goes on to print, so output would never tell."""
    job = site.gang(*NAMED, ring="--metrics first", before="(while sleep 3; do echo alive; done) &")
    wait_for(lambda: set(metrics(site, job)) == {0}, 40, every=1, what="rank 0's metric",
             saw=lambda: site.progress(job))
    assert metrics(site, job)[0]["name"] == "ring_step"
    before = metrics(site, job)[0]["value"]
    wait_for(lambda: metrics(site, job)[0]["value"] > before, 40, every=1, what="the metric growing")
    victim = site.cluster.rank_pid(job, 0, 5)
    stopped = time.monotonic()
    site.cluster.signal_rank(job, 0, 5, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=40 + 35)
    took = time.monotonic() - stopped
    assert took >= 40, stalled
    assert (stalled["worker"], stalled["pid"], stalled["rule"]) == (f"{job}-5", victim.pid, "metric_unchanged")
    said = stalled["stall"]["evidence"]
    assert said.startswith(f"metric ring_step unchanged at {metrics(site, job)[0]['value']:.10g} since "), said
    assert f"rank 5 (node {victim.node}, PID {victim.pid}) is stopped (state T)" in said
    site.cluster.signal_rank(job, 0, 5, "CONT")
    assert site.wait_event(job, "progress", timeout=60)["message"] == "Progress again: no longer stalled"
    site.cluster.run("ctl", ["scancel", str(job)])


def test_metric_that_moves_is_progress_without_a_word(site: Site) -> None:
    """Every rank serves it on its own port; nothing is printed for twice the patience."""
    job = site.gang(*NAMED, ring="--metrics all --print-every 0")
    wait_for(lambda: set(metrics(site, job)) == set(range(8)), 40, every=1, what="the metric of all ranks",
             saw=lambda: site.progress(job))
    site.quiet_for([job], 80)
    site.cluster.run("ctl", ["scancel", str(job)])
