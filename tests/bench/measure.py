"""The measurements. Each returns figures by their names, as docs/performance.md explains them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from slurm_test_cluster.waiting import wait_for
from spank_host import built, handed_over, node_step, on_node, started, task

from .cost import Cost, cost_of, machine_s
from .figures import Figures
from .node import SHELL, Node, timed

WARM_UP_S = 65.0
"""In a step's first minute the monitor looks at it at each pulse; a job lives for days."""
WINDOWS = 4
PROLOG_RUNS, FIRST_RUNS, SPANK_RUNS, SPANK_TASKS = 60, 5, 60, 8
Say = Callable[[str], None]


class Edge(NamedTuple):
    """Between two windows: a time, what the monitor has cost, and the seconds that the machine was busy or stolen."""

    at: float
    cost: Cost
    busy_s: float
    stolen_s: float


def ranks(node: Node, count: int, seconds: float, warm_up: float, say: Say) -> Figures:
    """CPU and memory of the monitor and its children while it watches ``count`` healthy ranks; the job stays."""
    job, figures = 1000 + count, Figures()
    node.sink.fresh()
    node.prolog(job)
    pid = node.monitor()
    node.begin_ranks(job, count)
    began = time.monotonic()
    say(f"{count} ranks: warming up")
    wait_for(lambda: node.sink.pulses() == count, 120, 0.5, f"the pulse of {count} ranks in a report",
             lambda: f"{node.sink.pulses()} of them; {node.log.read_text()[-500:]}")
    _until(began + warm_up)
    say(f"{count} ranks: {seconds:.0f} s")
    reports, worked = node.sink.reports, node.ranks_cpu_s()
    edges = _edges(pid, seconds)
    figures.put(f"cpu_percent_{count}", _percent(edges[0], edges[-1]), list(map(_percent, edges, edges[1:])))
    pss = [edge.cost.pss_mib for edge in edges]
    figures.put(f"pss_mib_{count}", max(pss), pss)
    alone = [edge.cost.alone_mib for edge in edges]
    figures.put(f"alone_mib_{count}", max(alone), alone)
    spent = edges[-1].at - edges[0].at
    figures.beside[f"{count} ranks"] = {
        "seconds": round(spent), "reports": node.sink.reports - reports, "processes": edges[-1].cost.processes,
        "ranks_cpu_percent": round(100 * (node.ranks_cpu_s() - worked) / spent, 2), **_others(edges)}
    return figures


def idle(node: Node, seconds: float, say: Say) -> Figures:
    """Wake-ups and memory of a monitor whose jobs have ended."""
    figures, pid = Figures(), node.monitor()
    for job in (node.state / "jobs").iterdir():
        node.end_ranks()
        node.epilog(int(job.name))
    said = node.sink.reports

    def let_go() -> bool:
        return node.sink.reports > said and node.sink.last is not None and not node.sink.last.jobs
    wait_for(let_go, 60, 0.5, "the report that the job is gone", lambda: node.log.read_text()[-500:])
    _until(time.monotonic() + 5)
    say(f"no job: {seconds:.0f} s")
    first, last = _edges(pid, seconds, 1)
    figures.put("idle_wakes_per_min", 60 * (last.cost.wakes - first.cost.wakes) / (last.at - first.at))
    figures.put("idle_pss_mib", last.cost.pss_mib)
    figures.put("idle_alone_mib", last.cost.alone_mib)
    figures.put("idle_cpu_percent", _percent(first, last))
    return figures


def prolog(node: Node, say: Say) -> Figures:
    """What the Prolog and Epilog pieces add to a job: with a monitor there, and where Prolog has to start it."""
    figures, first = Figures(), []
    say(f"Prolog: {FIRST_RUNS} times without a monitor, {PROLOG_RUNS} times with one")
    for job in range(2000, 2000 + FIRST_RUNS):
        node.end_monitor()
        first.append(node.prolog(job))
        node.monitor()
        wait_for((node.state / "wake").exists, 20, 0.05, "the monitor's FIFO")
        node.epilog(job)
    figures.median("prolog_first_ms", first)
    jobs = range(3000, 3000 + PROLOG_RUNS)
    pairs = [(node.prolog(job), node.epilog(job)) for job in jobs]
    figures.median("prolog_ms", [begin for begin, _ in pairs])
    figures.median("epilog_ms", [end for _, end in pairs])
    figures.median("shell_ms", [timed([SHELL, "-c", ":"], {}) for _ in jobs])
    return figures


def spank(state: Path, say: Say) -> Figures:
    """What the plugin adds to the start of a step of eight tasks, by its hooks up to the last task."""
    figures, whole, load = Figures(), [], []
    built()
    (state / "jobs").mkdir()
    os.mkfifo(state / "wake")
    reader = os.open(state / "wake", os.O_RDWR | os.O_NONBLOCK)
    say(f"plugin: {SPANK_RUNS} steps of {SPANK_TASKS} tasks")
    try:
        for job in range(1, SPANK_RUNS + 1):
            handed_over(state, job, stall_after=900, restart_stalled=1)
            commands = [*node_step(job=job, tasks=SPANK_TASKS, local_tasks=SPANK_TASKS), ("loaded",), *started()]
            for rank in range(SPANK_TASKS):
                commands += [*task(rank, rank, os.getpid()), ("call", "slurm_spank_task_init_privileged"),
                             ("call", "slurm_spank_task_init"), ("call", "slurm_spank_task_post_fork")]
            answers = on_node(state, commands)
            spent = answers.nanoseconds
            # Tasks run task_init beside each other (the slowest counts); slurmstepd goes through task_post_fork.
            whole.append((sum(ns for hook, ns in spent.items() if hook != "slurm_spank_task_post_fork")
                          + SPANK_TASKS * spent["slurm_spank_task_post_fork"] + answers.load_ns) / 1e6)
            load.append(answers.load_ns / 1e6)
            shutil.rmtree(state / "jobs" / str(job))
    finally:
        os.close(reader)
    figures.median("spank_ms", whole)
    figures.median("spank_load_ms", load)
    return figures


def revision(root: Path) -> str:
    """The commit, with a + where files differ from it; unknown outside a checkout."""
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    commit = git("rev-parse", "--short=12", "HEAD") if shutil.which("git") else ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/bench-monitor.json")
    return (commit + "+" * bool(changed)) if commit else "unknown"


def _edges(pid: int, seconds: float, windows: int = WINDOWS) -> list[Edge]:
    """The edges of so many windows, which last ``seconds`` together."""
    began = time.monotonic()
    found = []
    for edge in range(windows + 1):
        _until(began + edge * seconds / windows)
        found.append(Edge(time.monotonic(), cost_of(pid), *machine_s()))
    return found


def _percent(first: Edge, last: Edge) -> float:
    """CPU of the monitor and its children between two edges, in percent of a core."""
    return 100 * (last.cost.cpu_s - first.cost.cpu_s) / (last.at - first.at)


def _others(edges: list[Edge]) -> dict[str, float]:
    """What else the machine did meanwhile, the ranks included, in percent of a core."""
    first, last = edges[0], edges[-1]
    seconds, own = last.at - first.at, last.cost.cpu_s - first.cost.cpu_s
    return {"machine_busy_percent": round(100 * (last.busy_s - first.busy_s - own) / seconds, 1),
            "stolen_percent": round(100 * (last.stolen_s - first.stolen_s) / seconds, 2)}


def _until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))
