"""Launchers without srun, tasks that are no gang, ranks that are gone."""

from __future__ import annotations

import time

from slurm_test_cluster import wait_for

from .conftest import RING, Site

LAUNCHER = "python3 -u /opt/workloads/launcher.py -n 4"


def processes(site: Site, job: int) -> list[dict]:
    return site.progress(job)["workers"][0]["processes"]


def test_local_process_of_a_launcher_is_named(site: Site) -> None:
    job = site.submit(f"{LAUNCHER}\n", "-N1", "-n1", "-c4", "--stall-after=60s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    wait_for(lambda: [p["pulse_gone_s"] for p in processes(site, job)] == [0, 0, 0, 0], 90, every=1,
             what="four worker processes with a pulse", saw=lambda: site.progress(job))
    victim = site.cluster.rank_pid(job, "batch", 2)
    stopped = time.monotonic()
    site.cluster.signal_rank(job, "batch", 2, "STOP")
    suspect = site.wait_finding("suspects", job, timeout=30)
    named = f"rank 0 · local process 2 (RANK=2, PID {victim.pid}) on {victim.node} is stopped (state T)"
    assert named in suspect["stall"]["evidence"]
    stalled = site.wait_finding("stalled", job, timeout=60)
    assert time.monotonic() - stopped <= 60 + 20
    assert named in stalled["stall"]["evidence"]
    assert (stalled["worker"], stalled["pid"]) == (f"{job}-0", victim.pid)
    site.cluster.run("ctl", ["scancel", str(job)])


def test_three_exit_and_one_works_on(site: Site) -> None:
    """Nothing is said: a process that ended well is evidence of nothing, and the last one uses its CPU."""
    script = "".join("python3 -u /opt/workloads/independent.py --exit-after 15 &\n" for _ in range(3))
    job = site.submit(script + "nice python3 -u /opt/workloads/independent.py --burn 0.3 &\nwait\n",
                      "-N1", "-n1", "-c4",
                      "--stall-after=60s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    site.quiet_for([job], 130)
    site.cluster.run("ctl", ["scancel", str(job)])


def test_independent_tasks_are_no_gang(site: Site) -> None:
    """Eight tasks of one step, seven finished, one quiet and busy."""
    job = site.submit("srun bash -c 'if [ $SLURM_PROCID = 3 ]; then exec nice python3 -u /opt/workloads/independent.py "
                      "--burn 0.3; else exec python3 -u /opt/workloads/independent.py --exit-after 10; fi'\n",
                      "-N4", "-n8", "--stall-after=60s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    wait_for(lambda: sum(w["state"] == "Exited" for w in site.progress(job)["workers"]) == 7, 60, every=1,
             what="seven finished", saw=lambda: site.progress(job))
    site.quiet_for([job], 110)
    site.cluster.run("ctl", ["scancel", str(job)])


def test_killed_rank_is_named_with_its_signal(site: Site) -> None:
    """srun keeps the step, the survivors spin on their CPU."""
    job = site.submit(f"srun --kill-on-bad-exit=0 nice -n 19 {RING} --spin-on-loss\n", "-N2", "-n4",
                      "--ntasks-per-node=2", "--stall-after=60s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    site.settled(job, ranks=4)
    victim = site.cluster.rank_pid(job, 0, 2)
    killed = time.monotonic()
    site.cluster.signal_rank(job, 0, 2, "KILL")
    suspect = site.wait_finding("suspects", job, timeout=30)
    assert suspect["worker"] == f"{job}-2"
    stalled = site.wait_finding("stalled", job, timeout=75)
    assert time.monotonic() - killed <= 60 + 20
    assert (stalled["worker"], stalled["rank"], stalled["machine"]) == (f"{job}-2", 2, victim.node)
    assert "is gone: killed by signal 9 (KILL)" in stalled["stall"]["evidence"]
    site.cluster.run("ctl", ["scancel", str(job)])
