"""A restart whatever the batch script is like and whatever signal the run asked for: every rank saves, the job comes
back once, and nothing that waits for its end is let go.

KillWait of the test cluster is 8 s: TERM has to save within it, USR1 with a grace of 40 s is given longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = pytest.mark.restart

LAUNCHER = "python3 -u /opt/workloads/launcher.py -n 4 --"
GANG = ["-N4", "-n8", "--ntasks-per-node=2"]
LONE = ["-N1", "-n1", "-c4"]
SIGNALS = {"TERM": ("TERM 4", []), "USR1": ("USR1 15", ["--stop-signal=USR1@40s"])}
"""What the ranks save on and for how long, and what the job asks for."""
SHAPES: dict[str, tuple[str, list[str], int, str]] = {
    "no_trap": (f"srun {RING} {{ring}}\n", GANG, 8, "0"),
    "set_e": (f"set -e\nsrun {RING} {{ring}}\ntouch /home/alice/went-on-$SLURM_JOB_ID\n", GANG, 8, "0"),
    "trap_exit_0": (f"trap 'exit 0' TERM USR1\nsrun {RING} {{ring}} &\nwait\n", GANG, 8, "0"),
    "exit_on_file": (f"srun {RING} {{ring}} --leave-on-stop-file 2\n", GANG, 8, "0"),
    "exit_on_file_no_srun": (f"{LAUNCHER} {{ring}} --leave-on-stop-file 2\n", LONE, 4, "batch"),
    "exec_python": (f"exec {LAUNCHER} {{ring}}\n", LONE, 4, "batch"),
    "no_srun": (f"{LAUNCHER} {{ring}}\n", LONE, 4, "batch"),
    "array": (f"srun {RING} {{ring}}\n", ["-N1", "-n3", "--array=7"], 3, "0"),
}
SAMPLE = {("no_trap", "USR1"), ("exit_on_file", "TERM"), ("exec_python", "USR1"), ("array", "TERM")}
ON_EACH_RELEASE = ("no_trap", "USR1")


def _marks(shape: str, name: str) -> tuple[pytest.MarkDecorator, ...]:
    if (shape, name) == ON_EACH_RELEASE:
        return (pytest.mark.smoke,)
    return () if (shape, name) in SAMPLE else (pytest.mark.full,)


MATRIX = [pytest.param(shape, name, marks=_marks(shape, name), id=f"{shape}-{name}")
          for shape in SHAPES for name in SIGNALS]


def begin(site: Site, shape: str, name: str, *args: str) -> int:
    """A job of this shape, all of its ranks at work."""
    script, size, ranks, step = SHAPES[shape]
    saving, asked = SIGNALS[name]
    ring = f"--save-on {saving} --print-env --short-if-restarted 20"
    job = site.submit(script.format(ring=ring), *size, *asked, "--stall-after=30s", "--restart-stalled",
                      "--open-mode=append", "-o", "/home/alice/matrix-%A.txt", "-J", f"{shape}-{name}", *args)
    site.cluster.wait_state(job, "RUNNING", timeout=120)
    if step != "batch":
        site.settled(job, ranks, timeout=120)
        return job

    def at_work() -> bool:
        workers = site.progress(job)["workers"]
        processes = workers[0]["processes"] if workers else []
        return len(processes) == ranks and all(p["pulse_gone_s"] == 0 for p in processes)
    wait_for(at_work, 120, every=1, what="local processes with a pulse", saw=lambda: site.progress(job))
    return job


def stall(site: Site, job: int, shape: str) -> dict[str, Any]:
    """Stop a rank; the finding."""
    _, _, ranks, step = SHAPES[shape]
    site.cluster.signal_rank(job, step, ranks - 2, "STOP")
    return site.wait_finding("stalled", job, timeout=90)


def checkpoints(site: Site, job: int) -> dict[str, str]:
    """Name to content of what the job's ranks have saved."""
    listed = site.cluster.run("ctl", ["sh", "-c", f"cd /home/alice && grep -H . checkpoint.{job}.rank-* 2>/dev/null"])
    return dict(line.split(":", 1) for line in listed.out.splitlines())


def shown(site: Site, job: int, key: str) -> str:
    """``scontrol show job``'s word; "" where it is not there."""
    try:
        return site.cluster.scontrol_show_job(job).get(key, "")
    except LookupError:
        return ""


def frozen(site: Site, job: int) -> Callable[[], bool]:
    """Its ranks were signalled and are saving."""
    return lambda: "signalled" in site.kinds(job)


