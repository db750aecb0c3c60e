"""The ranks of a step as processes on their nodes: found by Slurm's variables in /proc/PID/environ."""

from __future__ import annotations

import json
from dataclasses import dataclass

from slurm_test_cluster.hosts import Hosts
from slurm_test_cluster.waiting import wait_for

# Runs on a node, as root: one JSON line with every process that belongs to the job.
SCAN = """
import json, os, sys
job, found = sys.argv[1], []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        raw = open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
        env = dict(item.decode(errors="replace").split("=", 1) for item in raw if b"=" in item)
        if env.get("SLURM_JOB_ID") != job:
            continue
        stat = open(f"/proc/{pid}/stat").read().rsplit(")", 1)
        argv = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")[:-1]
    except (OSError, ValueError):
        continue
    fields = stat[1].split()
    found.append({
        "pid": int(pid), "ppid": int(fields[1]), "state": fields[0], "comm": stat[0].split("(", 1)[1],
        "argv": [part.decode(errors="replace") for part in argv],
        "env": {key: env[key] for key in
                ("SLURM_STEP_ID", "SLURM_PROCID", "RANK", "OMPI_COMM_WORLD_RANK") if key in env},
    })
print(json.dumps(found))
"""

# SLURM_STEP_ID of a batch script: unset in 22.05 and 24.11, the batch step's number as a signed one in 26.05.
BATCH_STEP = {None, "-5", "4294967291"}


@dataclass(frozen=True)
class RankProcess:
    """One process of a rank. `task_pid` is the task that slurmstepd started, perhaps a wrapper around it."""

    node: str
    rank: int
    pid: int
    task_pid: int
    state: str
    comm: str
    argv: tuple[str, ...]


def rank_of(row: dict, by: str = "") -> str | None:
    """The rank that a process carries: in the variable `by`, else RANK (a launcher's), else SLURM_PROCID."""
    env = row["env"]
    return env.get(by) if by else env.get("RANK", env.get("SLURM_PROCID"))


def choose(rows: list[dict], step: int | str, rank: int, by: str = "") -> tuple[dict, dict] | None:
    """(worker process, task) of the rank among a node's processes: the topmost, and its leaf (python first).

    `step` is a number, or "batch" for the batch script's own processes.
    """
    wanted = BATCH_STEP if step == "batch" else {str(step)}
    mine = [
        row for row in rows
        if row["env"].get("SLURM_STEP_ID") in wanted and rank_of(row, by) == str(rank)
        and row["state"] != "Z" and row["comm"] != "srun"
    ]  # fmt: skip
    if not mine:
        return None
    pids = {row["pid"] for row in mine}
    parents = {row["ppid"] for row in mine}
    leaves = [row for row in mine if row["pid"] not in parents]
    leaves.sort(key=lambda row: (not row["comm"].startswith("python"), row["pid"]))
    return leaves[0], next(row for row in mine if row["ppid"] not in pids)


class Ranks(Hosts):
    """Find and signal ranks."""

    def find_rank(self, job: int | str, step: int | str, rank: int, by: str = "") -> RankProcess:
        """The process that does this rank's work; LookupError where there is none (yet).

        A launcher's RANK goes before Slurm's own number; `by="SLURM_PROCID"` insists on the latter.
        """
        for node, rows in self.on_each(self.nodes, lambda node: self._scan(node, job)).items():
            chosen = choose(rows, step, rank, by)
            if chosen:
                leaf, task = chosen
                return RankProcess(
                    node, rank, leaf["pid"], task["pid"], leaf["state"], leaf["comm"], tuple(leaf["argv"])
                )
        raise LookupError(f"job {job} step {step}: no process of rank {rank} on {', '.join(self.nodes)}")

    def rank_pid(
        self, job: int | str, step: int | str, rank: int, timeout: float = 10, by: str = ""
    ) -> RankProcess:
        """As find_rank, waiting up to `timeout` seconds for the rank to start."""
        return wait_for(
            lambda: self.find_rank(job, step, rank, by),
            timeout,
            0.3,
            f"job {job} step {step}: rank {rank} runs",
        )

    def find_rank_pids(self, job: int | str, step: int | str, ranks: int) -> dict[int, RankProcess]:
        """Every rank 0 ... `ranks`-1 of a step that has a process now."""
        scans = self.on_each(self.nodes, lambda node: self._scan(node, job))
        found = {}
        for node, rows in scans.items():
            for rank in range(ranks):
                chosen = choose(rows, step, rank)
                if chosen:
                    leaf, task = chosen
                    argv = tuple(leaf["argv"])
                    found[rank] = RankProcess(
                        node, rank, leaf["pid"], task["pid"], leaf["state"], leaf["comm"], argv
                    )
        return found

    def signal_rank(
        self, job: int | str, step: int | str, rank: int, signal: str, by: str = ""
    ) -> RankProcess:
        """Send a signal ("STOP", "KILL", ...) to the process that does the rank's work, and say which."""
        process = self.rank_pid(job, step, rank, by=by)
        self.run(process.node, ["kill", f"-{signal}", str(process.pid)], check=True)
        return process

    def _scan(self, node: str, job: int | str) -> list[dict]:
        return json.loads(self.run(node, ["python3", "-c", SCAN, str(job)], check=True).out)
