"""Suspension, steps that ask for themselves, two steps side by side, runs that can't be restarted."""

from __future__ import annotations

import time

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site


@pytest.mark.parametrize(("name", "pauses"), [("once", [120]), ("slices", [30, 30, 30, 30])])
def test_suspension_is_no_stall(site: Site, name: str, pauses: list[int]) -> None:
    job = site.gang("--stall-after=60s", "-J", f"suspend-{name}")
    for pause in pauses:
        for verb, seconds in (("suspend", pause), ("resume", 30)):
            done = site.cluster.run("ctl", ["scontrol", verb, str(job)])
            assert done.rc == 0, done.err
            site.quiet_for([job], seconds)
    site.quiet_for([job], 30)
    assert not [k for k in site.kinds(job) if k in ("stalled", "suspect")]
    site.cluster.run("ctl", ["scancel", str(job)])


def test_step_that_asks_inside_a_job_that_did_not(site: Site) -> None:
    job = site.submit(f"srun -n2 -N2 --overlap sleep 600 &\nsleep 2\n"
                      f"srun -n2 -N2 --overlap --stall-after=60s {RING}\n", "-N2", "-n4", "-o",
                      "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    progress = wait_for(lambda: site.progress(job), 60, every=1, what="the step's watch")
    assert {w["step"] for w in progress["workers"]} == {"1"}
    site.settled(f"{job}.1", ranks=2)
    site.cluster.signal_rank(job, 1, 1, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=90)
    assert stalled["step"] == "1"
    assert stalled["rank"] == 1
    assert len(site.findings("stalled", job)) == 1
    site.cluster.run("ctl", ["scancel", str(job)])


def test_job_without_options_and_gpus_is_not_watched(site: Site) -> None:
    job = site.submit("sleep 600\n", "-n1", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    node = site.cluster.scontrol_show_job(job)["BatchHost"]
    assert site.cluster.run(node, ["ls", f"/run/astraeus/jobs/{job}"]).rc != 0
    site.cluster.run("ctl", ["scancel", str(job)])


def test_two_steps_side_by_side(site: Site) -> None:
    """One stalls, the other goes on: only its ranks are found, and the restart is declined with its reason."""
    job = site.submit(f"srun -n4 -N2 --overlap -o /home/alice/a-%j.txt {RING} &\nsleep 1\n"
                      f"srun -n4 -N2 --overlap -o /home/alice/b-%j.txt {RING} &\nwait\n", "-N2", "-n8",
                      "--stall-after=45s", "--restart-stalled", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    site.settled(job, ranks=8)
    site.cluster.signal_rank(job, 0, 1, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=90)
    assert (stalled["step"], stalled["worker"]) == ("0", f"{job}.0-1")
    assert len(site.findings("stalled", job)) == 1
    declined = site.wait_event(job, "restart_declined", timeout=20)
    assert "step 1" in declined["message"]
    assert "progress" in declined["message"]
    assert site.cluster.scontrol_show_job(job)["Restarts"] == "0"
    site.cluster.run("ctl", ["scancel", str(job)])


def test_restart_of_a_job_that_must_not_be_requeued_is_declined(site: Site) -> None:
    job = site.submit("sleep 600\n", "-n1", "--no-requeue", "--stall-after=30s", "--restart-stalled", "-o",
                      "/home/alice/out-%j.txt")
    declined = site.wait_event(job, "restart_declined", timeout=120)
    assert "--no-requeue" in declined["message"] or "not be requeued" in declined["message"]
    wait_for(lambda: "[astraeus: " in site.comment(job) and "not restarted" in site.comment(job), 20,
             what="declined in the comment", saw=lambda: site.comment(job))
    assert site.cluster.job_state(job) == "RUNNING"
    site.cluster.run("ctl", ["scancel", str(job)])


def test_restart_of_an_interactive_job_is_declined(site: Site) -> None:
    before = time.time()
    name = f"interactive-{int(before)}"
    command = (f"salloc -J {name} -n1 --stall-after=30s --restart-stalled "
               f"srun -o /home/alice/{name}-%t.txt sleep 600")
    site.cluster.background("ctl", ["bash", "-c", command], f"/home/alice/{name}.log", user="alice")
    job = int(wait_for(lambda: site.cluster.run("ctl", ["squeue", "-h", "-n", name, "-o", "%A"]).out.strip(), 30,
                       what="the allocation"))
    declined = site.wait_event(job, "restart_declined", timeout=120)
    assert "interactive" in declined["message"]
    wait_for(lambda: "not restarted" in site.comment(job), 20, what="declined in the comment",
             saw=lambda: site.comment(job))
    site.cluster.run("ctl", ["scancel", str(job)])
