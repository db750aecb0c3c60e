"""What a node is left with: nothing, after two hundred jobs; and a site's Epilog that kills a user's processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = [pytest.mark.alone, pytest.mark.full]

JOBS = 200
PKILL = "/etc/slurm/epilog.d/50-pkill.sh"


def left(site: Site, node: str) -> dict[str, list[str]]:
    """Of jobs that are over: processes that are their users' or below the monitor, folders of ours, cgroups."""
    rows = site.cluster.run(node, ["ps", "-eo", "user=,pid=,args="], check=True).out.splitlines()
    jobs = site.cluster.run(node, ["ls", "-A", "/run/astraeus/jobs"], check=True).out.split()
    groups = site.cluster.run(node, ["find", "/sys/fs/cgroup", "-type", "d", "-name", "job_*"]).out.split()
    spool = site.cluster.run(node, ["find", "/var/spool/slurmd", "-name", "job0*"]).out.split()
    return {"processes": [row for row in rows if row.split()[0] in ("alice", "bob")],
            "folders": jobs, "cgroups": groups, "spool": spool}


def nothing(site: Site) -> bool:
    return not any(found for node in site.cluster.nodes for found in left(site, node).values())


def what_is_left(site: Site) -> dict[str, dict[str, list[str]]]:
    return {node: left(site, node) for node in site.cluster.nodes}


def test_two_hundred_jobs_leave_nothing_behind(site: Site) -> None:
    site.cluster.cancel_all()
    wait_for(lambda: nothing(site), 60, every=1, what="the nodes are empty", saw=lambda: what_is_left(site))
    for node in site.cluster.nodes:
        site.cluster.start_monitor(node)
        wait_for(lambda node=node: site.cluster.monitor_pid(node), 15, what=f"a monitor on {node}")
    before = {node: descriptors(site, node) for node in site.cluster.nodes}
    job = site.submit("srun --stall-after=60s sleep 1\n", "-n1", f"--array=1-{JOBS}", "--stall-after=60s",
                      "-o", "/dev/null")

    def done() -> bool:
        rows = site.cluster.run("ctl", ["sacct", "-nX", "-j", str(job), "-o", "state"], check=True).out.split()
        assert not {"FAILED", "NODE_FAIL", "CANCELLED"} & set(rows), rows
        return rows.count("COMPLETED") == JOBS
    wait_for(done, 400, every=2, what=f"{JOBS} jobs")
    wait_for(lambda: nothing(site), 60, every=1, what="nothing is left", saw=lambda: what_is_left(site))
    assert {state for state in site.cluster.node_states().values()} == {"idle"}
    for node in site.cluster.nodes:
        wait_for(lambda node=node: descriptors(site, node) <= before[node] + 8, 60, every=1,
                 what=f"the monitor of {node} holds no descriptors of jobs that are over",
                 saw=lambda node=node: (before[node], descriptors(site, node)))


def descriptors(site: Site, node: str) -> int:
    """How many the monitor has open, its children's not counted."""
    pid = site.cluster.monitor_pid(node)
    return len(site.cluster.run(node, ["ls", f"/proc/{pid}/fd"], check=True).out.split())


@pytest.fixture
def pkill_in_epilog(site: Site) -> Iterator[None]:
    """As many sites do: whatever of the user is still there ends with his last job."""
    for node in site.cluster.nodes:
        site.cluster.copy_in(node, PKILL, '#!/bin/sh\npkill -9 -u "$SLURM_JOB_USER"\nexit 0\n', mode=0o755)
    try:
        yield
    finally:
        site.cluster.cancel_all()  # an Epilog that is taken away while it runs drains its node
        for node in site.cluster.nodes:
            site.cluster.run(node, ["rm", "-f", PKILL])


def test_an_epilog_that_kills_all_of_a_users_processes(site: Site, pkill_in_epilog: None) -> None:
    """The monitor and its children are none of them: the ones that read a user's files keep uid 0."""
    first = site.gang("--stall-after=60s")
    node = site.cluster.rank_pid(first, 0, 7).node
    monitor = site.cluster.monitor_pid(node)
    site.cluster.cancel(first)
    wait_for(lambda: nothing(site), 60, every=1, what="the nodes are empty", saw=lambda: what_is_left(site))
    assert site.cluster.monitor_pid(node) == monitor
    again = site.submit(f"srun {RING}\n", "-N4", "-n8", "--ntasks-per-node=2", "--stall-after=60s",
                        "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(again, "RUNNING", timeout=60)
    site.settled(again, ranks=8)
    site.cluster.signal_rank(again, 0, 7, "STOP")
    suspect = site.wait_finding("suspects", again, timeout=40)
    assert suspect["worker"] == f"{again}-7"
    site.cluster.cancel_all()
    assert set(site.cluster.node_states().values()) <= {"idle", "mixed", "allocated", "completing"}
