"""The installed units where systemd is process 1: activation, restarts, a reboot. Each has the cluster to itself."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = pytest.mark.systemd

MONITOR, PATH, CONTROLLER = "astraeus-monitor.service", "astraeus-monitor.path", "astraeus-controller.service"
LOCK = "/run/astraeus/monitor.lock"


def shown(site: Site, host: str, unit: str) -> dict[str, str]:
    """``systemctl show``."""
    out = site.cluster.run(host, ["systemctl", "show", unit], check=True).out
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def systemctl(site: Site, host: str, *words: str) -> None:
    site.cluster.run(host, ["systemctl", *words], check=True)


def active(site: Site, host: str, unit: str, timeout: float = 20) -> int:
    """The unit's main process, once it runs."""
    def runs() -> int:
        now = shown(site, host, unit)
        return int(now["MainPID"]) if now["ActiveState"] == "active" else 0
    return wait_for(runs, timeout, what=f"{unit} runs on {host}", saw=lambda: shown(site, host, unit)["ActiveState"])


def monitors(site: Site, node: str) -> list[int]:
    """Monitors proper; their children have them as parent."""
    rows = [line.split() for line in site.cluster.run(
        node, ["ps", "-eo", "pid=,ppid=,args="], check=True).out.splitlines()]
    pids = {int(row[0]) for row in rows if any("bin/astraeus-monitor" in word for word in row[2:4])}
    return sorted(int(row[0]) for row in rows if int(row[0]) in pids and int(row[1]) not in pids)


def holder(site: Site, node: str) -> int:
    return int(site.cluster.read_file(node, LOCK) or 0)


def pair(site: Site, *args: str) -> int:
    """A gang of two on c1."""
    job = site.submit(f"srun {RING}\n", "-N1", "-n2", "-w", "c1", "-o", "/home/alice/s-%j.txt", *args)
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    return job


def test_a_job_that_arrives_starts_the_unit_and_only_that(site: Site) -> None:
    site.cluster.cancel_all()
    systemctl(site, "c1", "stop", PATH, MONITOR)
    systemctl(site, "c1", "start", PATH)
    assert (shown(site, "c1", PATH)["SubState"], monitors(site, "c1")) == ("waiting", [])
    job = pair(site, "--stall-after=60s")
    pid = active(site, "c1", MONITOR)
    wait_for(lambda: site.progress(job)["workers"], 30, every=1, what="the job is watched")
    assert (monitors(site, "c1"), holder(site, "c1")) == ([pid], pid)
    assert site.cluster.read_file("c1", f"/proc/{pid}/cgroup").splitlines()[-1] == f"0::/system.slice/{MONITOR}"
    assert shown(site, "c1", MONITOR)["NRestarts"] == "0"

    site.cluster.cancel(job)
    site.cluster.wait_state(job, "CANCELLED", timeout=30)
    wait_for(lambda: shown(site, "c1", PATH)["ActiveState"] == "active", 10, what="the path unit goes on")
    following = pair(site, "--stall-after=60s")
    wait_for(lambda: site.progress(following)["workers"], 30, every=1, what="the next job is watched")
    assert monitors(site, "c1") == [pid], "systemd's monitor stays where a Prolog's would leave"
    site.cluster.cancel(following)


def test_a_monitor_of_prologs_is_followed_by_the_units(site: Site) -> None:
    """Units enabled on a node whose monitor Prolog had started: the unit waits, and its path unit does not fail."""
    site.cluster.cancel_all()
    systemctl(site, "c1", "stop", PATH, MONITOR)
    site.cluster.background("c1", ["/usr/sbin/astraeus-monitor", "run"], "/var/log/astraeus/monitor.log")
    first = wait_for(lambda: holder(site, "c1") if holder(site, "c1") in monitors(site, "c1") else 0, 20,
                     what="a monitor that no unit started")
    job = pair(site, "--stall-after=60s")
    systemctl(site, "c1", "start", PATH)
    unit = active(site, "c1", MONITOR)
    wait_for(lambda: "waits for its end" in site.cluster.run("c1", ["journalctl", "-q", "-u", MONITOR]).out, 20,
             what="the unit waits")
    assert monitors(site, "c1") == sorted([first, unit])
    assert holder(site, "c1") == first
    site.cluster.run("c1", ["kill", str(first)], check=True)
    wait_for(lambda: holder(site, "c1") == unit, 20, what="the unit's monitor took over")
    assert (active(site, "c1", MONITOR), shown(site, "c1", PATH)["ActiveState"]) == (unit, "active")
    before = site.progress(job)["workers"][0]["last_output_at"]
    wait_for(lambda: site.progress(job)["workers"][0]["last_output_at"] > before, 40, every=1, what="reports go on")
    site.cluster.cancel(job)


