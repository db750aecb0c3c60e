"""Output by every way that a script may send it: each job is left alone while it prints, found when it stops, and the
age in the finding is right."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

PRINTER = "python3 -u /opt/workloads/printer.py {stop}"
WAYS = {
    "own": "srun -o {log}.%t " + PRINTER,
    "redirected": PRINTER + " > {log} 2>&1",
    "bar": "srun -u " + PRINTER + " --bar",
    "tee": PRINTER + " 2>&1 | tee {log} > /dev/null",
    "srun-tee": "srun " + PRINTER + " 2>&1 | tee {log} > /dev/null",
    "logging": PRINTER + " --log {log} > /dev/null 2>&1",
    "null": PRINTER + " > /dev/null 2>&1",
    "script": "script -qfc '" + PRINTER + "' {log} > /dev/null < /dev/null",
    "fifo": "mkfifo {log}.f; cat {log}.f > {log} & " + PRINTER + " > {log}.f 2>&1",
    "lost-fifo": "mkfifo {log}.f; setsid sh -c 'cat {log}.f > /dev/null' & sleep 1; " + PRINTER + " > {log}.f 2>&1",
    "none": "srun --output=none " + PRINTER,
    "srun-null": "srun bash -c '" + PRINTER + " > /dev/null 2>&1; true'",
    "pty": "srun -u " + PRINTER,
    "label": "srun --label " + PRINTER,
    "rotated": "(sleep 10; mv {log} {log}.1; sleep 30; mv {log}.1 {log}.2) & " + PRINTER + " > {log}",
    "truncated": "(while sleep 7; do : > {log}; done) & " + PRINTER + " > {log}",
    "deleted": PRINTER + " > {log} & sleep 5; rm {log}; wait",
}
UNSEEN = {"null", "lost-fifo", "none", "srun-null"}
"""Known by nothing being written at all."""
SHORT = ("own", "srun-tee", "logging", "null")


def judged(site: Site, ways: tuple[str, ...]) -> None:
    """Each prints for longer than its patience, then stops."""
    jobs, stops = {}, {}
    run = f"{time.time_ns():x}"
    for way in ways:
        log = f"/home/alice/{way}-{run}.log"
        stops[way] = f"/home/alice/{way}-{run}.stop"
        jobs[way] = site.submit(WAYS[way].format(log=log, stop=stops[way]) + "\n", "-N1", "-n1", "--stall-after=30s",
                                "-J", way, "-o", "/home/alice/out-%j.txt")

    def text(path: str) -> str:
        return site.cluster.run("ctl", ["sh", "-c", f"cat {path} 2>/dev/null || true"]).out.strip()

    for way in ways:
        began = stops[way].replace(".stop", ".began")
        wait_for(lambda began=began: text(f"{began} && echo there"), 120, every=1, what=f"{way} to begin")
    site.quiet_for(list(jobs.values()), 50)
    site.cluster.run("ctl", ["touch", *stops.values()])
    for way in ways:
        last = stops[way].replace(".stop", ".last")
        at = float(wait_for(lambda last=last: text(last), 30, what=f"the last words of {way}"))
        found = site.wait_finding("stalled", jobs[way], timeout=80)["stall"]
        evidence = found["evidence"]
        since = datetime.fromisoformat(found["since"]).timestamp()
        print(f"{way}: since {since - at:+.1f} s of its last word; {evidence}")
        # Looks come every 15 s, and growth is told by the look that sees it.
        assert -2 <= since - at <= 17, (way, evidence)
        assert evidence.startswith("nothing written since " if way in UNSEEN else "no output since "), (way, evidence)
    site.cluster.run("ctl", ["scancel", *map(str, jobs.values())])


def test_ways_of_output(site: Site) -> None:
    judged(site, SHORT)


@pytest.mark.full
@pytest.mark.parametrize("part", [0, 1, 2])
def test_every_way_of_output(site: Site, part: int) -> None:
    judged(site, tuple(way for way in WAYS if way not in SHORT)[part::3])


@pytest.mark.full
def test_srun_on_a_login_node(site: Site) -> None:
    """No monitor sees its file; while the task writes it is left alone, and found once it writes nothing."""
    name = f"login-{time.time_ns():x}"
    stop = f"/home/alice/{name}.stop"
    command = f"salloc -J {name} -n1 --stall-after=30s srun {PRINTER.format(stop=stop)} > /home/alice/{name}.txt"
    site.cluster.background("ctl", ["bash", "-c", command], f"/home/alice/{name}.log", user="alice")
    job = int(wait_for(lambda: site.cluster.run("ctl", ["squeue", "-h", "-n", name, "-o", "%A"]).out.strip(), 60,
                       what="the allocation"))
    wait_for(lambda: site.progress(job)["workers"], 60, every=1, what="its worker")
    site.quiet_for([job], 60)
    site.cluster.run("ctl", ["touch", stop])
    touched = time.time()
    found = site.wait_finding("stalled", job, timeout=80)["stall"]
    assert found["evidence"].startswith("nothing written since "), found
    assert "(its output can't be seen)" in found["evidence"]
    assert abs(datetime.fromisoformat(found["since"]).timestamp() - touched) <= 17
    site.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.full
def test_a_gang_that_prints_to_nobody_is_found(site: Site) -> None:
    """Its pulse tells; a rank that keeps writing something else does not hide it."""
    beat = "(while sleep 3; do echo x; done > /home/alice/beat-$SLURM_JOB_ID-$SLURM_PROCID.txt) & "
    job = site.submit(f"srun bash -c '{beat} {RING} > /dev/null 2>&1; true'\n", "-N2", "-n4", "--ntasks-per-node=2",
                      "--stall-after=60s", "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    site.settled(job, ranks=4)
    victim = site.cluster.rank_pid(job, 0, 1)
    stopped = time.time()
    site.cluster.signal_rank(job, 0, 1, "STOP")
    found = site.wait_finding("stalled", job, timeout=110)
    assert (found["rank"], found["pid"]) == (1, victim.pid)
    assert "its output goes to /dev/null" in found["stall"]["evidence"]
    assert abs(datetime.fromisoformat(found["stall"]["since"]).timestamp() - stopped) <= 12
    site.cluster.run("ctl", ["scancel", str(job)])
