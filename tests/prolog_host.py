"""Runs the Prolog and Epilog pieces as slurmd does: with the environment that it gives them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PIECES = Path(__file__).parents[1] / "prolog"
PROLOG, EPILOG = PIECES / "prolog.d" / "10-astraeus.sh", PIECES / "epilog.d" / "00-astraeus.sh"
START_MONITOR = PIECES / "start-monitor"
SHELL = shutil.which("dash") or "/bin/sh"

# A node Prolog's environment: 24.11 for `sbatch --gres=gpu:1 -n2 --comment=…`. No PATH, no HOME.
ENV_2411 = {
    "CUDA_VISIBLE_DEVICES": "0", "PWD": "/var/log/slurm", "SLURMD_NODENAME": "c1", "SLURM_CLUSTER_NAME": "hs",
    "SLURM_JOBID": "111", "SLURM_JOB_ACCOUNT": "default", "SLURM_JOB_COMMENT": "hello c",
    "SLURM_JOB_GID": "1001", "SLURM_JOB_GPUS": "0", "SLURM_JOB_ID": "111", "SLURM_JOB_NODELIST": "c[1-2]",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_PARTITION": "main", "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_START_TIME": "1795976607", "SLURM_JOB_STDOUT": "/home/alice/out-%j.txt",
    "SLURM_JOB_UID": "1001", "SLURM_JOB_USER": "alice", "SLURM_JOB_WORK_DIR": "/home/alice",
    "SLURM_NODELIST": "c[1-2]", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_UID": "1001",
}
LACKING_IN_2205 = ("SLURM_JOB_NODELIST", "SLURM_JOB_START_TIME")


def run(piece: Path, *arguments: object, env: dict[str, str] | None = None, timeout: float = 10) -> None:
    done = subprocess.run([SHELL, piece, *map(str, arguments)], env=env or {}, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=timeout, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def without_gpus() -> dict[str, str]:
    """The environment of a job that has no GPUs and asks for nothing."""
    return {k: v for k, v in ENV_2411.items() if k != "SLURM_JOB_GPUS"}
