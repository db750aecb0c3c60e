"""--avoid-guilty: the next attempt runs elsewhere, what the user excludes comes back, and what can't be is said."""

from __future__ import annotations

import re

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

PAIR = ["-N2", "-n4", "--ntasks-per-node=2"]


def begin(site: Site, *args: str) -> int:
    """A gang that asks to avoid the guilty rank's node."""
    return site.submit(f"srun {RING}\n", "--stall-after=30s", "--restart-stalled", "--avoid-guilty",
                       "-o", "/home/alice/out-%j.txt", *args)


def stall(site: Site, job: int) -> str:
    """Stop the last of its four ranks once all are at work; that rank's node."""
    site.cluster.wait_state(job, "RUNNING", timeout=120)
    last = max(site.settled(job, 4, timeout=120)["workers"], key=lambda worker: worker["rank"])
    site.cluster.run(last["node"], ["kill", "-STOP", str(last["pid"])], check=True)
    return str(last["node"])


def shown(site: Site, job: int | str, key: str) -> str:
    return site.cluster.scontrol_show_job(job)[key]


def nodes_of(site: Site, nodelist: str) -> set[str]:
    return set(site.cluster.run("ctl", ["scontrol", "show", "hostnames", nodelist]).out.split())


def runs_again(site: Site, job: int, count: int = 1) -> str:
    """Its history's line on what is avoided, once the next attempt runs."""
    site.wait_event(job, "restarted", timeout=180 + site.begin_delay_s)
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    assert shown(site, job, "Restarts") == str(count)
    return [event["message"] for event in site.history(job) if event["kind"] == "scheduled"][-1]


@pytest.mark.releases
def test_runs_elsewhere_and_its_user_s_own_list_comes_back(site: Site) -> None:
    """Slurm changes the list of pending jobs only, so that is when it is taken back: here requeued by its user."""
    job = begin(site, *PAIR, "--exclude=c4", "--comment=mine")
    node = stall(site, job)
    said = runs_again(site, job)
    assert re.fullmatch(r"Starts not before \d\d:\d\d:\d\d UTC; avoids "
                        + node + " beside c4, which its user excludes", said)
    assert not {node, "c4"} & nodes_of(site, shown(site, job, "NodeList"))
    assert shown(site, job, "ExcNodeList") == f"c4,{node}"
    kinds = site.kinds(job)
    order = ["stalled", "restart_intended", "stopping", "requeued", "scheduled", "restarted"]
    assert [kind for kind in kinds if kind in order] == order
    wait_for(lambda: f"restarted 1/10, avoiding {node}]" in site.admin_comment(job), 30, what="the admin comment",
             saw=lambda: site.admin_comment(job))
    wait_for(lambda: site.comment(job) == "mine", 30, what="its own comment again", saw=lambda: site.comment(job))
    told = site.cluster.run("ctl", ["astraeus", "history", str(job)]).out
    assert all(re.search(rf"(?m)^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  {job}\S*  {re.escape(words)}", told) for words in (
        "Restart 1/10 intended: ", "Stopping to restart (1/10): ", "Requeued 1/10: ", said, "Restarted 1/10: ")), told

    site.cluster.run("ctl", ["scontrol", "requeue", str(job)], user="alice", check=True)
    wait_for(lambda: shown(site, job, "ExcNodeList") == "c4", 90, every=0.5, what="its user's own list",
             saw=lambda: (site.history(job), site.cluster.scontrol_show_job(job)))
    assert site.wait_event(job, "avoid_over", timeout=10)["message"] == f"Avoids {node} no longer"
    assert shown(site, job, "JobState") == "PENDING"
    site.cluster.run("ctl", ["scancel", str(job)])


def test_what_can_not_be_avoided_is_said(site: Site) -> None:
    named = begin(site, *PAIR, "--nodelist=c[1-2]")
    every = begin(site, "-N4", "-n4", "--ntasks-per-node=1")
    guilty = {job: stall(site, job) for job in (named, every)}
    for job, why in ((named, "the job names its nodes (--nodelist)"),
                     (every, "without it partition main has 3 usable nodes of its kind for this job, which needs 4")):
        node = guilty[job]
        assert runs_again(site, job).endswith(f" UTC; {node} is not avoided: {why}")
        assert shown(site, job, "ExcNodeList") == "(null)"
        wait_for(lambda: f"restarted 1/10, {node} not avoided: {why}]" in site.admin_comment(job), 30,  # noqa: B023
                 what="the admin comment", saw=lambda: site.admin_comment(job))  # noqa: B023
        site.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.full
@pytest.mark.releases
def test_an_array_s_element_alone(site: Site) -> None:
    array = begin(site, *PAIR, "--array=7,8")
    wait_for(lambda: f"{array}_8" in site.cluster.run("ctl", ["squeue", "-h", "-r", "-t", "R", "-o", "%i"]).out, 120,
             every=1, what="both elements")
    job = int(shown(site, f"{array}_7", "JobId"))
    node = stall(site, job)
    assert f"avoids {node}" in runs_again(site, job)
    assert (shown(site, f"{array}_7", "ExcNodeList"), shown(site, f"{array}_8", "ExcNodeList")) == (node, "(null)")
    site.cluster.run("ctl", ["scancel", str(array)])


@pytest.mark.full
@pytest.mark.releases
def test_a_heterogeneous_job_by_component(site: Site) -> None:
    """The component whose rank is guilty avoids the node; the other keeps its own list. Only that component has
    the options; its srun runs in the other one, where its output is not seen: so its ranks hold their own files."""
    leader = site.submit(
        "srun --het-group=0 sleep 900 &\n"
        f"srun --het-group=1 sh -c 'exec {RING} >/home/alice/het-$SLURM_JOB_ID.$SLURM_PROCID.txt'\n",
        "-o", "/home/alice/out-%j.txt", "-N1", "-n1", ":", *PAIR, "--stall-after=30s", "--restart-stalled",
        "--avoid-guilty")
    job = leader + 1
    node = stall(site, job)
    assert f"avoids {node}" in runs_again(site, job)
    lists = [shown(site, f"{leader}+{component}", "ExcNodeList") for component in (0, 1)]
    assert lists == ["(null)", node]
    assert node not in nodes_of(site, shown(site, f"{leader}+1", "NodeList"))
    site.cluster.run("ctl", ["scancel", str(leader)])
