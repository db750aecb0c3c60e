"""The controller or a monitor is killed or away during a stall. These need the cluster to themselves."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from slurm_test_cluster import wait_for

from .conftest import CONFIG, RING, Site

pytestmark = pytest.mark.alone


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_controller_killed_right_after_the_intent(site: Site) -> None:
    job = site.gang("--stall-after=30s", "--restart-stalled", "--open-mode=append",
                    ring="--save-on-term 4 --print-env --short-if-restarted 20")
    site.cluster.signal_rank(job, 0, 5, "STOP")
    wait_for(lambda: "restart_intended" in site.kinds(job), 90, every=0.1, what="the intent",
             saw=lambda: site.history(job))
    site.cluster.kill_controller("KILL")
    site.cluster.start_controller(CONFIG)
    wait_for(lambda: site.cluster.scontrol_show_job(job)["Restarts"] == "1", 90, what="the requeue",
             saw=lambda: site.history(job))
    site.cluster.wait_state(job, "COMPLETED", timeout=150)
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
    assert site.kinds(job).count("requeued") == 1
    assert "ASTRAEUS_RESTART_CAUSE=stalled" in site.cluster.read_file("ctl", f"/home/alice/out-{job}.txt")


def test_controller_away_during_a_stall(site: Site) -> None:
    job = site.gang("--stall-after=60s")
    site.cluster.signal_rank(job, 0, 5, "STOP")
    stopped = time.time()
    site.cluster.kill_controller("KILL")
    away_until = time.monotonic() + 120
    wait_for(lambda: time.monotonic() > away_until, 130, every=1, what="two minutes")
    site.cluster.start_controller(CONFIG)
    stalled = site.wait_finding("stalled", job, timeout=60)
    assert abs(unix(stalled["stall"]["since"]) - stopped) <= 15
    assert stalled["worker"] == f"{job}-5"
    site.cluster.run("ctl", ["scancel", str(job)])


def test_monitor_killed_during_a_stall(site: Site) -> None:
    job = site.gang("--stall-after=60s")
    victim = site.cluster.rank_pid(job, 0, 5)
    batch_host = site.cluster.scontrol_show_job(job)["BatchHost"]
    site.cluster.signal_rank(job, 0, 5, "STOP")
    stopped = time.time()
    site.wait_finding("suspects", job, timeout=30)
    for node in {victim.node, batch_host}:
        site.cluster.run(node, "kill -9 $(cat /run/astraeus/monitor.lock)")
        site.cluster.run(node, ["/usr/lib/astraeus/start-monitor"])
    stalled = site.wait_finding("stalled", job, timeout=120)
    assert abs(unix(stalled["stall"]["since"]) - stopped) <= 15
    assert (stalled["worker"], stalled["machine"]) == (f"{job}-5", victim.node)
    site.cluster.run("ctl", ["scancel", str(job)])


def test_observe_mode_writes_nothing(site: Site) -> None:
    site.cluster.kill_controller("TERM")
    site.cluster.start_controller(CONFIG.replace('mode = "act"', 'mode = "observe"'))
    try:
        job = site.submit(f"srun {RING}\n", "-N2", "-n2", "--stall-after=30s", "--restart-stalled", "--comment=mine",
                          "-o", "/home/alice/out-%j.txt")
        site.cluster.wait_state(job, "RUNNING", timeout=60)
        site.settled(job, ranks=2)
        site.cluster.signal_rank(job, 0, 1, "STOP")
        site.wait_finding("stalled", job, timeout=90)
        declined = site.wait_event(job, "restart_declined", timeout=20)
        assert "observe" in declined["message"]
        shown = site.cluster.scontrol_show_job(job)
        assert site.comment(job) == "mine"
        assert "astraeus" not in shown.get("AdminComment", "")
        assert shown["JobState"] == "RUNNING"
        site.cluster.run("ctl", ["scancel", str(job)])
    finally:
        site.cluster.kill_controller("TERM")
        site.cluster.start_controller(CONFIG)
