"""GPU batch jobs without any option: on by default, judged by output and GPUs."""

from __future__ import annotations

import time

from slurm_test_cluster import wait_for

from .conftest import Site

QUIET = "python3 -u /opt/workloads/quiet_gpu.py"


def test_idle_quiet_gpu_job_is_found_and_no_other(site: Site) -> None:
    """Two 1-GPU jobs on c1 (quiet and idle, quiet and busy), two on c2 (printing and idle, unwatched)."""
    def submit(node: str, script: str, *args: str) -> int:
        return site.submit(script, "-w", node, "-n1", "--gres=gpu:1", "-o", "/home/alice/out-%j.txt", *args)

    for node in ("c1", "c2"):
        for index in (0, 1):
            site.cluster.set_gpu(node, index, util=90)
    quiet_idle = submit("c1", QUIET, "-J", "quiet-idle")
    site.cluster.wait_state(quiet_idle, "RUNNING", timeout=60)
    quiet_busy = submit("c1", QUIET, "-J", "quiet-busy")
    printing = submit("c2", f"{QUIET} --print-every 5", "-J", "printing-idle")
    unwatched = submit("c2", QUIET, "--no-stall-watch", "-J", "not-watched")
    for job in (quiet_busy, printing, unwatched):
        site.cluster.wait_state(job, "RUNNING", timeout=60)

    def gpu(job: int) -> int:
        return wait_for(lambda: site.progress(job)["workers"][0]["gpus"], 40, every=1, what=f"GPU of {job}",
                        saw=lambda: site.progress(job))[0]["index"]
    idle_index, printing_index = gpu(quiet_idle), gpu(printing)
    assert idle_index != gpu(quiet_busy)
    wait_for(lambda: (site.progress(quiet_idle)["workers"][0]["gpus"][0]["last_busy_at"] or "") > "", 40,
             what="the GPU busy")
    site.cluster.set_gpu("c1", idle_index, util=0)
    site.cluster.set_gpu("c2", printing_index, util=0)
    idle_from = time.monotonic()

    stalled = site.wait_finding("stalled", quiet_idle, timeout=120)
    took = time.monotonic() - idle_from
    assert 60 <= took <= 60 + 35, took
    assert (stalled["worker"], stalled["machine"]) == (f"{quiet_idle}-0", "c1")
    assert "no output since" in stalled["stall"]["evidence"]
    assert "GPU" in stalled["stall"]["evidence"]
    assert "idle since" in stalled["stall"]["evidence"]

    site.quiet_for([quiet_busy, printing, unwatched], 45)
    assert site.cluster.run("c2", ["ls", f"/run/astraeus/jobs/{unwatched}"]).rc != 0, "no watch is kept of it"
    for job in (quiet_busy, printing, unwatched):
        assert not [k for k in site.kinds(job) if k in ("stalled", "suspect")]
    for job in (quiet_idle, quiet_busy, printing, unwatched):
        site.cluster.run("ctl", ["scancel", str(job)])
