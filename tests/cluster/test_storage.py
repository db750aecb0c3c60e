"""A store that does not answer: said by its name, nothing is stopped for it, and all closes when it answers again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

STORE = "store1:/export"
NAME = "uses-the-store"
CAUSE = "waiting on storage: store1:/export (mounted at /mnt/store, fuse.storefs)"


@pytest.fixture
def store(site: Site) -> Iterator[Site]:
    """/mnt/store on every node. What hangs it for others of this file has the cluster to itself."""
    site.cluster.mount_store()
    yield site
    site.cluster.heal_store()
    # A job that was left stalled would make an incident of the next one's wait.
    site.cluster.run("ctl", ["scancel", f"--name={NAME}"])


def waits(site: Site, job: int) -> list[object]:
    """What the job's processes wait for, of storage."""
    found = [process["wait"] for worker in site.progress(job)["workers"] for process in worker["processes"]]
    return [wait for wait in found if wait and wait["storage"]]


def gang(site: Site, nodes: int, *args: str, ring: str = "") -> int:
    """One rank on each of so many nodes, all of which use the store each step."""
    job = site.submit(f"srun {RING} --store /mnt/store {ring}\n", f"-N{nodes}", f"-n{nodes}",
                      "-J", NAME, "-o", "/home/alice/out-%j.txt", *args)
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    site.settled(job, ranks=nodes)
    return job


def test_a_gang_on_one_hung_mount_names_the_store_and_is_not_stopped(store: Site) -> None:
    # Long steps: it hangs while all compute, so each of them asks for it and none waits for another.
    job = gang(store, 4, "--stall-after=60s", "--restart-stalled", ring="--step-seconds 1")
    store.cluster.hang_store()
    stalled = store.wait_finding("stalled", job, timeout=120)
    wait_for(lambda: store.findings("stalled", job)[0]["stall"].get("waits_on") == [STORE], 60, every=1,
             what="the store in the finding", saw=lambda: store.findings("stalled", job))
    assert stalled["rank"] is None, "all of them wait: nobody is guilty"
    said = store.findings("stalled", job)[0]["stall"]["evidence"]
    assert re.search(r"[34] of 4 ranks wait for storage: store1:/export \(mounted at /mnt/store, fuse.storefs\)", said)
    assert store.findings("stalled", job)[0]["stall"]["cause"] == CAUSE
    declined = store.wait_event(job, "restart_declined", timeout=30)
    assert "wait for storage (store1:/export): a kill may not end it" in declined["message"]
    shown = store.cluster.scontrol_show_job(job)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")

    store.cluster.heal_store()
    again = store.wait_event(job, "progress", timeout=60)
    assert again["message"] == "Progress again: no longer stalled"
    assert not store.findings("stalled", job)
    assert "restart_intended" not in store.kinds(job)
    wait_for(lambda: not waits(store, job), 30, every=1, what="no waits left", saw=lambda: waits(store, job))
    assert not [state for state in store.cluster.node_states().values() if "drain" in state or "down" in state]
    store.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.alone
@pytest.mark.full
def test_the_rank_whose_mount_hangs_is_named_and_the_others_wait_for_it(store: Site) -> None:
    job = gang(store, 4, "--stall-after=60s", "--restart-stalled", ring="--store-rank 2")
    victim = store.cluster.rank_pid(job, 0, 2)
    store.cluster.hang_store([victim.node])
    stalled = store.wait_finding("stalled", job, timeout=150)
    wait_for(lambda: store.findings("stalled", job)[0]["rank"] == 2, 60, every=1, what="rank 2 named",
             saw=lambda: store.findings("stalled", job))
    stalled = store.findings("stalled", job)[0]
    assert (stalled["machine"], stalled["pid"], stalled["stall"]["waits_on"]) == (victim.node, victim.pid, [STORE])
    assert (f"rank 2 (node {victim.node}, PID {victim.pid}) waits for storage: store1:/export "
            "(mounted at /mnt/store, fuse.storefs)") in stalled["stall"]["evidence"]
    assert "3 of 3 other ranks wait" in stalled["stall"]["evidence"]
    assert stalled["stall"]["cause"] == CAUSE
    declined = store.wait_event(job, "restart_declined", timeout=30, having="waits for storage")
    assert f"{job}-2 waits for storage (store1:/export)" in declined["message"]
    store.cluster.heal_store([victim.node])
    store.wait_event(job, "progress", timeout=60)
    assert "restart_intended" not in store.kinds(job)
    store.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.alone
@pytest.mark.full
def test_a_store_that_is_taken_away_while_it_hangs_ends_the_wait(store: Site) -> None:
    job = gang(store, 2, "--stall-after=60s")
    store.cluster.hang_store()
    store.wait_finding("stalled", job, timeout=120)
    store.cluster.unmount_store()
    store.cluster.wait_state(job, "FAILED", timeout=60)  # its ranks get an error and say so
    wait_for(lambda: not store.findings("stalled", job), 60, every=1, what="the stall closed",
             saw=lambda: store.findings("stalled", job))
