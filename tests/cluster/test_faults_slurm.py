"""Slurm's own daemons are killed while a job stalls: nothing is decided on half an answer, and what was due is done
once they are back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site

pytestmark = [pytest.mark.alone, pytest.mark.full]

AWAY_S = 45
START: dict[str, list[str]] = {
    "slurmctld": ["slurmctld", "-i"],
    "slurmdbd": ["slurmdbd"],
    "munged": ["sh", "-c", "rm -f /run/munge/*; runuser -u munge -- /usr/sbin/munged"],
}


def back(site: Site, daemon: str) -> Callable[[], bool]:
    """Whether it answers again."""
    asks = {"slurmctld": ["scontrol", "ping"], "slurmdbd": ["sacctmgr", "-n", "show", "cluster"],
            "munged": ["munge", "-n"]}
    return lambda: site.cluster.run("ctl", asks[daemon], timeout=60).ok


@pytest.mark.parametrize("daemon", list(START))
def test_it_is_killed_while_a_rank_hangs(site: Site, daemon: str) -> None:
    job = site.gang("--stall-after=30s", "--restart-stalled", ring="--until-restart")
    site.cluster.run("ctl", f"kill -9 $(pgrep -o -x {daemon})", check=True)
    try:
        site.cluster.signal_rank(job, 0, 5, "STOP")
        suspect = site.wait_finding("suspects", job, timeout=40)
        assert suspect["worker"] == f"{job}-5"
        site.wait_event(job, "stalled", timeout=AWAY_S + 20) if daemon == "slurmdbd" else None
    finally:
        site.cluster.run("ctl", START[daemon], check=True)
    wait_for(back(site, daemon), 60, every=0.5, what=f"{daemon} answers")
    wait_for(lambda: site.cluster.scontrol_show_job(job)["Restarts"] == "1", 150, what="the requeue",
             saw=lambda: site.history(job))
    site.cluster.wait_state(job, "COMPLETED", timeout=180)
    assert site.kinds(job).count("requeued") == 1
    assert site.kinds(job).count("stalled") == 1
    # What slurmdbd did not hear while it was away it is told later.
    wait_for(lambda: [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"], 60, every=1,
             what="both attempts in accounting", saw=lambda: site.rows(job))
