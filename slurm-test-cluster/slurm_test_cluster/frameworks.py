"""Training frameworks for the nodes: fetched once by the host's pip (Open MPI: by apt), seen by all at /opt/frameworks.

The folder is a cache on the host that every cluster mounts read-only, so that no image is built anew for it and
nothing is fetched before a scenario asks: a copy of the host's Python (a node's own is another version), and a
folder of packages per framework with a `python` that has them.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slurm_test_cluster.hosts import Hosts
from slurm_test_cluster.progress import heartbeat
from slurm_test_cluster.wheels import cache_folder

INSIDE = "/opt/frameworks"

# The local version keeps pip from torch's default build, which draws gigabytes of CUDA after it.
PACKAGES = {
    "torch": ("torch==2.13.0+cpu",),
    "mlx-0.32.4": ("mlx[cpu]==0.32.4",),
    "mlx-0.32.0": ("mlx[cpu]==0.32.0",),
    "mpi4py": ("mpi4py==4.1.2",),
    # For their RAS alone, which needs no GPU: workloads/ras_rank.py knows these two.
    "nccl-2.30.7": ("nvidia-nccl-cu13==2.30.7",),
    "nccl-2.28.9": ("nvidia-nccl-cu13==2.28.9",),
}
OPENMPI = ("openmpi-bin", "openssh-client")

NOT_COPIED = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3")

WRAPPER = f"""\
#!/bin/sh
# Packages of this folder under the Python that was copied beside it.
export PYTHONHOME={INSIDE}/python LD_LIBRARY_PATH={INSIDE}/python/lib PYTHONPATH={INSIDE}/NAME/packages
exec {INSIDE}/python/bin/python3 "$@"
"""


class NotToBeHad(RuntimeError):
    """A framework could not be fetched; the message says in one sentence why."""


class NoSuchVersion(NotToBeHad):
    """pip answers, and has no such version for this Python."""


def folder() -> Path:
    """The host's folder that nodes see as /opt/frameworks; made when missing."""
    made = cache_folder() / "frameworks"
    made.mkdir(parents=True, exist_ok=True)
    return made


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One of several test processes fetches, the others wait for it."""
    with (folder() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _complete(place: Path, mark: str) -> bool:
    stamp = place / ".complete"
    return stamp.is_file() and stamp.read_text() == mark


def _put(new: Path, place: Path, mark: str) -> None:
    (new / ".complete").write_text(mark)
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)


def _fresh(name: str) -> Path:
    new = folder() / f".{name}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    return new


def _copy_python() -> None:
    """The interpreter that runs this, with its standard library and libpython; the nodes have what else it links."""
    mark, place = sys.version, folder() / "python"
    with _alone("python"):
        if _complete(place, mark):
            return
        new = _fresh("python")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (new / "bin").mkdir()
        shutil.copy2(Path(sys.executable).resolve(), new / "bin" / "python3")
        library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
        (new / "lib").mkdir()
        if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
            shutil.copy2(library, new / "lib" / library.name)
        standard = Path(sysconfig.get_path("stdlib"))
        shutil.copytree(standard, new / "lib" / version, symlinks=False, ignore_dangling_symlinks=True,
                        ignore=shutil.ignore_patterns(*NOT_COPIED, f"config-{version[6:]}*"))
        # Nobody can write them there, and each rank would compile them again.
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(new / "lib")], check=False, timeout=300,
                       capture_output=True)
        _put(new, place, mark)


def why_not(wanted: Sequence[str], stderr: str) -> NotToBeHad:
    """What pip's words mean: it has no such version for this Python, or it could not be had."""
    names, python = " ".join(wanted), f"{sys.version_info.major}.{sys.version_info.minor}"
    trouble = re.search(r"Retrying|timed out|[Cc]onnection|HTTP error|resolve|SSL", stderr)
    if "No matching distribution found" in stderr and not trouble:
        return NoSuchVersion(f"pip has no {names} for Python {python}: another Python, or an index that has it "
                             "(PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), is needed.")
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    return NotToBeHad(f"pip could not fetch {names}: {said[-1] if said else 'it said nothing'}")


def fetch(name: str) -> str:
    """Have the framework there, and return its python's path on the nodes. NotToBeHad in one sentence."""
    wanted = PACKAGES[name]
    _copy_python()
    mark, place = "\n".join([sys.version, *wanted]), folder() / name
    with _alone(name):
        if not _complete(place, mark):
            new = _fresh(name)
            command = [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--no-input",
                       "--disable-pip-version-check", "--target", str(new / "packages"), *wanted]
            with heartbeat(f"fetching {wanted[0]}"):
                done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            if done.returncode:
                raise why_not(wanted, done.stderr)
            for unneeded in ("torch/test", "torch/include", "bin"):
                shutil.rmtree(new / "packages" / unneeded, ignore_errors=True)
            wrapper = new / "python"
            wrapper.write_text(WRAPPER.replace("NAME", name))
            wrapper.chmod(0o755)
            _put(new, place, mark)
    return f"{INSIDE}/{name}/python"


def nccl_library(version: str, inside: bool = True) -> str:
    """Path of a real libnccl.so.2, on the nodes or on the host; fetched at first use. NotToBeHad in one sentence."""
    fetch(f"nccl-{version}")
    return f"{INSIDE if inside else folder()}/nccl-{version}/packages/nvidia/nccl/lib/libnccl.so.2"


class Frameworks(Hosts):
    """Frameworks on the nodes of a cluster."""

    def framework(self, name: str) -> str:
        """Path on the nodes of a python that has torch, mlx-0.32.4, mlx-0.32.0 or mpi4py; fetched at first use."""
        return fetch(name)

    def install_openmpi(self) -> None:
        """Debian's Open MPI on every node that lacks it. Its packages are fetched once, by the cluster's own image:
        nodes have no way out."""
        suite = self.run("ctl", ". /etc/os-release; echo $VERSION_CODENAME", check=True).out.strip()
        place = folder() / f"openmpi-{suite}"
        with _alone("openmpi"):
            if not _complete(place, " ".join(OPENMPI)):
                self._fetch_openmpi(str(self.container("ctl").image.id), place)
            self.on_each(self.nodes, lambda node: self._install_openmpi(node, place.name))

    def _fetch_openmpi(self, image: str, place: Path) -> None:
        new = _fresh("openmpi")
        script = (
            "rm -f /etc/apt/apt.conf.d/docker-clean; apt-get update -q && "
            f"apt-get install -qy --no-install-recommends --download-only {' '.join(OPENMPI)} && "
            "cp /var/cache/apt/archives/*.deb /fetched/"
        )
        with heartbeat("fetching Debian's Open MPI"):
            made = self.client.containers.create(
                image, entrypoint=["sh", "-c", script], network_mode="host",
                volumes={str(new): {"bind": "/fetched", "mode": "rw"}},
            )
            try:
                made.start()
                status = made.wait(timeout=600)["StatusCode"]
                said = made.logs(tail=3).decode(errors="replace").strip()
            finally:
                made.remove(force=True)
        if status:
            raise NotToBeHad(f"apt could not fetch {' '.join(OPENMPI)}: {said.splitlines()[-1] if said else status}")
        _put(new, place, " ".join(OPENMPI))

    def _install_openmpi(self, node: str, name: str) -> None:
        if self.run(node, ["sh", "-c", "command -v mpirun"]).ok:
            return
        self.run(node, f"dpkg --force-unsafe-io -i {INSIDE}/{name}/*.deb", timeout=180, check=True,
                 env={"DEBIAN_FRONTEND": "noninteractive"})
