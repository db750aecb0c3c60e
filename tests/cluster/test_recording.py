"""What the controller records on a real cluster is judged the same when it is replayed, on its own clock."""

from __future__ import annotations

import json

import pytest
from slurm_test_cluster import wait_for
from slurm_test_cluster.astraeus import CONTROLLER_LOG

from .conftest import CONFIG, RING, Site

pytestmark = pytest.mark.alone
FILE = "/root/recording.jsonl"


def test_a_recording_replays_to_the_same_finding(site: Site) -> None:
    site.cluster.kill_controller("TERM")
    site.cluster.write_config(CONFIG, "ctl")
    site.cluster.background("ctl", ["/usr/sbin/astraeus-controller", "record", FILE], CONTROLLER_LOG)
    try:
        wait_for(lambda: site.api("/healthz")[0] == 200, 20, what="the recording controller")
        job = site.submit(f"srun {RING}\n", "-N2", "-n4", "--stall-after=30s", "-o", "/home/alice/out-%j.txt")
        site.cluster.wait_state(job, "RUNNING", timeout=60)
        site.settled(job, ranks=4)
        site.cluster.signal_rank(job, 0, 3, "STOP")
        live = site.wait_finding("stalled", job, timeout=90)
        site.cluster.run("ctl", ["scancel", str(job)])
    finally:
        site.cluster.kill_controller("TERM")
        site.cluster.start_controller(CONFIG)
    replayed = site.cluster.run("ctl", ["astraeus-controller", "replay", FILE], timeout=60, check=True)
    lines = [json.loads(line) for line in replayed.out.splitlines()]
    keys = [line["finding"]["key"] for line in lines if line.get("kind") == "open" and "finding" in line
            and line["finding"]["kind"] == "stalled"]
    assert keys == [live["key"]], replayed.out[:2000]
