"""A stalled run that asked for it is restarted: every rank can save, nothing else is disturbed."""

from __future__ import annotations

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = pytest.mark.restart

SAVING = f"{RING} --save-on-term 4 --print-env --short-if-restarted 20"
SCRIPTS = {
    "no_trap": (f"srun {SAVING}\n", ["-N4", "-n8", "--ntasks-per-node=2"], 8),
    "trap": (f"trap 'echo batch script got TERM' TERM\nsrun {SAVING} &\nwait $!; wait $!\n",
             ["-N4", "-n8", "--ntasks-per-node=2"], 8),
    "exec_python": ("exec python3 -u /opt/workloads/launcher.py -n 4 -- --save-on-term 4 --print-env "
                    "--short-if-restarted 20\n", ["-N1", "-n1", "-c4"], 4),
}


@pytest.mark.parametrize("shape", SCRIPTS)
def test_stalled_run_is_restarted_once_and_completes(site: Site, shape: str) -> None:
    script, size, ranks = SCRIPTS[shape]
    job = site.submit(script, *size, "--stall-after=30s", "--restart-stalled", "--open-mode=append",
                      "-o", "/home/alice/out-%j.txt", f"--comment=mine-{shape}", "-J", f"restart-{shape}")
    after = {kind: site.submit("hostname\n", f"--dependency={kind}:{job}", "-o", "/dev/null")
             for kind in ("afterok", "afternotok")}
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    if shape == "exec_python":
        wait_for(lambda: len(site.progress(job)["workers"][0]["processes"]) == 4
                 and all(p["pulse_gone_s"] == 0 for p in site.progress(job)["workers"][0]["processes"]),
                 90, every=1, what="four local processes with a pulse", saw=lambda: site.progress(job))
        site.cluster.signal_rank(job, "batch", 2, "STOP")
    else:
        site.settled(job, ranks)
        site.cluster.signal_rank(job, 0, 5, "STOP")
    node = site.cluster.scontrol_show_job(job)["BatchHost"]

    stalled = site.wait_finding("stalled", job, timeout=60)
    assert stalled["stall"]["action"] == "restart"
    stop_file = f"/run/astraeus/jobs/{job}/stop"
    stop = wait_for(lambda: site.cluster.run(node, ["cat", stop_file]).out, 30, every=0.2, what="stop file")
    assert "cause: stalled\n" in stop
    assert f"finding: {stalled['key']}" in stop
    listing = site.cluster.run(node, ["stat", "-c", "%a %U", stop_file]).out.split()
    assert listing in (["400", "alice"], []), listing  # [] when Epilog was quicker

    wait_for(lambda: int(site.cluster.scontrol_show_job(job)["Restarts"]) == 1, 60, every=0.5, what="the requeue",
             saw=lambda: site.history(job))
    for kind, dependent in after.items():
        shown = site.cluster.scontrol_show_job(dependent)
        assert (shown["JobState"], shown["Reason"]) == ("PENDING", "Dependency"), kind
    site.cluster.wait_state(job, "COMPLETED", timeout=120 + site.begin_delay_s)

    out = site.cluster.read_file("ctl", f"/home/alice/out-{job}.txt")
    saved = site.cluster.run("ctl", ["sh", "-c", f"ls /home/alice/checkpoint.{job}.rank-*"]).out.split()
    assert len(saved) == ranks
    if site.cluster.variant.name != "cgroup":  # there srun is killed with its script, and output is lost
        for rank in range(ranks):
            assert f"rank {rank} got TERM" in out, f"rank {rank} was not asked"
    assert "ASTRAEUS_RESTART_CAUSE=stalled" in out
    assert "ASTRAEUS_RESTART_COUNT=1" in out
    states = [row["State"] for row in site.rows(job)]
    assert states == ["REQUEUED", "COMPLETED"]
    assert site.cluster.scontrol_show_job(job)["Restarts"] == "1"
    site.wait_event(job, "restarted", timeout=30)
    assert site.kinds(job).count("requeued") == 1
    rows = wait_for(lambda: [r for r in site.rows(job, "AdminComment", "Comment") if r["AdminComment"]], 30,
                    what="admin comments", saw=lambda: site.rows(job, "AdminComment"))
    assert all("[astraeus: " in row["AdminComment"] for row in rows)
    assert "restarted 1/10" in rows[-1]["AdminComment"]
    wait_for(lambda: site.rows(job, "Comment")[-1]["Comment"] == f"mine-{shape}", 30, what="the user's own comment",
             saw=lambda: site.rows(job, "Comment"))