@pytest.mark.full
def test_slurmd_restarted_under_a_job(site: Site) -> None:
    """KillMode=process of its unit: steps, monitor and watch go on; a stall and its restart go their way."""
    job = site.gang("--stall-after=30s", "--restart-stalled", "--open-mode=append",
                    ring="--save-on-term 4 --print-env --short-if-restarted 20")
    rank = site.cluster.rank_pid(job, 0, 5)
    monitor, slurmd = active(site, rank.node, MONITOR), active(site, rank.node, "slurmd")
    systemctl(site, rank.node, "restart", "slurmd")
    assert active(site, rank.node, "slurmd") != slurmd
    assert site.cluster.find_rank(job, 0, 5).pid == rank.pid
    assert active(site, rank.node, MONITOR) == monitor
    site.cluster.signal_rank(job, 0, 5, "STOP")
    assert site.wait_finding("stalled", job, timeout=90)["worker"] == f"{job}-5"
    site.cluster.wait_state(job, "COMPLETED", timeout=150)
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
    assert "ASTRAEUS_RESTART_CAUSE=stalled" in site.cluster.read_file("ctl", f"/home/alice/out-{job}.txt")


@pytest.mark.full
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_monitor_restarted_by_systemd_keeps_its_clocks(site: Site, how: str) -> None:
    job = site.gang("--stall-after=60s")
    victim = site.cluster.rank_pid(job, 0, 5)
    nodes = {victim.node, site.cluster.scontrol_show_job(job)["BatchHost"]}
    old = {node: active(site, node, MONITOR) for node in nodes}
    site.cluster.signal_rank(job, 0, 5, "STOP")
    stopped = time.time()
    site.wait_finding("suspects", job, timeout=40)
    for node in nodes:
        systemctl(site, node, *(["restart", MONITOR] if how == "restart" else ["kill", "-s", "KILL", MONITOR]))
    for node in nodes:
        wait_for(lambda node=node: active(site, node, MONITOR) != old[node], 20, what=f"a new monitor on {node}")
    stalled = site.wait_finding("stalled", job, timeout=120)
    assert abs(datetime.fromisoformat(stalled["stall"]["since"]).timestamp() - stopped) <= 20
    assert (stalled["worker"], stalled["machine"]) == (f"{job}-5", victim.node)
    site.cluster.cancel(job)


@pytest.mark.full
def test_controller_killed_is_started_again_and_goes_on(site: Site) -> None:
    job = site.gang("--stall-after=30s", "--restart-stalled", "--open-mode=append",
                    ring="--save-on-term 4 --print-env --short-if-restarted 20")
    old = active(site, "ctl", CONTROLLER)
    site.cluster.signal_rank(job, 0, 5, "STOP")
    wait_for(lambda: "restart_intended" in site.kinds(job), 90, every=0.1, what="the intent",
             saw=lambda: site.history(job))
    systemctl(site, "ctl", "kill", "-s", "KILL", CONTROLLER)
    wait_for(lambda: active(site, "ctl", CONTROLLER) != old, 30, what="a new controller")
    site.cluster.wait_state(job, "COMPLETED", timeout=180)
    site.wait_event(job, "restarted", timeout=60)
    assert site.kinds(job).count("requeued") == 1
    assert [row["State"] for row in site.rows(job)] == ["REQUEUED", "COMPLETED"]
    assert site.cluster.run("ctl", ["stat", "-c", "%a %U", "/var/lib/astraeus"]).out.split() == ["750", "astraeus"]


@pytest.mark.full
def test_a_node_that_reboots(site: Site) -> None:
    """Silent meanwhile, which proves nothing about its ranks. The step is lost with it, as without Astraeus; the next
    job is watched there again."""
    job = site.gang("--stall-after=10m", ring="--print-env")
    boot = site.cluster.read_file("c3", "/proc/sys/kernel/random/boot_id")
    site.cluster.power_off("c3")
    try:
        silent = site.wait_event(job, "node_silent", timeout=90)
        assert "c3" in silent["message"]
        assert site.findings("stalled", job) == []
    finally:
        site.cluster.power_on("c3")
    wait_for(lambda: site.cluster.run("c3", ["systemctl", "is-active", PATH, "slurmd"]).ok, 60, every=1,
             what="c3 is up again")
    assert site.cluster.read_file("c3", "/proc/sys/kernel/random/boot_id") != boot
    assert site.cluster.run("c3", ["ls", f"/run/astraeus/jobs/{job}"]).rc != 0
    site.cluster.wait_state(job, ("FAILED", "NODE_FAIL", "PENDING"), timeout=240)
    site.cluster.cancel(job)
    site.wait_event(job, "node_back", timeout=60)
    assert "stalled" not in site.kinds(job)
    following = site.gang("--stall-after=60s")
    assert monitors(site, "c3") == [active(site, "c3", MONITOR)]
    site.cluster.cancel(following)


@pytest.mark.full
def test_a_controller_that_no_longer_turns_is_started_anew(site: Site) -> None:
    """By systemd's watchdog of two minutes; its actor ends with it."""
    old = active(site, "ctl", CONTROLLER)
    site.cluster.run("ctl", ["kill", "-STOP", str(old)], check=True)
    wait_for(lambda: shown(site, "ctl", CONTROLLER)["MainPID"] not in (str(old), "0"), 180, every=2,
             what="another controller", saw=lambda: shown(site, "ctl", CONTROLLER))
    assert active(site, "ctl", CONTROLLER) != old
    wait_for(lambda: site.api("/healthz")[0] == 200, 20, every=0.5, what="it is well")
    assert len(site.cluster.run("ctl", ["pgrep", "-f", "[b]in/astraeus-controller"]).out.split()) == 2
