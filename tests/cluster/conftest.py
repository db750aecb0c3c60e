"""The running cluster that scenarios share, and what they say about jobs in one word."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from slurm_test_cluster import Cluster, wait_for

CONFIG = """\
[controller]
api_listen = "0.0.0.0:6832"

[watch]
mode = "act"
stall_after = "60s"

[slurm]
poll_s = 15

# Side by side the scenarios stall a dozen jobs within minutes: what guards a site must not guard them.
[restart]
backoff_s = 2
min_interval_s = 0
max_per_hour = 1000
breaker_jobs = 1000

# A gang's first ten minutes are longer than a scenario.
[straggler]
warmup_s = 20

# They also share the four nodes.
[incidents]
by_nodes = false
"""

RING = "python3 -u /opt/workloads/ring.py"


class Site:
    """The cluster with the controller running, as scenarios use it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        old = tuple(map(int, cluster.release.split("."))) < (24, 11)
        self.begin_delay_s = 125 if old else 0
        """By how much later than elsewhere a requeued job begins: an old Slurm keeps its own delay."""

    # ---- jobs

    def submit(self, script: str, *args: str, user: str = "alice") -> int:
        """Job id of a batch job; ``script`` without its first line."""
        return int(self.cluster.submit(user, "#!/bin/bash\n" + script, *args))

    def gang(self, *args: str, srun: str = "", ring: str = "", before: str = "", user: str = "alice") -> int:
        """A gang of 8 on 4 nodes; waits until every rank has passed the ring for a while."""
        job = self.submit(f"{before}\nsrun {srun} {RING} {ring}\n", "-N4", "-n8", "--ntasks-per-node=2",
                          "-o", "/home/alice/out-%j.txt", *args, user=user)
        self.cluster.wait_state(job, "RUNNING", timeout=90)
        self.settled(job, ranks=8)
        return job

    def settled(self, job: int | str, ranks: int, timeout: float = 90) -> dict[str, Any]:
        """Progress of the job once all ranks are there and their pulse is known."""
        def known() -> dict[str, Any] | None:
            progress = self.progress(job)
            workers = [w for w in progress["workers"] if w["pulse"] and w["pulse"]["gone_s"] is not None]
            return progress if len(workers) == ranks else None
        return wait_for(known, timeout, every=1, what=f"{ranks} ranks of job {job} with a known pulse",
                        saw=lambda: self.progress(job))

    # ---- what Astraeus says

    def api(self, path: str) -> tuple[int, Any]:
        """Status and JSON body of the API's answer, asked as root."""
        return self.cluster.api(path)

    def findings(self, kind: str, job: int) -> list[dict[str, Any]]:
        """Open findings of the job; kind is stalled or suspects."""
        status, body = self.api("/stalls")
        assert status == 200, body
        return [f for f in body[kind] if f["job"] == job]

    def progress(self, job: int | str) -> dict[str, Any]:
        status, body = self.api(f"/runs/{job}/progress")
        if status != 200:
            raise LookupError(body)
        return body

    def history(self, job: int) -> list[dict[str, Any]]:
        status, body = self.api(f"/runs/{job}/history")
        return body["events"] if status == 200 else []

    def kinds(self, job: int) -> list[str]:
        return [event["kind"] for event in self.history(job)]

    def wait_finding(self, kind: str, job: int, timeout: float) -> dict[str, Any]:
        return wait_for(lambda: self.findings(kind, job), timeout, every=0.5,
                        what=f"{kind} of job {job}", saw=lambda: (self.history(job), self.api("/stalls")))[0]

    def wait_event(self, job: int, kind: str, timeout: float, having: str = "") -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            return next((e for e in self.history(job) if e["kind"] == kind and having in e["message"]), None)
        return wait_for(there, timeout, every=0.5, what=f"event {kind} {having} of job {job}",
                        saw=lambda: self.history(job))

    def quiet_for(self, jobs: list[int], seconds: float, allow: Callable[[dict[str, Any]], bool] | None = None) -> None:
        """Nothing at all is said of these jobs for so long: no suspect, no stalled, at any look."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for job in jobs:
                said = [f for kind in ("stalled", "suspects") for f in self.findings(kind, job)]
                said = [f for f in said if not (allow and allow(f))]
                assert not said, f"said of job {job}: {said}"
            time.sleep(1)

    # ---- what Slurm holds

    def comment(self, job: int) -> str:
        return self.cluster.comment(job)

    def admin_comment(self, job: int) -> str:
        return self.cluster.admin_comment(job)

    def rows(self, job: int, *fields: str) -> list[dict[str, str]]:
        """Every incarnation that accounting knows (sacct -D), oldest first."""
        return self.cluster.sacct(job, ["State", *fields])


@pytest.fixture(scope="session")
def site() -> Site:
    prefix = os.environ.get("ASTRAEUS_CLUSTER", "astraeus-test")
    cluster = Cluster.attach(prefix)
    return Site(cluster)


LONGEST = ("test_suspension_is_no_stall", "test_both_components", "test_what_can_not_be_avoided")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first: side by side they would else be waited for by themselves at the end."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))
