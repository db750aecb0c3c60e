"""`make demo`: a cluster, a gang of 8 that hangs, and what Astraeus does about it, told while it happens."""

from __future__ import annotations

import argparse
import sys
import textwrap
import time

from slurm_test_cluster import Cluster, wait_for
from slurm_test_cluster.docker_host import NoDocker
from slurm_test_cluster.image import BuildFailed
from slurm_test_cluster.measure import settled

PREFIX = "astraeus"
CONFIG = """\
[watch]
mode = "act"

[restart]
backoff_s = 2

[slurm]
poll_s = 15
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=4 --ntasks-per-node=2
#SBATCH --comment="first run of the big one"
#SBATCH --open-mode=append
#SBATCH --output=/home/alice/llm-%j.txt
#SBATCH --stall-after=30s
#SBATCH --restart-stalled
srun python3 -u /opt/workloads/ring.py --print-env --save-on-term 3 --short-if-restarted 60
"""


def tell(text: str) -> None:
    """A paragraph of the story."""
    print("\n" + textwrap.fill(text, 100), flush=True)


def show(cluster: Cluster, command: str, host: str = "ctl", user: str = "root") -> str:
    """A command line and what it printed, as a person at the terminal would see it."""
    done = cluster.run(host, command, user=user)
    out = (done.out + done.err).rstrip()
    print(f"\n  {user}@{host}$ {command}")
    print(textwrap.indent(out, "  "), flush=True)
    return out


def story(cluster: Cluster) -> None:
    tell(
        "Alice submits a gang of 8 on 4 nodes. Nothing in the job knows of Astraeus: two options of sbatch do it."
    )
    print(textwrap.indent(SCRIPT, "  | "))
    job = cluster.submit("alice", SCRIPT)
    cluster.wait_state(job, "RUNNING", timeout=60)

    tell(
        f"Job {job} runs. Within 20 s each node's monitor, which Prolog started, knows the pulse of its ranks."
    )
    settled(cluster, job, 8)
    show(cluster, f"astraeus progress {job}")
    show(cluster, f"tail -n 2 /home/alice/llm-{job}.txt", user="alice")

    victim = cluster.rank_pid(job, 0, 5)
    tell(
        f"Now rank 5 (node {victim.node}, PID {victim.pid}) is stopped with SIGSTOP. It lives, its peers wait, no "
        "log says a word: to Slurm the job is RUNNING."
    )
    cluster.signal_rank(job, 0, 5, "STOP")
    stopped = time.monotonic()

    def said(kind: str) -> bool:
        return any(f["job"] == job for f in cluster.api("/stalls")[1].get(kind, []))

    wait_for(lambda: said("suspects"), 60, 0.5, "suspect")
    tell(f"After {time.monotonic() - stopped:.0f} s it is a suspect: shown, not acted on.")
    show(cluster, "astraeus stalls")
    wait_for(lambda: said("stalled"), 90, 0.5, "stalled")
    tell(f"After {time.monotonic() - stopped:.0f} s without progress (its patience is 30 s) it is stalled.")
    show(cluster, "astraeus stalls")
    wait_for(lambda: "[astraeus:" in cluster.comment(job), 30, 0.2, "the annotation")
    show(cluster, f"squeue -j {job} -O JobID:8,State:12,Comment:110")
    show(cluster, f"scontrol show job {job} | grep -E 'JobId|JobState|Comment'")

    tell("Before it is stopped, every node has the stop file, so that a training loop can save first:")
    path = f"/run/astraeus/jobs/{job}/stop"
    wait_for(lambda: cluster.run(victim.node, ["cat", path]).out, 30, 0.2, "the stop file")
    show(cluster, f"cat {path}", host=victim.node)
    wait_for(lambda: cluster.scontrol_show_job(job)["Restarts"] == "1", 60, 0.3, "the requeue")
    tell(
        "Then `scontrol requeue incomplete`: Slurm itself asks every rank to end (TERM), and the job is queued again."
    )
    show(cluster, f"squeue -j {job} -O JobID:8,State:12,Reason:12,Comment:100")
    cluster.wait_state(job, "COMPLETED", timeout=120)
    tell("The second attempt knows why it was restarted, and completes:")
    show(
        cluster,
        f"grep -aE 'rank [05] (got TERM|saved|env ASTRAEUS_RESTART|found|done)' /home/alice/llm-{job}.txt",
        user="alice",
    )
    wait_for(
        lambda: len([r for r in cluster.sacct(job, ["State", "AdminComment"]) if r["AdminComment"]]) == 2,
        30,
        1,
        "both attempts in accounting",
    )
    show(cluster, f"sacct -D -X -j {job} -o JobID,State,ExitCode,Elapsed,AdminComment%90")
    show(cluster, f"astraeus history {job}")
    show(cluster, "astraeus stalls")


def main() -> int:
    """Exit status 0 when the story came to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--down", action="store_true", help="take the demo's cluster away")
    options = parser.parse_args()
    if options.down:
        Cluster.remove(PREFIX)
        return 0
    try:
        cluster = Cluster.up(prefix=PREFIX)
    except (NoDocker, BuildFailed) as fault:
        print(fault, file=sys.stderr)
        return 1
    cluster.kill_controller("TERM")
    cluster.start_controller(CONFIG)
    story(cluster)
    tell("Look around yourself:")
    print(
        "  docker exec -it astraeus-ctl bash             # the controller host; su - alice to submit\n"
        "  docker exec -it astraeus-c1 bash              # a node\n"
        "  make demo-down                                # take it all away",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
