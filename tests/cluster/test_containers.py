"""A gang in containers: its ranks have namespaces of their own and a /run that holds the mounted folder only."""

from __future__ import annotations

from slurm_test_cluster import wait_for

from .conftest import RING, Site

# What enroot does with packaging/enroot/50-astraeus.fstab, by util-linux alone: a /run of the container's own, in it
# the jobs' folder, read-only.
CONTAINER = """\
cat >"$HOME/container-$SLURM_JOB_ID" <<'END'
mount --bind /run/astraeus/jobs /mnt && mount -t tmpfs none /run && mkdir -p /run/astraeus/jobs &&
mount --bind /mnt /run/astraeus/jobs && mount -o remount,bind,ro,nosuid,nodev,noexec /run/astraeus/jobs || exit 1
ls /run/astraeus/jobs 2>&1 | sed 's/^/container lists: /'
touch "${ASTRAEUS_STOP_FILE%/*}/x" 2>&1 | sed 's/^/container writes: /'
exec "$@"
END
"""
UNSHARE = 'unshare --user --map-root-user --mount --pid --fork sh "$HOME/container-$SLURM_JOB_ID"'


def test_a_stalled_gang_in_containers_reads_its_stop_file_and_is_restarted(site: Site) -> None:
    job = site.submit(f"{CONTAINER}srun {UNSHARE} {RING} --save-on-term 3 --short-if-restarted 20\n",
                      "-N2", "-n4", "--ntasks-per-node=2", "--stall-after=30s", "--restart-stalled",
                      "--open-mode=append", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    site.settled(job, ranks=4)
    victim = site.cluster.rank_pid(job, 0, 2)
    site.cluster.signal_rank(job, 0, 2, "STOP")
    stalled = site.wait_finding("stalled", job, timeout=60)
    assert (stalled["worker"], stalled["machine"], stalled["pid"]) == (f"{job}-2", victim.node, victim.pid)
    assert "3 of 3 other ranks wait" in stalled["stall"]["evidence"]

    wait_for(lambda: int(site.cluster.scontrol_show_job(job)["Restarts"]) == 1, 60, every=0.5, what="the requeue",
             saw=lambda: site.history(job))
    site.cluster.wait_state(job, "COMPLETED", timeout=120)
    out = site.cluster.read_file("ctl", f"/home/alice/out-{job}.txt")
    assert "rank 2 starts on" in out
    assert f"as PID {victim.pid}\n" not in out, "the container has PIDs of its own; what is said is the node's"
    for rank in range(4):
        assert f"rank {rank} stop file: cause: stalled" in out
        assert f"rank {rank} saved step" in out
    listed = [line for line in out.splitlines() if line.startswith("container lists: ")]
    assert listed
    assert all("Permission denied" in line for line in listed)
    assert "container writes: touch: cannot touch" in out
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
