"""Figures of the chain on a running cluster: detection latency, what a monitor costs, what a job's start costs, how
long a restart takes.

    python -m slurm_test_cluster.measure latency|monitor|start|restart [--prefix P]

Each prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slurm_test_cluster import Cluster, wait_for
from slurm_test_cluster.measure_restart import VARIANTS, restart

RING = "python3 -u /opt/workloads/ring.py"
BARE = "/root/bare"


def spread(values: list[float]) -> dict[str, float]:
    """Median, worst and count of seconds or milliseconds."""
    return {"n": len(values), "median": round(statistics.median(values), 2), "worst": round(max(values), 2)}


def settled(cluster: Cluster, job: int, ranks: int) -> None:
    def known() -> bool:
        status, body = cluster.api(f"/runs/{job}/progress")
        workers = body.get("workers", []) if status == 200 else []
        return len(workers) == ranks and all(w["pulse"] and w["pulse"]["gone_s"] is not None for w in workers)
    wait_for(known, 120, 0.5, f"pulse of {ranks} ranks of job {job}")


def one_hang(cluster: Cluster) -> tuple[float, float]:
    """Seconds from SIGSTOP of one rank of a gang of 8 on 4 nodes to suspect and to stalled (patience 30 s)."""
    job = cluster.submit("alice", f"#!/bin/bash\nsrun {RING}\n", "-N4", "-n8", "--ntasks-per-node=2",
                         "--stall-after=30s", "-o", "/home/alice/measure-%j.txt")
    cluster.wait_state(job, "RUNNING", timeout=90)
    settled(cluster, job, 8)
    cluster.signal_rank(job, 0, 5, "STOP")
    stopped = time.monotonic()

    def seen(kind: str) -> Callable[[], bool]:
        return lambda: any(f["job"] == job and f["rank"] == 5 for f in cluster.api("/stalls")[1][kind])
    wait_for(seen("suspects"), 90, 0.2, "suspect")
    suspect = time.monotonic() - stopped
    wait_for(seen("stalled"), 120, 0.2, "stalled")
    stalled = time.monotonic() - stopped
    cluster.cancel(job)
    return suspect, stalled


def latency(cluster: Cluster, runs: int, side_by_side: int) -> dict[str, Any]:
    with ThreadPoolExecutor(side_by_side) as pool:
        results = list(pool.map(lambda _: one_hang(cluster), range(runs)))
    return {"stop_to_suspect_s": spread([r[0] for r in results]), "stop_to_stalled_s": spread([r[1] for r in results]),
            "patience_s": 30}


COST = r"""
import json, os
pid = int(open("/run/astraeus/monitor.lock").read())
def stat(p):
    f = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
    return int(f[1]), sum(map(int, f[11:15]))
def parent(p):
    try:
        return stat(p)[0]
    except OSError:
        return 0
