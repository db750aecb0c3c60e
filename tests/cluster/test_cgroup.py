"""Jobs in cgroups of version 1 (proctrack/cgroup, task/cgroup)."""

from __future__ import annotations

import time

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = pytest.mark.cgroup

FREEZER = "/sys/fs/cgroup/freezer"


def cgroups(site: Site, node: str, pid: int | str) -> str:
    return site.cluster.run(node, ["cat", f"/proc/{pid}/cgroup"], check=True).out


def jobs_cgroups(site: Site, node: str, job: int) -> list[str]:
    found = site.cluster.run(node, ["find", "/sys/fs/cgroup", "-type", "d", "-name", f"job_{job}"], check=True)
    return found.out.split()


def freezers(site: Site, node: str, job: int) -> list[str]:
    """The freezer of each step of the job on that node."""
    found = site.cluster.run(node, ["find", FREEZER, "-path", f"*/job_{job}/step_[0-9]*", "-name", "freezer.state"])
    return found.out.split()


def states(site: Site, node: str, job: int) -> set[str]:
    return set(site.cluster.run(node, ["cat", *freezers(site, node, job)], check=True).out.split())


def test_monitor_from_prolog_outlives_the_job(site: Site) -> None:
    site.cluster.kill_monitor("c1")
    job = site.submit(f"srun {RING}\n", "-N1", "-n2", "-w", "c1", "--stall-after=60s", "-o", "/home/alice/c-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    worker = site.cluster.rank_pid(job, 0, 1)
    assert f"/job_{job}/step_0" in cgroups(site, "c1", worker.pid)
    monitor = site.cluster.monitor_pid("c1")
    assert monitor is not None
    assert "/job_" not in cgroups(site, "c1", monitor)

    site.cluster.cancel(job)
    site.cluster.wait_state(job, "CANCELLED", timeout=30)
    wait_for(lambda: not jobs_cgroups(site, "c1", job), 30, what="the job's cgroups are removed",
             saw=lambda: jobs_cgroups(site, "c1", job))
    assert site.cluster.monitor_pid("c1") == monitor
    after = site.submit(f"srun {RING}\n", "-N1", "-n2", "-w", "c1", "--stall-after=60s", "-o", "/home/alice/c-%j.txt")
    wait_for(lambda: site.progress(after)["workers"], 60, every=1, what="the next job is watched")
    assert site.cluster.monitor_pid("c1") == monitor
    site.cluster.cancel(after)


def test_monitor_from_a_steps_plugin_outlives_the_job(site: Site) -> None:
    """A step that asks in a job that did not: the plugin, in the job's cgroup, starts the monitor."""
    site.cluster.kill_monitor("c2")
    job = site.submit(f"srun -n2 --overlap --stall-after=60s {RING}\n", "-N1", "-n2", "-w", "c2",
                      "-o", "/home/alice/c-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    monitor = wait_for(lambda: site.cluster.monitor_pid("c2"), 20, what="a monitor on c2")
    wait_for(lambda: "/job_" not in cgroups(site, "c2", monitor), 10, what="the monitor left the job's cgroup",
             saw=lambda: cgroups(site, "c2", monitor))
    site.cluster.cancel(job)
    site.cluster.wait_state(job, "CANCELLED", timeout=30)
    wait_for(lambda: not jobs_cgroups(site, "c2", job), 30, what="the job's cgroups are removed",
             saw=lambda: jobs_cgroups(site, "c2", job))
    assert site.cluster.monitor_pid("c2") == monitor


@pytest.mark.full
@pytest.mark.parametrize("by", ["slurm", "hand"])
def test_a_frozen_job_is_no_stall(site: Site, by: str) -> None:
    """Slurm suspends by the freezer here: tasks are in D, not T. By hand Slurm knows nothing of it, as with a site's
    own tool; then all of the job's processes must be seen to stand still."""
    job = site.gang("--stall-after=30s")
    nodes = site.cluster.nodes

    def freeze(word: str) -> None:
        if by == "slurm":
            verb = "suspend" if word == "FROZEN" else "resume"
            site.cluster.run("ctl", ["scontrol", verb, str(job)], check=True)
        else:
            site.cluster.on_each(nodes, lambda node: site.cluster.run(
                node, f"for each in {' '.join(freezers(site, node, job))}; do echo {word} >$each; done", check=True))

    freeze("FROZEN")
    for node in nodes:
        wait_for(lambda node=node: states(site, node, job) == {"FROZEN"}, 10, what=f"frozen on {node}",
                 saw=lambda node=node: states(site, node, job))
    assert site.cluster.rank_pid(job, 0, 5).state == "D"
    site.quiet_for([job], 75)
    freeze("THAWED")
    thawed = time.monotonic()
    wait_for(lambda: {row["pulse"]["gone_s"] for row in site.progress(job)["workers"] if row["pulse"]} == {0.0}, 40,
             every=1, what="every rank goes on", saw=lambda: site.progress(job))
    site.quiet_for([job], max(0.0, 25 - (time.monotonic() - thawed)))
    assert not [kind for kind in site.kinds(job) if kind in ("stalled", "suspect")]
    site.cluster.signal_rank(job, 0, 5, "STOP")
    assert site.wait_finding("stalled", job, timeout=90)["worker"] == f"{job}-5"
    site.cluster.cancel(job)
