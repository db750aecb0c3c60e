"""GPUs in every odd state, through a real job: the reading, or unknown with its reason; never idle, never zero. And a
reset of a GPU by the site's Epilog, with the monitor up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site

pytestmark = pytest.mark.alone
"""All of them set the GPUs of one node."""

QUIET = "python3 -u /opt/workloads/quiet_gpu.py --print-every 5"
RESET = "/etc/slurm/epilog.d/60-reset.sh"
SCRIPT = """#!/bin/sh
{ echo "job $SLURM_JOB_ID"; nvidia-smi --gpu-reset; echo "rc $?"; } >>/var/log/gpu-reset.log 2>&1
exit 0
"""


def job_on(site: Site, node: str, *args: str) -> int:
    """A job with both GPUs of a node, of which one task says that it holds them."""
    job = site.submit(f"srun {QUIET}\n", "-w", node, "-n1", "--gres=gpu:2", "--exclusive", "--no-requeue",
                      "-o", "/home/bob/out-%j.txt", *args, user="bob")
    site.cluster.wait_state(job, "RUNNING", timeout=120)
    return job


def told(site: Site, job: int, index: int, **wanted: Any) -> dict[str, Any]:
    """The GPU once its readings are these."""
    def there() -> dict[str, Any] | None:
        status, body = site.api(f"/runs/{job}/progress")
        workers = body["workers"] if status == 200 else []
        return next((gpu for worker in workers for gpu in worker["gpus"] if gpu["index"] == index
                     and all(gpu[name] == value for name, value in wanted.items())), None)
    return wait_for(there, 150, every=1, what=f"GPU {index} of job {job} with {wanted}",
                    saw=lambda: site.api(f"/runs/{job}/progress"))


@pytest.fixture
def node(site: Site) -> Iterator[str]:
    yield "c4"
    site.cluster.run("ctl", ["scancel", "--user=bob", "--nodelist=c4"])
    site.cluster.reset_gpus("c4")


def test_instances_at_full_load_are_no_idle_gpus(site: Site, node: str) -> None:
    """The whole patience passes, and nothing is said. Beside instances a number does not tell which GPU is meant."""
    site.cluster.set_gpu(node, 0, mig=2, util=0, power=432, temp=52)
    site.cluster.set_gpu(node, 1, util=97)
    job = site.submit("srun python3 -u /opt/workloads/quiet_gpu.py\n", "-w", node, "-n1", "--gres=gpu:2", "--exclusive",
                      "-o", "/home/bob/out-%j.txt", "--stall-after", "30s", user="bob")
    site.cluster.wait_state(job, "RUNNING", timeout=120)
    first = told(site, job, 0, power_w=432.0, temp_c=52.0, sm_mhz=1980.0, busy=None)
    assert "MIG" in first["unknown"]["busy"]
    assert "can't be told" in told(site, job, 1, busy=None)["unknown"]["busy"]
    site.quiet_for([job], 45)
    assert site.progress(job)["workers"][0]["stalled_in_s"] is None
    site.cluster.run("ctl", ["scancel", str(job)])


def test_a_reset_by_the_sites_epilog(site: Site, node: str) -> None:
    """Refused while anybody has the driver open; the monitor let go of it before the site's own piece ran."""
    site.cluster.copy_in(node, RESET, SCRIPT)
    site.cluster.run(node, ["chmod", "755", RESET], check=True)
    try:
        job = job_on(site, node)
        told(site, job, 0, busy=0.0)
        assert site.cluster.run(node, ["nvidia-smi", "--gpu-reset"]).rc == 19, "the monitor has it open"
        site.cluster.run("ctl", ["scancel", str(job)])

        def done() -> list[str]:
            log = site.cluster.logs(node, "/var/log/gpu-reset.log")
            return log.partition(f"job {job}\n")[2].splitlines() if f"job {job}\n" in log else []
        lines = wait_for(lambda: [line for line in done() if line.startswith("rc")] and done(), 60,
                         what="the site's Epilog", saw=lambda: site.cluster.logs(node, "/var/log/gpu-reset.log"))
        assert lines[-1] == "rc 0", lines
    finally:
        site.cluster.run(node, ["rm", "-f", RESET])


@pytest.mark.full
def test_odd_states(site: Site, node: str) -> None:
    """One after the other at one job: each is told within a minute or so, with its reason."""
    site.cluster.set_gpu(node, 0, util=97, power=690, power_limit=700, clock_reasons=4, sm_clock=1700, nvlinks=4)
    job = job_on(site, node)
    told(site, job, 0, busy=97.0, power_w=690.0, limit_w=700.0, reasons=4, sm_mhz=1700.0, sm_max_mhz=1980.0,
         nvlinks_down=[], errors={}, xids=[])

    site.cluster.set_gpu(node, 0, ecc_corrected=3, remap_pending=1, xid=63, nvlink_down=2, pcie_width=8,
                         held_hw_thermal=2_000_000_000, na="nvmlDeviceGetTemperature", absent="nvmlDeviceGetPowerUsage")
    odd = told(site, job, 0, errors={"ecc_corrected": 3, "remap_pending": 1}, xids=[63], nvlinks_down=[2], pcie_width=8,
               pcie_width_max=16, held_s={"hw_thermal": 2.0}, temp_c=None, power_w=None, busy=97.0)
    assert odd["unknown"] == {"temp_c": "not available on this GPU", "power_w": "this driver is too old to tell"}

    for state, why in (("lost", "the GPU is lost"), ("reset_required", "the GPU must be reset")):
        site.cluster.set_gpu(node, 1, **{state: 1})
        gone = told(site, job, 1, unknown={"busy": why}, busy=None)
        assert (gone["temp_c"], gone["power_w"]) == (None, None)
        assert told(site, job, 0)["busy"] == 97.0
        site.cluster.set_gpu(node, 1, **{state: None})

    site.cluster.set_gpu(node, 1, util=4294967295)
    told(site, job, 1, unknown={"busy": "the driver told 4294967295 %"}, busy=None)
    site.cluster.set_gpu(node, 1, util=0)
    told(site, job, 1, busy=0.0)
    site.cluster.set_gpu(node, 1, hang=1)
    told(site, job, 1, unknown={"busy": "driver not answering"}, busy=None)
    told(site, job, 0, busy=97.0)  # its neighbour is read on
    reasons = [u["reason"] for u in site.progress(job)["workers"][0]["unknown"] if u["source"] == "gpu"]
    assert reasons == ["GPU 1: driver not answering"]
    site.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.full
def test_read_gpu(site: Site, node: str) -> None:
    """The admin's tool: 0 with a reading, 3 where one is not known, and why."""
    site.cluster.set_gpu(node, 0, util=97, temp=61)
    read = ["/opt/astraeus/venv/bin/astraeus-monitor", "read", "gpu"]
    done = site.cluster.run(node, read)
    assert (done.rc, "97 %" in done.out, "61 of 90 C" in done.out) == (0, True, True), done.out
    site.cluster.set_gpu(node, 1, lost=1)
    done = site.cluster.run(node, [*read, "--json"])
    assert (done.rc, "GPU 1: the GPU is lost" in done.out) == (3, True), done.out
