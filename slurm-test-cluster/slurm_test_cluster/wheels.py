"""Python packages for the image, fetched on the host, where pip is known to be set up.

The image installs from this folder alone: its build needs no way to a package index and carries none of the
host's pip configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from slurm_test_cluster.progress import heartbeat
from slurm_test_cluster.releases import Release

EXTRAS = ("monitor", "controller")


def cache_folder() -> Path:
    """Where fetched packages are kept between builds."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "astraeus-test-cluster"


def requirements(pyproject: Path) -> tuple[list[str], list[str]]:
    """What the project needs to run (with its monitor and controller extras), and to be built."""
    data = tomllib.loads(pyproject.read_text())
    project = data["project"]
    extras = project.get("optional-dependencies", {})
    run = list(project.get("dependencies", []))
    for extra in EXTRAS:
        run += extras.get(extra, [])
    return sorted(set(run)), sorted(data["build-system"]["requires"])


def ensure_wheelhouse(release: Release, pyproject: Path) -> Path:
    """The folder with a wheel of every package for `release`'s Python; fetched when the list has changed."""
    run, build = requirements(pyproject)
    folder = cache_folder() / f"wheels-{release.python}"
    stamp = folder / "requirements.txt"
    wanted = "".join(f"{line}\n" for line in run) + "".join(f"# to build: {line}\n" for line in build)
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    command += ["--python-version", release.python, "-d", str(folder), *run, *build, "wheel"]
    with heartbeat(f"fetching Python packages for Python {release.python}"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not fetch the image's packages: {done.stderr.strip()[-600:]}")
    stamp.write_text(wanted)
    return folder
