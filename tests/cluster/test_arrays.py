"""An element of an array is a job of its own, also the one that carries the array's id."""

from __future__ import annotations

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = [pytest.mark.smoke, pytest.mark.restart]


def test_only_the_stalled_element_is_restarted(site: Site) -> None:
    """The last element has the array's own job id: a command that names the bare id means the whole array."""
    script = f"srun {RING} --save-on-term 1 --print-env --short-if-restarted 20\n"
    array = site.submit(script, "--array=7-8", "-N1", "-n3", "--stall-after=30s", "--restart-stalled",
                        "--open-mode=append", "-o", "/home/alice/array-%A_%a.txt")

    def elements() -> dict[str, int] | None:
        rows = [line.split() for line in
                site.cluster.run("ctl", ["squeue", "-h", "-t", "R", "-j", str(array), "-o", "%K %A"]).out.splitlines()]
        return {task: int(job) for task, job in rows} if len(rows) == 2 else None
    jobs = wait_for(elements, 60, every=1, what="both elements run")
    own = next(job for job in jobs.values() if job == array)
    task = next(name for name, job in jobs.items() if job == own)
    other = next(job for job in jobs.values() if job != own)
    for job in (own, other):
        site.settled(job, ranks=3)
    site.cluster.signal_rank(own, 0, 1, "STOP")

    stalled = site.wait_finding("stalled", own, timeout=90)
    assert (stalled["run"], stalled["worker"]) == (f"{array}_{task}", f"{array}_{task}-1")
    site.wait_event(own, "restarted", timeout=120 + site.begin_delay_s)
    assert site.cluster.scontrol_show_job(other)["Restarts"] == "0"
    assert site.cluster.job_state(other) == "RUNNING"
    output = f"/home/alice/array-{array}_{task}.txt"
    wait_for(lambda: "ASTRAEUS_RESTART_CAUSE=stalled" in site.cluster.read_file("ctl", output), 30,
             what="the attempt's variables in its output", saw=lambda: site.cluster.read_file("ctl", output)[-500:])
    site.cluster.cancel(array)
