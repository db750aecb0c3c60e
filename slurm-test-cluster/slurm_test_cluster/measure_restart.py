"""From a verdict to the next attempt that runs: how long a restart takes under several slurm.conf.

Called by ``measure.py restart``. The gap is that between the event ``stalled`` and the first look (every 0.3 s) that
sees the next attempt RUNNING; all containers share one clock. The cluster is idle beside the jobs that are measured.
"""

from __future__ import annotations

import statistics
import time
from datetime import datetime
from typing import Any

from slurm_test_cluster import Cluster, wait_for
from slurm_test_cluster.slurm_conf import slurm_conf

TOML = """\
[watch]
mode = "act"

[restart]
min_interval_s = 0
max_per_hour = 1000
breaker_jobs = 1000
"""
"""Defaults, but for what guards a site against several restarts at once."""

DEFAULTS: dict[str, object] = {"KillWait": 30, "SchedulerParameters": None}
VARIANTS: dict[str, dict[str, object]] = {
    "defaults": DEFAULTS,
    "delay lifted": DEFAULTS | {"SchedulerParameters": "requeue_delay=0"},
    "quick scheduler": DEFAULTS | {"SchedulerParameters": "sched_interval=2,bf_interval=2"},
}
"""``requeue_delay`` is known to 25.11 and later; others take no notice of it."""
STEPS = ("restart_intended", "stopping", "requeued")


def _use(cluster: Cluster, settings: dict[str, object] | None) -> None:
    conf = slurm_conf(len(cluster.nodes), settings)
    for host in cluster.hosts:
        cluster.copy_in(host, "/etc/slurm/slurm.conf", conf)
    cluster.run("ctl", ["scontrol", "reconfigure"], check=True)
    wait_for(lambda: set(cluster.node_states().values()) <= {"idle"}, 60, 0.5, "nodes idle after the change")


def _events(cluster: Cluster, job: int) -> dict[str, float]:
    status, body = cluster.api(f"/runs/{job}/history")
    found: dict[str, float] = {}
    for event in body["events"] if status == 200 else []:
        found.setdefault(event["kind"], datetime.fromisoformat(event["at"]).timestamp())
    return found


def _one(cluster: Cluster, ring: str) -> dict[str, float]:
    """Seconds from the verdict to each step of the restart, for a gang of 4 on 2 nodes of which one rank stops."""
    job = int(cluster.submit("alice", f"#!/bin/bash\nsrun python3 -u /opt/workloads/ring.py {ring}\n", "-N2", "-n4",
                             "--ntasks-per-node=2", "--stall-after=30s", "--restart-stalled",
                             "-o", "/home/alice/measure-%j.txt"))
    cluster.wait_state(job, "RUNNING", timeout=120)

    def known() -> bool:
        status, body = cluster.api(f"/runs/{job}/progress")
        workers = body.get("workers", []) if status == 200 else []
        return len(workers) == 4 and all(w["pulse"] and w["pulse"]["gone_s"] is not None for w in workers)
    wait_for(known, 180, 1, f"pulse of the ranks of job {job}")
    cluster.signal_rank(job, 0, 1, "STOP")
    wait_for(lambda: "requeued" in _events(cluster, job), 240, 0.5, f"requeue of job {job}",
             saw=lambda: _events(cluster, job))
    pending: list[float] = []

    def again() -> bool:
        shown = cluster.scontrol_show_job(job)
        if shown["JobState"] == "PENDING" and not pending:
            pending.append(time.time())
        return shown["Restarts"] == "1" and shown["JobState"] == "RUNNING"
    wait_for(again, 400, 0.3, f"next attempt of job {job}")
    running = time.time()
    events = _events(cluster, job)
    cluster.cancel(job)
    verdict = events["stalled"]
    return {step: events[step] - verdict for step in STEPS} | {
        "pending": (pending[0] if pending else running) - verdict, "running": running - verdict}


def restart(cluster: Cluster, runs: int, variants: list[str], ring: str = "") -> dict[str, Any]:
    """Each variant by its name: the median of each step, and median and worst of the whole, in seconds."""
    found: dict[str, Any] = {"release": cluster.release, "ring": ring}
    cluster.kill_controller("TERM")
    try:
        for name in variants:
            _use(cluster, VARIANTS[name])
            cluster.start_controller(TOML)
            results = [_one(cluster, ring) for _ in range(runs)]
            cluster.kill_controller("TERM")
            found[name] = {step: round(statistics.median(r[step] for r in results), 1) for step in results[0]} | {
                "all": sorted(round(r["running"], 1) for r in results)}
    finally:
        _use(cluster, None)
    return found
