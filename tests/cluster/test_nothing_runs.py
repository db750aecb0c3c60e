"""GPUs that are held while nothing runs: found, with its cause, and what it rests on shown to whom it concerns."""

from __future__ import annotations

import time

from slurm_test_cluster import wait_for

from .conftest import Site
from .frameworks_kit import verdict

SLEEPS = """
srun python3 -c 'import time; print("loads", flush=True); time.sleep(2); raise SystemExit(3)'
echo "the step failed, left for a look"
sleep infinity
"""
CAUSE = "an allocation that runs nothing: 2 GPUs held, no step, and the batch script only waits"


def evidence(site: Site, number: int, user: str) -> tuple[int, str]:
    shown = site.cluster.run("ctl", ["astraeus", "evidence", str(number)], user=user)
    return shown.rc, shown.out


def test_a_script_that_sleeps_after_its_step_crashed(site: Site) -> None:
    job = site.submit(SLEEPS, "-w", "c[3-4]", "-N2", "-n2", "--gres=gpu:1", "-J", "left-alone",
                      "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    stalled = site.wait_finding("stalled", job, timeout=150)
    assert (stalled["worker"], stalled["rank"]) == (str(job), None)
    assert (stalled["rule"], stalled["machine"]) == ("nothing_runs", "c[3-4]")
    assert stalled["stall"]["cause"] == CAUSE
    assert "nothing runs: 2 GPUs held, no step, and the batch script only waits for " in stalled["stall"]["evidence"]
    event = site.wait_event(job, "stalled", timeout=5)
    assert (event["details"]["stall"]["cause"], event["details"]["stall"]["id"]) == (CAUSE, stalled["id"])
    wait_for(lambda: "UTC, no rank stands out, an allocation that runs nothing]" in site.comment(job), 30, every=1,
             what="the cause in the comment", saw=lambda: site.comment(job))
    shown = site.cluster.run("ctl", ["astraeus", "stalls"]).out
    assert f"; cause: {CAUSE}; evidence {stalled['id']}" in shown

    # Its end is read with the stacks, once its nodes report.
    def whole() -> str:
        code, out = evidence(site, stalled["id"], "alice")
        return out if code == 0 and "    the step failed, left for a look" in out else ""
    out = wait_for(whole, 60, every=1, what="its last lines", saw=lambda: evidence(site, stalled["id"], "root"))
    assert f"cause: {CAUSE}" in out
    assert "rank: no rank stands out" in out
    assert evidence(site, stalled["id"], "bob")[0] == 3, "it is another user's"
    assert evidence(site, stalled["id"], "root")[0] == 0
    verdict(job, "an empty allocation", "stalled", began, after=50, within=120, rule="nothing_runs", worker=str(job),
            rank=None, cause=CAUSE)
    site.cluster.run("ctl", ["scancel", str(job)])
