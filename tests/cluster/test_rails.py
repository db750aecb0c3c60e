"""RDMA rails of a job's nodes: told, compared, and never taken from the IP network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site


@pytest.fixture
def rails(site: Site) -> Iterator[Site]:
    """Two rails and a bond for storage on each node."""
    def lay(node: str) -> None:
        site.cluster.lay_rails(node, "mlx5_0", "mlx5_1")
        site.cluster.lay_rails(node, "mlx5_bond_0", rate="200 Gb/sec (2X NDR)", link_layer="Ethernet")
    site.cluster.on_each(site.cluster.nodes, lay)
    site.cluster.set_rail("c2", "mlx5_0", {"counters/link_downed": "255"})  # long before: says nothing
    yield site
    site.cluster.remove_rails()


def off(site: Site, job: int) -> list[str]:
    return sorted(f"{rail['node']}: {words}" for rail in site.progress(job)["rails"] for words in rail["off"])


def test_rails_of_a_job(rails: Site) -> None:
    """One rail loses its lanes, one polls, one counts errors; c4's IP network is cut, which no rail shows."""
    site, cluster = rails, rails.cluster
    job = site.submit(f"srun {RING}\n", "-N4", "-n4", "--ntasks-per-node=1", "--stall-after=1h",
                      "-o", "/home/alice/out-%j.txt")
    cluster.wait_state(job, "RUNNING", timeout=90)

    def told(count: int = 12) -> list[dict[str, Any]] | None:
        found = site.progress(job)["rails"]
        return found if len(found) == count else None
    found = wait_for(told, 60, every=1, what="rails of four nodes", saw=lambda: site.progress(job))
    assert {(r["device"], r["compute"], r["made_for_gb"], r["flaps"], str(r["errors"])) for r in found} == {
        ("mlx5_0", True, 400, 0, "{}"), ("mlx5_1", True, 400, 0, "{}"), ("mlx5_bond_0", False, None, 0, "{}")}
    assert off(site, job) == []

    cluster.set_rail("c1", "mlx5_0", {"rate": "100 Gb/sec (1X NDR)"})
    cluster.set_rail("c2", "mlx5_1", {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "2.5 Gb/sec (1X SDR)",
                                      "counters/link_downed": "1"})
    cluster.set_rail("c3", "mlx5_0", {"hw_counters/packet_seq_err": "4830"})
    cluster.cut_network("c4")
    try:
        alone = cluster.run("c4", ["astraeus-monitor", "read", "rail", "--sysfs", "/run/fake-sysfs", "--json"])
        states = [(r["device"], r["state"]) for r in json.loads(alone.out)["reading"]["rails"]]
        assert states == [("mlx5_0", "ACTIVE"), ("mlx5_1", "ACTIVE"), ("mlx5_bond_0", "ACTIVE")]
    finally:
        cluster.heal_network("c4")

    wanted = ["c1: rail mlx5_0: 100 Gb/s (1X NDR), made for 400 Gb/s as 6 others of its class",
              "c2: rail mlx5_1: errors grow: link_downed +1", "c2: rail mlx5_1: is DOWN, Polling",
              "c3: rail mlx5_0: errors grow: packet_seq_err +4830"]

    def seen() -> bool:
        return [w.partition(" for ")[0] if "Polling" in w else w for w in off(site, job)] == wanted
    wait_for(seen, 60, every=1, what="what is off with three rails", saw=lambda: off(site, job))
    lines = cluster.run("ctl", ["astraeus", "progress", str(job)]).out
    assert "  c1: rail mlx5_0: 100 Gb/s (1X NDR), made for 400 Gb/s as 6 others of its class\n" in lines

    cluster.set_rail("c2", "mlx5_1", {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"})
    cluster.set_rail("c1", "mlx5_0", {"rate": "400 Gb/sec (4X NDR)"})

    def over() -> bool:
        by = {(r["node"], r["device"]): r for r in site.progress(job)["rails"] if r["node"] != "c3"}
        return len(by) == 9 and by["c2", "mlx5_1"]["flaps"] == 1 and not any("made for" in w or "DOWN" in w
                                                                             for w in off(site, job))
    wait_for(over, 60, every=1, what="both rails well again", saw=lambda: site.progress(job)["rails"])
    assert all((r["state"], r["flaps"], r["off"]) == ("ACTIVE", 0, []) for r in site.progress(job)["rails"]
               if r["node"] == "c4")
    assert not site.findings("stalled", job)
    cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.alone
@pytest.mark.full
def test_an_adapter_that_never_answers(rails: Site) -> None:
    """Reading one port hangs in the kernel: the others are told, and the ranks are."""
    site, cluster = rails, rails.cluster
    port = "/run/fake-sysfs/class/infiniband/mlx5_0/ports/1"
    job = site.submit(f"srun {RING}\n", "-N2", "-n2", "-w", "c[1-2]", "--ntasks-per-node=1", "--stall-after=1h",
                      "-o", "/home/alice/out-%j.txt")
    cluster.mount_store(["c1"])
    try:
        cluster.run("c1", f"cp {port}/state /mnt/store/state && ln -sf /mnt/store/state {port}/state", check=True)
        cluster.wait_state(job, "RUNNING", timeout=90)
        wait_for(lambda: len(site.progress(job)["rails"]) == 6, 60, every=1, what="rails of two nodes",
                 saw=lambda: site.progress(job)["rails"])
        site.settled(job, ranks=2)
        cluster.run("c1", "echo 3 > /proc/sys/vm/drop_caches")
        cluster.hang_store(["c1"])

        def told() -> bool:
            ages = {r["device"]: r["looked_s"] for r in site.progress(job)["rails"] if r["node"] == "c1"}
            return ages["mlx5_0"] > 30 and ages["mlx5_1"] < 15 and ages["mlx5_bond_0"] < 15
        wait_for(told, 90, every=1, what="the others read on", saw=lambda: site.progress(job)["rails"])
        assert site.progress(job)["rails_unknown"] == [{"node": "c1", "reason": "mlx5_0 does not answer"}]
        assert not [one for worker in site.progress(job)["workers"] for one in worker["unknown"]]
        assert off(site, job) == []
        assert not site.findings("stalled", job)
    finally:
        cluster.heal_store(["c1"])
        cluster.unmount_store(["c1"])
        cluster.run("ctl", ["scancel", str(job)])
