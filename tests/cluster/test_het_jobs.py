"""A heterogeneous job is requeued as a whole, whichever component a rank of it hangs in: Slurm knows no other way."""

from __future__ import annotations

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site
from .test_restart_matrix import SIGNALS, checkpoints, shown

RANKS = range(4)


def components(site: Site, leader: int) -> list[int]:
    """Job ids, the leader's first."""
    listed = site.cluster.run("ctl", ["squeue", "-h", "-t", "all", "-j", str(leader), "-O", "HetJobOffset,JobID"])
    return [int(job) for _, job in sorted(line.split() for line in listed.out.splitlines())]


@pytest.mark.parametrize(("name", "victim"), [
    pytest.param("TERM", 3, marks=pytest.mark.full), ("USR1", 3), pytest.param("USR1", 1, marks=pytest.mark.full)])
def test_both_components_save_and_come_back_once(site: Site, name: str, victim: int) -> None:
    """Ranks 0 and 1 are the first component's, 2 and 3 the second's; all are one gang of one step."""
    saving, asked = SIGNALS[name]
    ring = f"--save-on {saving} --print-env --short-if-restarted 20"
    ours = ["-N1", "-n2", *asked, "--stall-after=30s", "--restart-stalled", "--comment=mine"]
    job = site.submit(f"srun --het-group=0,1 {RING} {ring}\n", *ours, "--open-mode=append",
                      "-o", "/home/alice/het-%j.txt", ":", *ours)
    both = wait_for(lambda: found if len(found := components(site, job)) == 2 else None, 30, 0.5, "two components")
    for one in both:
        site.cluster.wait_state(one, "RUNNING", timeout=120)
        site.settled(one, ranks=2, timeout=120)
    site.cluster.signal_rank(job, 0, victim, "STOP")
    wait_for(lambda: any(site.findings("stalled", one) for one in both), 120, 0.5, "a stalled component")

    def histories() -> list[str]:
        return [kind for one in both for kind in site.kinds(one)]
    wait_for(lambda: all(shown(site, one, "Restarts") == "1" for one in both), 150, 0.5, "the requeue",
             lambda: [site.history(one) for one in both])
    for one in both:
        site.cluster.wait_state(one, "COMPLETED", timeout=180)
        assert shown(site, one, "Restarts") == "1"
    wait_for(lambda: "restarted" in histories(), 30, 0.5, "the end of the restart", histories)
    assert [histories().count(kind) for kind in ("restart_intended", "requeued", "restarted")] == [1, 1, 1]
    assert (histories().count("signalled"), "restart_declined" in histories()) == (int(name == "USR1"), False)

    out = site.cluster.read_file("ctl", f"/home/alice/het-{job}.txt")
    for rank in RANKS:
        assert out.count(f"rank {rank} got {name}") == 1, f"rank {rank} was not asked once"
        assert f"rank {rank} saved step" in out, f"rank {rank} did not save"
        assert f"rank {rank} stop file: signal: {name}" in out, f"rank {rank} found no stop file"
        assert f"rank {rank} env ASTRAEUS_RESTART_CAUSE=stalled" in out, f"rank {rank} does not know why"
    assert len(checkpoints(site, job)) == len(RANKS)

    def rows(component: int, field: str) -> list[str]:
        return [row[field] for row in site.rows(job, "JobID", field) if row["JobID"] == f"{job}+{component}"]
    for component in (0, 1):
        assert rows(component, "State") == ["REQUEUED", "COMPLETED"]
        wait_for(lambda number=component: rows(number, "Comment")[-1] == "mine", 60, 1, "its user's Comment")
