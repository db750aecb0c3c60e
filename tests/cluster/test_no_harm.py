"""What watching costs the watched: step times of a real training with a monitor, without, and while one is killed."""

from __future__ import annotations

import statistics
import time

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site
from .frameworks_kit import interpreter_of

pytestmark = [pytest.mark.alone, pytest.mark.full]

WINDOW_S, ROUNDS, SETTLE_S = 12.0, 6, 2.0
KINDS = ("with", "without", "killed")
TIMES = "/home/alice/times.txt"
AT_MOST = 0.001
"""Issue and design: under 0.1 %, or under what two windows of one kind differ by."""


def test_steps_take_as_long_with_a_monitor_as_without(site: Site) -> None:
    python = interpreter_of(site, "torch")
    job = site.submit(f"srun {python} -u /opt/workloads/train.py torch --step-seconds 0.005 --print-every 500 "
                      f"--times {TIMES}\n", "-N1", "-n2", "-w", "c1", "--stall-after=60s", "-o", "/home/alice/o-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    site.settled(job, ranks=2, timeout=180)
    windows: list[tuple[str, float, float]] = []
    for number in range(ROUNDS * len(KINDS)):
        kind = KINDS[number % len(KINDS)]
        prepare(site, kind)
        began = boottime()
        end = time.monotonic() + WINDOW_S
        wait_for(lambda end=end: time.monotonic() >= end, WINDOW_S + 5, every=0.5, what="the window")
        windows.append((kind, began, boottime()))
    site.cluster.start_monitor("c1")
    assert site.cluster.scontrol_show_job(job)["JobState"] == "RUNNING"
    rows = [tuple(map(float, line.split())) for line in site.cluster.read_file("c1", TIMES).splitlines()[:-1]]
    site.cluster.cancel(job)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind, began, ended in windows:
        found[kind].append(statistics.median(took for at, took in rows if began <= at <= ended))
    plain = statistics.median(found["without"])
    noise = (max(found["without"]) - min(found["without"])) / plain
    said = {kind: [round(1000 * value, 4) for value in values] for kind, values in found.items()}
    print(f"step times, ms: {said}; noise {noise:.2%}")
    for kind in ("with", "killed"):
        slower = statistics.median(found[kind]) / plain - 1
        print(f"{kind}: {slower:+.3%}")
        assert slower < max(AT_MOST, noise), said


def prepare(site: Site, kind: str) -> None:
    """The monitor of c1 as the window wants it; what that costs is over when this returns."""
    if kind == "without":
        site.cluster.kill_monitor("c1")
    else:
        site.cluster.start_monitor("c1")
        wait_for(lambda: site.cluster.monitor_pid("c1"), 10, what="a monitor on c1")
    settled = time.monotonic() + SETTLE_S
    wait_for(lambda: time.monotonic() >= settled, SETTLE_S + 5, every=0.5, what="the first look")
    if kind == "killed":
        site.cluster.kill_monitor("c1", "KILL")


def boottime() -> float:
    """Of the node, whose kernel is this machine's."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
