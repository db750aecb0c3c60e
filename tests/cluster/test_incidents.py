"""Jobs that stall together: one incident, and nothing is stopped. These need the cluster to themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from slurm_test_cluster import wait_for

from .conftest import CONFIG, RING, Site

pytestmark = pytest.mark.alone

A_SITE = """\
[watch]
mode = "act"

[slurm]
poll_s = 15

[restart]
backoff_s = 2
"""
"""What guards a site is as it is by default."""
SOURCE = "store1:/export"


@pytest.fixture(autouse=True)
def _a_site(site: Site) -> Iterator[None]:
    anew(site, A_SITE)
    try:
        yield
    finally:
        site.cluster.cancel_all()
        anew(site, CONFIG)


def anew(site: Site, config: str) -> None:
    """A controller without a past: for minutes an incident that is over would be opened again by the next scenario."""
    site.cluster.kill_controller("TERM")
    site.cluster.run("ctl", "rm -f /var/lib/astraeus/history.db*", check=True)
    site.cluster.start_controller(config)


def incidents(site: Site, every: bool = False) -> list[dict[str, Any]]:
    status, body = site.api("/incidents?all" if every else "/incidents")
    assert status == 200, body
    return list(body["incidents"])


def with_job(site: Site, job: int) -> dict[str, Any] | None:
    return next((one for one in incidents(site) if job in [member["job"] for member in one["jobs"]]), None)


def restarts(site: Site, job: int) -> int:
    return int(site.cluster.scontrol_show_job(job)["Restarts"])


def test_two_jobs_on_one_node(site: Site) -> None:
    """The one that asked to be restarted is not, for the other hangs on the same node; a job elsewhere is."""
    first = site.submit("exec sleep 900\n", "-n1", "-w", "c1", "--stall-after=30s", "-o", "/home/alice/out-%j.txt")
    second = site.submit("exec sleep 900\n", "-n1", "-w", "c1", "--stall-after=45s", "--restart-stalled",
                         "-o", "/home/alice/out-%j.txt")
    other = site.submit("[ \"${SLURM_RESTART_COUNT:-0}\" = 0 ] || exit 0\nexec sleep 900\n", "-n1", "-w", "c2",
                        "--stall-after=45s", "--restart-stalled", "-o", "/home/alice/out-%j.txt")
    site.wait_finding("stalled", second, timeout=150)
    incident = wait_for(lambda: with_job(site, second), 20, what="an incident", saw=lambda: incidents(site))
    assert (incident["cause"], incident["subject"], [job["job"] for job in incident["jobs"]]) == (
        "nodes", "c1", [first, second])
    declined = site.wait_event(second, "restart_declined", timeout=30)
    assert declined["message"] == (f"restart declined: it is part of incident {incident['incident']} "
                                   "(2 jobs stalled on c1), so nothing is stopped")
    note = f"incident {incident['incident']}: stalled on the same nodes as other jobs; nothing is stopped]"
    for job in (first, second):
        wait_for(lambda job=job: note in site.comment(job), 30, what="the incident in the comment",
                 saw=lambda job=job: site.comment(job))
    site.cluster.wait_state(other, "COMPLETED", timeout=120)
    assert [row["State"] for row in site.rows(other)] == ["REQUEUED", "COMPLETED"]
    shown = site.cluster.run("ctl", ["astraeus", "incidents"]).out
    assert f"2 jobs stalled on c1: {first}, {second}\n" in shown
    assert restarts(site, second) == 0
    site.cluster.run("ctl", ["scancel", str(first), str(second)])
    wait_for(lambda: not incidents(site), 60, what="the end of the incident", saw=lambda: incidents(site))


@pytest.mark.parametrize("count", [6, pytest.param(40, marks=pytest.mark.full)])
def test_mount_outage(site: Site, count: int) -> None:
    """One incident, no stops, no drained node, at most one write a second into Slurm, and all is well when it heals."""
    cluster = site.cluster
    cluster.mount_store()
    try:
        jobs = [site.submit(f"exec {RING} --store /mnt/store --step-seconds 0.4 --print-every 5\n", "-n1",
                            "--stall-after=60s", "--restart-stalled", "-o", "/home/alice/out-%j.txt", "--comment=mine")
                for _ in range(count)]
        for job in jobs:
            cluster.wait_state(job, "RUNNING", timeout=120)
        for job in jobs:
            site.settled(job, ranks=1, timeout=150)
        cluster.hang_store()

        def all_in_one() -> dict[str, Any] | None:
            one = with_job(site, jobs[0])
            return one if one and len(one["jobs"]) == count else None
        incident = wait_for(all_in_one, 240, every=2, what="one incident of all", saw=lambda: incidents(site))
        assert (incident["cause"], incident["subject"]) == ("storage", SOURCE)
        assert incident["said"] == f"{count} jobs wait on {SOURCE}"
        cluster.kill_controller("KILL")  # the next one goes on with the same incident
        cluster.start_controller(A_SITE)
        # The first one may also say, behind this, that it was declined before there was an incident.
        note = f", incident {incident['incident']}: waits on {SOURCE} as other jobs do; nothing is stopped"
        wait_for(lambda: all(note in site.comment(job) for job in jobs), 60 + 2 * count, every=2, what="all comments")
        for job in jobs:
            site.wait_event(job, "restart_declined", timeout=90)
        assert [one["incident"] for one in incidents(site, every=True)] == [incident["incident"]]
        unharmed(site, jobs)

        cluster.heal_store()
        wait_for(lambda: not incidents(site), 120, every=2, what="the end of the incident",
                 saw=lambda: incidents(site))
        assert [job for job in jobs if site.findings("stalled", job)] == []
        wait_for(lambda: all(site.comment(job) == "mine" for job in jobs), 60 + 2 * count, every=2,
                 what="the comments as they were", saw=lambda: [site.comment(job) for job in jobs])
        assert all(re.search(rf"\[astraeus: stalled .*, progress again, incident {incident['incident']}\]$",
                             site.admin_comment(job)) for job in jobs)
        assert [one["incident"] for one in incidents(site, every=True)] == [incident["incident"]]
        unharmed(site, jobs)
        assert fastest(write_times(site, jobs)) <= 11
    finally:
        cluster.heal_store()
        cluster.cancel_all()
        cluster.unmount_store()


def unharmed(site: Site, jobs: list[int]) -> None:
    """Every job runs on, none was stopped; no node is drained or worse."""
    for job in jobs:
        shown = site.cluster.scontrol_show_job(job)
        assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
        assert not {"stopping", "requeued", "signalled"} & set(site.kinds(job))
    states = site.cluster.run("ctl", ["sinfo", "-h", "-N", "-o", "%T"]).out.split()
    assert set(states) <= {"idle", "mixed", "allocated"}


def write_times(site: Site, jobs: list[int]) -> list[float]:
    """When slurmctld carried out an update of one of the jobs."""
    log = site.cluster.logs("ctl", "/var/log/slurm/slurmctld.log", lines=100_000)
    found = re.findall(r"^\[([\dT:.-]+)\] _slurm_rpc_update_job: complete JobId=(\d+)", log, re.MULTILINE)
    times = [datetime.fromisoformat(at).timestamp() for at, job in found if int(job) in jobs]
    assert len(times) >= 2 * len(jobs), "slurmctld's log tells of each"
    return times


def fastest(times: list[float], seconds: float = 10) -> int:
    """The most writes within so many seconds."""
    return max(sum(at <= one < at + seconds for one in times) for at in times)
