"""The scenarios on real Slurm, as `make test` runs them: a cluster up, jobs side by side, then what needs it alone.

python -m slurm_test_cluster.run_tests [--jobs N] [--full] [--keep] [-k EXPRESSION]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from slurm_test_cluster import Cluster
from slurm_test_cluster.context import ROOT
from slurm_test_cluster.progress import say
from slurm_test_cluster.releases import DEFAULT_RELEASE, RELEASES

PREFIX = "astraeus-test"


def config() -> str:
    """The configuration that the scenarios expect, from their conftest."""
    sys.path.insert(0, str(ROOT / "tests"))
    from cluster.conftest import CONFIG

    return str(CONFIG)


def pytest(*arguments: str, env: dict[str, str] | None = None) -> int:
    """One pytest run over tests/cluster; its exit status, with "no tests selected" taken as success."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--durations=5", *arguments, "tests/cluster"]
    say("running " + " ".join(command[2:]))
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, check=False).returncode
    return 0 if status == 5 else status


def smoke(release: str, full: bool) -> int:
    """The short chain on one more release; with `full` also what is to run on each release."""
    prefix = f"{PREFIX}-{release.replace('.', '')}"
    cluster = Cluster.up(release=release, prefix=prefix, nodes=4, fresh=True)
    try:
        cluster.start_controller(config())
        marks = "smoke or releases" if full else "smoke"
        return pytest("-m", marks, "-n", "3", env={"ASTRAEUS_CLUSTER": prefix, "ASTRAEUS_RELEASE": release})
    finally:
        cluster.down()


def scenarios(jobs: int, full: bool, keep: bool, expression: str) -> int:
    """All scenarios on the default release: side by side first, then those that need the cluster alone."""
    only = ["-k", expression] if expression else []
    longer = "" if full else " and not full"
    cluster = Cluster.up(release=DEFAULT_RELEASE, prefix=PREFIX, fresh=True)
    env = {"ASTRAEUS_CLUSTER": PREFIX}
    try:
        cluster.start_controller(config())
        together = pytest(
            "-m", f"not alone{longer}", "-n", str(jobs), "--dist", "worksteal", *only, env=env
        )
        cluster.cancel_all()
        alone = pytest("-m", f"alone{longer}", *only, env=env)
        return together or alone
    finally:
        if not keep:
            cluster.down()


def main() -> int:
    """Exit status 0 when every scenario passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=8, help="scenarios side by side (default 8)")
    parser.add_argument("--full", action="store_true", help="the longer ones too")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("-k", dest="expression", default="", help="only scenarios that match, as pytest -k")
    options = parser.parse_args()
    start = time.monotonic()
    status = scenarios(options.jobs, options.full, options.keep, options.expression)
    if not options.expression:
        others = [release for release in RELEASES if release != DEFAULT_RELEASE]
        with ThreadPoolExecutor(1) as pool:
            status = max([status, *pool.map(smoke, others, [options.full] * len(others))])
    say(f"scenarios took {time.monotonic() - start:.0f} s: {'all passed' if status == 0 else 'some failed'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
