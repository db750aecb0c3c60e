"""The chain on another Slurm release: option accepted, monitor running, report received, job annotated."""

from __future__ import annotations

import os

import pytest
from slurm_test_cluster import Cluster, wait_for

from .conftest import Site

RELEASE = os.environ.get("ASTRAEUS_RELEASE", "")
pytestmark = [pytest.mark.smoke, pytest.mark.skipif(not RELEASE, reason="run_tests starts these with a release")]


def test_chain_on_this_release() -> None:
    site = Site(Cluster.attach(os.environ["ASTRAEUS_CLUSTER"]))
    version = site.cluster.run("ctl", ["sbatch", "--version"]).out
    assert RELEASE in version
    assert "--stall-after" in site.cluster.run("ctl", ["sbatch", "--help"]).out
    job = site.submit("srun python3 -u /opt/workloads/ring.py\n", "-N2", "-n4", "--stall-after=30s",
                      "--comment=mine", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    site.settled(job, ranks=4)
    victim = site.cluster.rank_pid(job, 0, 3)
    assert site.cluster.run(victim.node, "kill -0 $(cat /run/astraeus/monitor.lock)").rc == 0
    site.cluster.signal_rank(job, 0, 3, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=90)
    assert (stalled["worker"], stalled["machine"]) == (f"{job}-3", victim.node)
    wait_for(lambda: site.comment(job).startswith("mine [astraeus: "), 20, what="the comment",
             saw=lambda: site.comment(job))
    wait_for(lambda: f"rank 3 on {victim.node}" in site.admin_comment(job), 20, what="the admin comment")
    site.cluster.run("ctl", ["scancel", str(job)])
