"""A disk that is full, the controller's or a node's: nothing is done that could not be stored, nothing is lost, no job
and no node pays for it. A read-only disk can't be made here, for what has files open there keeps it writable; its
errors come by the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_test_cluster import wait_for

from .conftest import CONFIG, Site

pytestmark = [pytest.mark.alone, pytest.mark.full]

HISTORY, STATE = "/var/lib/astraeus", "/run/astraeus"


@pytest.fixture
def history_disk(site: Site) -> Iterator[None]:
    """History lies on a disk of its own."""
    site.cluster.kill_controller("TERM")
    site.cluster.own_disk("ctl", HISTORY)
    try:
        site.cluster.start_controller(CONFIG)
        yield
    finally:
        site.cluster.kill_controller("TERM")
        site.cluster.take_disk_away("ctl", HISTORY)
        site.cluster.start_controller(CONFIG)


def test_what_can_not_be_stored_is_not_done_and_is_made_up_for(site: Site, history_disk: None) -> None:
    job = site.gang("--stall-after=30s", "--restart-stalled", ring="--until-restart")
    site.cluster.fill_disk("ctl", HISTORY)
    site.cluster.signal_rank(job, 0, 5, "STOP")
    wait_for(lambda: "history can't be written" in site.cluster.controller_log(40), 90, every=1, what="it is said",
             saw=lambda: site.cluster.controller_log(20))
    site.cluster.signal_rank(job, 0, 5, "STOP")
    shown = site.cluster.scontrol_show_job(job)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
    assert site.api("/healthz")[0] in (200, 503)
    site.cluster.empty_disk("ctl", HISTORY)
    wait_for(lambda: site.cluster.scontrol_show_job(job)["Restarts"] == "1", 120, what="the requeue",
             saw=lambda: site.history(job))
    site.cluster.wait_state(job, "COMPLETED", timeout=150)
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
    assert site.kinds(job).count("stalled") == 1
    assert site.kinds(job).count("requeued") == 1


@pytest.fixture
def state_disk(site: Site) -> Iterator[str]:
    """The state directory of a node lies on a disk of its own."""
    node = site.cluster.nodes[-1]
    site.cluster.kill_monitor(node)
    site.cluster.own_disk(node, STATE)
    try:
        yield node
    finally:
        site.cluster.kill_monitor(node)
        site.cluster.take_disk_away(node, STATE)
        assert site.cluster.node_states()[node] in ("idle", "mixed", "allocated")


def test_a_node_without_room_watches_on_and_takes_jobs(site: Site, state_disk: str) -> None:
    job = site.gang("--stall-after=60s")
    site.cluster.fill_disk(state_disk, STATE)
    site.cluster.signal_rank(job, 0, 7, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=120)
    assert (stalled["worker"], stalled["machine"]) == (f"{job}-7", state_disk)
    site.cluster.run("ctl", ["scancel", str(job)])
    other = site.submit("echo done\n", "-N1", "-n1", "-w", state_disk, "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(other, "COMPLETED", timeout=90)
    assert site.cluster.node_states()[state_disk] in ("idle", "mixed", "allocated")
    site.cluster.empty_disk(state_disk, STATE)
    again = site.gang("--stall-after=60s")
    site.cluster.run("ctl", ["scancel", str(again)])