@pytest.mark.parametrize(("shape", "name"), MATRIX)
def test_every_rank_saves_and_the_job_comes_back_once(site: Site, shape: str, name: str) -> None:
    _, _, ranks, step = SHAPES[shape]
    cgroups = site.cluster.variant.name == "cgroup"
    job = begin(site, shape, name)
    after = {kind: site.submit("hostname\n", f"--dependency={kind}:{job}", "-o", "/dev/null")
             for kind in ("afterok", "afternotok")}
    stalled = stall(site, job, shape)
    assert stalled["stall"]["action"] == "restart"

    wait_for(lambda: shown(site, job, "Restarts") == "1", 120, every=0.5, what="the requeue",
             saw=lambda: (site.history(job), shown(site, job, "JobState")))
    for kind, dependent in after.items():
        assert (shown(site, dependent, "JobState"), shown(site, dependent, "Reason")) == ("PENDING", "Dependency"), kind
    site.cluster.wait_state(job, "COMPLETED", timeout=180 + site.begin_delay_s)

    out = site.cluster.read_file("ctl", f"/home/alice/matrix-{job}.txt")
    # With cgroups srun is killed as soon as TERM has ended the script: of what ranks print then some is lost.
    if (cgroups, name, step) != (True, "TERM", "0"):
        for rank in range(ranks):
            asked = f"rank {rank} got {name}" in out or (
                shape.startswith("exit_on_file") and f"rank {rank} saw the stop file" in out)
            assert asked, f"rank {rank} was not asked"
            assert f"rank {rank} saved step" in out, f"rank {rank} did not save"
        assert f"stop file: signal: {name}" in out
    saved = checkpoints(site, job)
    assert len(saved) == ranks
    assert all(text.isdigit() for text in saved.values()), saved
    assert "ASTRAEUS_RESTART_CAUSE=stalled" in out
    assert "ASTRAEUS_RESTART_COUNT=1" in out
    assert shown(site, job, "Restarts") == "1"
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
    site.wait_event(job, "restarted", timeout=30)
    kinds = site.kinds(job)
    assert (kinds.count("requeued"), kinds.count("signalled"), "ended_during_stop" in kinds) == (
        1, int(name == "USR1" or (cgroups and step == "batch")), False)
    if shape == "set_e":  # the first attempt never got beyond its srun; the second one did
        assert site.cluster.run("ctl", ["ls", f"/home/alice/went-on-{job}"]).ok


@pytest.mark.full
@pytest.mark.parametrize("shape", ["no_trap", "no_srun"])
def test_its_user_cancels_it_during_the_grace(site: Site, shape: str) -> None:
    job = begin(site, shape, "USR1")
    stall(site, job, shape)
    wait_for(frozen(site, job), 60, every=0.5, what="the signal", saw=lambda: site.history(job))
    site.cluster.run("ctl", ["scancel", str(job)], user="alice", check=True)
    site.cluster.wait_state(job, "CANCELLED", timeout=60)
    site.wait_event(job, "ended_during_stop", timeout=60)
    assert shown(site, job, "Restarts") == "0"
    assert "requeued" not in site.kinds(job)
    assert [row["State"].split()[0] for row in site.rows(job)] == ["CANCELLED"]


@pytest.mark.full
@pytest.mark.parametrize("shape", ["no_trap", "no_srun"])
def test_suspended_during_the_grace_it_waits(site: Site, shape: str) -> None:
    """Suspended for longer than the grace: not requeued meanwhile; resumed, its ranks save and it is requeued.

    A resume wakes the batch script, too, which is frozen again within 3 s. Where its ranks leave sooner (sleep goes on
    while it is suspended), or the signal went to the batch step, where it is pending and ends the script, the job ends
    and is requeued all the same.
    """
    job = begin(site, shape, "USR1")
    stall(site, job, shape)
    wait_for(frozen(site, job), 60, every=0.5, what="the signal", saw=lambda: site.history(job))
    site.cluster.run("ctl", ["scontrol", "suspend", str(job)], check=True)
    with pytest.raises(AssertionError):
        wait_for(lambda: shown(site, job, "Restarts") not in ("0", ""), 60, every=1, what="a requeue")
    site.cluster.run("ctl", ["scontrol", "resume", str(job)], check=True)
    wait_for(lambda: shown(site, job, "Restarts") == "1", 120, every=0.5, what="the requeue",
             saw=lambda: (site.history(job), shown(site, job, "JobState")))
    site.cluster.wait_state(job, "COMPLETED", timeout=180 + site.begin_delay_s)
    states = [row["State"] for row in site.rows(job)]
    assert (len(states), states[-1]) == (2, "COMPLETED")
    if states[0] != "REQUEUED":
        assert "it had ended on our stop" in site.wait_event(job, "requeued", timeout=5)["message"]
    if shape == "no_trap":
        assert len(checkpoints(site, job)) == SHAPES[shape][2]


@pytest.mark.full
def test_held_during_the_grace_it_stays_held(site: Site) -> None:
    """It is stopped and requeued, but its next attempt begins when its user releases it."""
    job = begin(site, "no_trap", "USR1")
    stall(site, job, "no_trap")
    wait_for(frozen(site, job), 60, every=0.5, what="the signal", saw=lambda: site.history(job))
    site.cluster.run("ctl", ["scontrol", "hold", str(job)], check=True)
    wait_for(lambda: shown(site, job, "Restarts") == "1", 120, every=0.5, what="the requeue",
             saw=lambda: site.history(job))
    wait_for(lambda: shown(site, job, "JobState") == "PENDING", 60, every=0.5, what="PENDING")
    with pytest.raises(AssertionError):
        wait_for(lambda: shown(site, job, "JobState") != "PENDING", 20, every=1, what="a held job that starts")
    site.cluster.run("ctl", ["scontrol", "release", str(job)], check=True)
    site.cluster.run("ctl", ["scontrol", "update", f"jobid={job}", "StartTime=now"])
    site.cluster.wait_state(job, "COMPLETED", timeout=180 + site.begin_delay_s)
    assert shown(site, job, "Restarts") == "1"
