"""Docker Engine on this machine: found, and where we may, installed and started."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import docker
from docker.errors import DockerException

from slurm_test_cluster.progress import say

LOG = Path("/var/log/dockerd.log")
LEFT_BEHIND = {"dockerd": Path("/var/run/docker.pid"), "containerd": Path("/var/run/docker/containerd/containerd.pid")}


class NoDocker(RuntimeError):
    """There is no Docker Engine to be had; the message says in one sentence what to do."""


def _connect() -> docker.DockerClient | None:
    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except DockerException:
        return None
    return client


def _why_not(error: str) -> str:
    if Path("/var/run/docker.sock").exists() and not os.access("/var/run/docker.sock", os.W_OK):
        return "Docker Engine runs but this user may not use it: join the group docker and log in anew."
    return error


def _install() -> None:
    if not shutil.which("apt-get"):
        raise NoDocker(
            "Install Docker Engine (20.10 or later) with this system's package manager and try again."
        )
    say("installing Docker Engine (docker.io) with apt")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-qy", "docker.io", "debootstrap"]):
        done = subprocess.run(
            ["apt-get", *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise NoDocker(f"apt-get {arguments[0]} failed: {done.stderr.strip()[-300:]}")


def forget_dead(pid_file: Path, name: str, proc: Path = Path("/proc")) -> None:
    """Remove the PID file of a daemon that was killed: dockerd refuses to start beside a PID that lives, and a
    killed one's may by now be another process's."""
    try:
        pid = pid_file.read_text().strip()
        alive = (proc / pid / "comm").read_text().strip() == name if pid.isdigit() else False
    except FileNotFoundError:
        alive = False
    if not alive:
        pid_file.unlink(missing_ok=True)


def _start() -> None:
    if Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "start", "docker"], capture_output=True, timeout=60, check=False)
        return
    say("starting dockerd")
    for name, left in LEFT_BEHIND.items():
        forget_dead(left, name)
    with LOG.open("ab") as log:
        subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )


def ensure_docker() -> docker.DockerClient:
    """A client of this machine's Docker Engine. As root it is installed (Debian) and started when needed."""
    client = _connect()
    if client:
        return client
    if os.geteuid() != 0:
        raise NoDocker(
            _why_not("Docker Engine does not answer: start it (systemctl start docker) or run this as root.")
        )
    if not (shutil.which("dockerd") and shutil.which("docker")):
        _install()
    _start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client = _connect()
        if client:
            return client
        time.sleep(0.3)
    raise NoDocker(f"dockerd did not come up within 60 s: look into {LOG} (or journalctl -u docker).")