tree = [pid] + [int(p) for p in os.listdir("/proc") if p.isdigit() and parent(p) == pid]
pss = sum(int(l.split()[1]) for p in tree for l in open(f"/proc/{p}/smaps_rollup") if l.startswith("Pss:"))
ticks = stat(pid)[1] + sum(stat(p)[1] for p in tree[1:])
print(json.dumps({"pid": pid, "pss_kib": pss, "cpu_s": ticks / os.sysconf("SC_CLK_TCK"), "children": len(tree) - 1}))
"""


def monitor(cluster: Cluster, seconds: float) -> dict[str, Any]:
    """CPU and PSS of the monitor of c1, children included, while it watches 8 ranks with 2 GPUs."""
    job = cluster.submit("alice", f"#!/bin/bash\nsrun {RING}\n", "-w", "c1", "-N1", "-n8", "--gres=gpu:2",
                         "--stall-after=30m", "-o", "/home/alice/measure-%j.txt")
    cluster.wait_state(job, "RUNNING", timeout=90)
    settled(cluster, job, 8)

    def look() -> dict[str, Any]:
        return json.loads(cluster.run("c1", ["python3", "-c", COST], check=True).out)
    first, start = look(), time.monotonic()
    looks = [first]
    while time.monotonic() - start < seconds:
        due = start + min(seconds, 30 * len(looks))
        wait_for(lambda due=due: time.monotonic() >= due, 60, 1, "the next look")
        looks.append(look())
    last, elapsed = looks[-1], time.monotonic() - start
    cluster.cancel(job)
    assert first["pid"] == last["pid"], "the monitor was restarted meanwhile"
    return {"seconds": round(elapsed), "ranks": 8, "gpus": 2,
            "cpu_percent_of_a_core": round(100 * (last["cpu_s"] - first["cpu_s"]) / elapsed, 4),
            "pss_mib_max": round(max(look["pss_kib"] for look in looks) / 1024, 1), "children": last["children"]}


TIME = ("import subprocess,time,sys\n"
        "for _ in range(int(sys.argv[1])):\n"
        " t=time.monotonic(); subprocess.run(sys.argv[2:],check=True,stdout=subprocess.DEVNULL)\n"
        " print(time.monotonic()-t)\n")


PIECES = ("/etc/slurm/prolog.d/10-astraeus.sh", "/etc/slurm/epilog.d/00-astraeus.sh")
ARMS = ("with", "empty", "without")


def _arm(cluster: Cluster, arm: str) -> None:
    """``with``: as installed. ``empty``: no plugin, and scripts that do nothing in the places of our pieces, for
    Slurm's own cost of one more script. ``without``: neither plugin nor pieces."""
    conf = "include /etc/slurm/plugstack.conf.d/*.conf\n" if arm == "with" else "# none\n"
    for host in cluster.hosts:
        cluster.copy_in(host, "/etc/slurm/plugstack.conf", conf)
        for piece in PIECES:
            kept = f"{BARE}/{piece.rsplit('/', 1)[1]}"
            put = {"with": f"cp -p {kept} {piece}", "without": f"rm -f {piece}",
                   "empty": f"printf '#!/bin/sh\\nexit 0\\n' > {piece}; chmod 755 {piece}"}[arm]
            cluster.run(host, f"mkdir -p {BARE}; [ -e {kept} ] || cp -p {piece} {kept}; {put}", check=True)
    cluster.run("ctl", ["scontrol", "reconfigure"], check=True)
    wait_for(lambda: set(cluster.node_states().values()) <= {"idle"}, 30, 0.5, "nodes idle after the switch")


def start(cluster: Cluster, launches: int) -> dict[str, Any]:
    """Milliseconds of `srun --gres=gpu:1 true` on c1, turn about in the three arms."""
    def launch(n: int) -> list[float]:
        command = ["python3", "-c", TIME, str(n), "srun", "-Q", "-w", "c1", "-n1", "--gres=gpu:1", "true"]
        out = cluster.run("ctl", command, user="alice", timeout=120, check=True).out
        return [1000 * float(line) for line in out.split()]
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    try:
        for arm in ARMS * 4:
            _arm(cluster, arm)
            launch(2)
            found[arm] += launch(max(1, launches // 4))
    finally:
        _arm(cluster, "with")
    median = {arm: statistics.median(values) for arm, values in found.items()}
    return {**{f"{arm}_ms": spread(values) for arm, values in found.items()},
            "added_to_empty_ms": round(median["with"] - median["empty"], 2),
            "added_to_without_ms": round(median["with"] - median["without"], 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["latency", "monitor", "start", "restart"])
    parser.add_argument("--prefix", default="astraeus")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--side-by-side", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="restart: only these slurm.conf")
    parser.add_argument("--ring", default="", help="restart: options of the workload, such as --save-on-term 20")
    options = parser.parse_args()
    cluster = Cluster.attach(options.prefix)
    if options.what == "latency":
        figures = latency(cluster, options.runs, options.side_by_side)
    elif options.what == "monitor":
        figures = monitor(cluster, options.seconds)
    elif options.what == "restart":
        figures = restart(cluster, options.runs, options.variant or list(VARIANTS), options.ring)
    else:
        figures = start(cluster, options.launches)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
