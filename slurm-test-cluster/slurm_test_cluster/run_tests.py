"""The scenarios on real Slurm, as `make test` runs them: a cluster up, jobs side by side, then what needs it alone.

python -m slurm_test_cluster.run_tests [--jobs N] [--full] [--keep] [-k EXPRESSION]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
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
    """One pytest run over tests/cluster; its exit status, with "no tests selected" taken as success.

    Beside the main thread's its output is printed whole when it has ended.
    """
    env = env or {}
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--durations=5"]
    # What failed last is kept by cluster: two of these run at a time.
    command += ["-o", f"cache_dir=.pytest_cache/{env.get('ASTRAEUS_CLUSTER', PREFIX)}", *arguments, "tests/cluster"]
    say("running " + " ".join(command[2:]))
    beside = threading.current_thread() is not threading.main_thread()
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, check=False, text=True,
        stdout=subprocess.PIPE if beside else None, stderr=subprocess.STDOUT if beside else None,
    )  # fmt: skip
    if beside:
        print(done.stdout, flush=True)
    return 0 if done.returncode == 5 else done.returncode


def twice(wanted: str, jobs: int, *only: str, env: dict[str, str]) -> int:
    """Scenarios, `jobs` at the same time; one that fails is run once more by itself, and that counts.

    Eight gangs, or two clusters, on two cores put off what is to happen within seconds. Both outcomes are printed.
    """
    at_once = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else []
    status = pytest("-m", wanted, *at_once, *only, env=env)
    if status == 1:
        say("what failed is run once more, one after the other")
        status = pytest("-m", wanted, "--last-failed", "--last-failed-no-failures", "none", *only, env=env)
    return status


# By variant: what `make test` takes of it, and what `make test-full` takes.
VARIANT_TESTS = {
    "cgroup": ("(cgroup or (restart and smoke)) and not full", "cgroup or restart"),
    "systemd": ("systemd and not full", "systemd"),
}
# Killing monitors and stopping units needs the nodes to itself.
ONE_BY_ONE = ("cgroup", "systemd")


def release_tests(release: str, jobs: int, full: bool) -> int:
    """The short chain on one more release; with `full` every restart scenario, too."""
    prefix = f"{PREFIX}-{release.replace('.', '')}"
    cluster = Cluster.up(release=release, prefix=prefix, nodes=4, fresh=True)
    env = {"ASTRAEUS_CLUSTER": prefix, "ASTRAEUS_RELEASE": release}
    try:
        cluster.start_controller(config())
        wanted = "smoke or releases or restart" if full else "smoke"
        return twice(wanted, min(jobs, 6) if full else 3, env=env)
    finally:
        cluster.down()


def variant_tests(name: str, jobs: int, full: bool) -> int:
    """The scenarios of one variant of the cluster, on the default release."""
    prefix = f"{PREFIX}-{name}"
    cluster = Cluster.up(prefix=prefix, variant=name, fresh=True)
    env = {"ASTRAEUS_CLUSTER": prefix}
    wanted = VARIANT_TESTS[name][full]
    alone = " or ".join(ONE_BY_ONE)
    try:
        cluster.start_controller(config())
        one_by_one = twice(f"({wanted}) and ({alone})", 1, env=env)
        cluster.cancel_all()
        together = twice(
            f"({wanted}) and not alone and not {' and not '.join(ONE_BY_ONE)}", min(jobs, 6), env=env
        )
        return one_by_one or together
    finally:
        cluster.down()


def others(jobs: int, full: bool) -> int:
    """The other releases and the variants, each on a cluster of its own."""
    status = 0
    for release in RELEASES:
        if release != DEFAULT_RELEASE:
            status = max(status, release_tests(release, jobs, full))
    for variant in VARIANT_TESTS:
        status = max(status, variant_tests(variant, jobs, full))
    return status


def scenarios(jobs: int, full: bool, keep: bool, expression: str) -> int:
    """All scenarios on the default release: side by side first, then those that need the cluster alone; beside these,
    which mostly wait, the other clusters."""
    only = ["-k", expression] if expression else []
    longer = ("" if full else " and not full") + "".join(f" and not {variant}" for variant in VARIANT_TESTS)
    cluster = Cluster.up(release=DEFAULT_RELEASE, prefix=PREFIX, fresh=True)
    env = {"ASTRAEUS_CLUSTER": PREFIX}
    try:
        cluster.start_controller(config())
        together = twice(f"not alone{longer}", jobs, *only, env=env)
        cluster.cancel_all()
        with ThreadPoolExecutor(1) as pool:
            beside = None if expression else pool.submit(others, jobs, full)
            alone = twice(f"alone{longer}", 1, *only, env=env)
            return together or alone or (beside.result() if beside else 0)
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
    say(f"scenarios took {time.monotonic() - start:.0f} s: {'all passed' if status == 0 else 'some failed'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
