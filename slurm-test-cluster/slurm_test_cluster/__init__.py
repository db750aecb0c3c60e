"""A real Slurm cluster in Docker containers, driven from Python: what the cluster tests and the demo share.

from slurm_test_cluster import Cluster

cluster = Cluster.up(release="24.11")
job = cluster.submit("alice", "#!/bin/sh\\nsrun -n8 python3 -u /opt/workloads/ring.py\\n", "-N4", "-n8")
cluster.wait_state(job, "RUNNING", timeout=20)
cluster.signal_rank(job, 0, 5, "STOP")
"""

from slurm_test_cluster.cluster import Cluster
from slurm_test_cluster.hosts import CommandFailed, Result
from slurm_test_cluster.ranks import RankProcess
from slurm_test_cluster.releases import RELEASES
from slurm_test_cluster.waiting import WaitTimeout, wait_for

__all__ = ["RELEASES", "Cluster", "CommandFailed", "RankProcess", "Result", "WaitTimeout", "wait_for"]
