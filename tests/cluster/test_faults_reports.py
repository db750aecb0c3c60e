"""What lies between a node and the controller is cut, one way or both, loses half of all packets, or is slow: the job
runs on untouched, nothing false is said of it, and a rank that hangs afterwards is named as ever."""

from __future__ import annotations

import time

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site

pytestmark = [pytest.mark.alone, pytest.mark.full]

SILENT_WITHIN_S = 115
"""Three reports of a healthy node's pace, each 30 s, and a sweep, each 15 s."""


def silent_nodes(site: Site) -> list[str]:
    status, body = site.api("/stalls")
    assert status == 200, body
    return [finding["machine"] for finding in body["silent"]]


def gang_and_victim(site: Site) -> tuple[int, str]:
    """A gang of 8 on 4 nodes, and one of them that is not its batch host: ranks 6 and 7 are there."""
    site.cluster.cancel_all()
    job = site.gang("--stall-after=60s", "--restart-stalled")
    return job, site.cluster.rank_pid(job, 0, 7).node


def over(site: Site, job: int, node: str) -> None:
    """The fault is taken back: the node is heard, and a rank there that stops is named."""
    healed = time.monotonic()
    wait_for(lambda: node not in silent_nodes(site), 60, every=0.5, what=f"{node} is heard again",
             saw=lambda: site.api("/stalls"))
    assert time.monotonic() - healed < 45
    site.settled(job, ranks=8)
    assert site.cluster.scontrol_show_job(job)["Restarts"] == "0"
    assert [kind for kind in site.kinds(job) if kind in ("stalled", "requeued", "stopping")] == []
    site.cluster.signal_rank(job, 0, 7, "STOP")
    named(site, job, node, 40)
    site.cluster.run("ctl", ["scancel", str(job)])


def named(site: Site, job: int, node: str, timeout: float) -> None:
    """Rank 7 on the node is the one that is suspected. From elsewhere it is known first that the others wait."""
    wait_for(lambda: [(f["worker"], f["machine"]) for f in site.findings("suspects", job)] == [(f"{job}-7", node)],
             timeout, every=0.5, what=f"rank 7 of job {job} is suspected", saw=lambda: site.findings("suspects", job))


@pytest.mark.parametrize("way", ["both", "one"])
def test_a_node_that_is_not_heard_is_silent_and_its_job_is_left_alone(site: Site, way: str) -> None:
    job, node = gang_and_victim(site)
    (site.cluster.cut_reports if way == "both" else site.cluster.lose_replies)(node)
    try:
        wait_for(lambda: silent_nodes(site) == [node], SILENT_WITHIN_S, every=1, what=f"{node} is silent",
                 saw=lambda: site.api("/stalls"))
        site.quiet_for([job], 30)
    finally:
        site.cluster.heal_reports(node)
    over(site, job, node)


def test_half_of_all_packets_are_lost(site: Site) -> None:
    job, node = gang_and_victim(site)
    site.cluster.lose_packets(node, 0.5)
    try:
        site.quiet_for([job], 120)
    finally:
        site.cluster.heal_reports(node)
    over(site, job, node)


def test_everything_arrives_five_seconds_late(site: Site) -> None:
    """A report and its reply are ten seconds on their way: the node is heard all the time, and a rank that stops there
    is named no more than that later."""
    job, node = gang_and_victim(site)
    site.cluster.slow_reports(node, 5)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            site.quiet_for([job], 5)
            assert silent_nodes(site) == []
        site.cluster.signal_rank(job, 0, 7, "STOP")
        named(site, job, node, 55)
        site.cluster.signal_rank(job, 0, 7, "CONT")
    finally:
        site.cluster.heal_reports(node)
    wait_for(lambda: not site.findings("suspects", job), 60, every=1, what="the suspect is over")
    over(site, job, node)
