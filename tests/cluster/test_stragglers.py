"""One worker of a gang holds the others back: it is named with its node, which is flagged, drained and cleared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet
from slurm_test_cluster import wait_for

from .conftest import RING, Site

pytestmark = pytest.mark.alone
"""They drain a node, set its GPUs and its Comment."""

NODE = "c3"
NAME = "held-back"
HEAT = {"sm_clock": 1386, "temp": 92, "clock_reasons": 0x40}
WELL = {"util": 97, "power": 600, "power_limit": 700}
KEYS = ("util", "power", "power_limit", "sm_clock", "temp", "clock_reasons")
NAMED_S = 120
"""Two looks that lie apart, on a busy machine."""


def gang(site: Site, *options: str, before: str = "") -> int:
    """Two ranks on one node, each with a GPU of its own; past its warm-up."""
    for index in (0, 1):
        site.cluster.set_gpu(NODE, index, **WELL)
    job = site.submit(f"{before}\nsrun --gpus-per-task=1 {RING}\n", "-w", NODE, "-n2", "--gpus-per-task=1",
                      "-J", NAME, "-o", "/home/alice/out-%j.txt", *options)
    site.cluster.wait_state(job, "RUNNING", timeout=180)
    progress = site.settled(job, ranks=2)
    assert [[gpu["index"] for gpu in worker["gpus"]] for worker in progress["workers"]] == [[0], [1]]
    return job


def ill(site: Site, index: int, **values: Any) -> None:
    site.cluster.set_gpu(NODE, index, **values)


def cured(site: Site) -> None:
    for index in (0, 1):
        site.cluster.set_gpu(NODE, index, **dict.fromkeys(KEYS) | WELL)


def named(site: Site, job: int, rank: int, says: str) -> dict[str, Any]:
    """The straggler, once it is named: this rank, by these words."""
    found = site.wait_finding("stragglers", job, NAMED_S)
    told = found["straggler"]
    assert (told["worker"], told["rank"], told["machine"]) == (f"{job}-{rank}", rank, NODE), found
    assert told["evidence"].startswith(says), found
    assert found["summary"] == f"Worker {job}-{rank} (rank {rank}, on {NODE}) holds the gang back: {told['evidence']}"
    return found


def over(site: Site, job: int) -> None:
    assert site.wait_event(job, "straggler_over", NAMED_S)["message"] == "Straggler over: the gang runs evenly again"
    assert not site.findings("stragglers", job)


def astraeus(site: Site, *words: str, user: str = "root") -> tuple[int, str]:
    ran = site.cluster.run("ctl", ["astraeus", *words], user=user)
    return ran.rc, ran.out + ran.err


@pytest.fixture
def node(site: Site) -> Iterator[str]:
    yield NODE
    site.cluster.run("ctl", ["scancel", f"--name={NAME}"])
    site.cluster.reset_gpus(NODE)
    site.cluster.run("ctl", ["astraeus", "nodes", "clear", NODE])
    site.cluster.run("ctl", ["scontrol", "update", f"nodename={NODE}", "comment="])


def field(site: Site, name: str) -> str:
    """Of the node, as sinfo prints it."""
    return site.cluster.run("ctl", ["sinfo", "-h", "-N", "-n", NODE, "-O", f"{name}:0"]).out.rstrip("\n")


def test_a_gpu_slowed_down_by_heat_and_its_node(site: Site, node: str) -> None:
    """From the reading to the drain and back, what others wrote untouched."""
    site.cluster.run("ctl", ["scontrol", "update", f"nodename={node}", "comment=rack 7 | spare"], check=True)
    job = gang(site)
    ill(site, 1, **HEAT)
    began = time.monotonic()
    said = "GPU 1 slowed down by heat: 1386 MHz against "
    found = named(site, job, 1, said)
    assert time.monotonic() - began <= NAMED_S
    assert found["straggler"]["gpu"] == 1
    assert found["straggler"]["evidence"].endswith(" MHz across the gang, 92 °C")
    assert f"STRAGGLER  run {job}: {found['summary']}\n" in astraeus(site, "stalls")[1]
    comment = wait_for(lambda: f"[astraeus: {said}" in (text := field(site, "Comment")) and text, 60, every=1,
                       what="our piece in the node's Comment", saw=lambda: field(site, "Comment"))
    assert comment.startswith(f"rack 7 | spare [astraeus: {said}")
    assert f"({found['straggler']['uuid']}); run {job} at " in comment
    assert node in NodeSet(astraeus(site, "nodes", "--hostlist", user="bob")[1].strip())
    listed = next(line for line in astraeus(site, "nodes")[1].splitlines() if line.startswith(f"{node} "))
    assert (found["straggler"]["uuid"] in listed, "flagged" in listed, str(job) in listed) == (True, True, True)

    assert astraeus(site, "nodes", "drain", node, user="bob")[0] == 1
    assert "drain" not in field(site, "StateLong")
    assert astraeus(site, "nodes", "drain", node)[0] == 0
    assert (field(site, "StateLong").rstrip("*"), field(site, "Reason").startswith(f"astraeus: {said}")) == (
        "draining", True)
    code, words = astraeus(site, "nodes", "clear", node)
    assert (code, words) == (0, f"node {node}: its flags are cleared; node {node} is back in service\n")
    assert "drain" not in field(site, "StateLong")
    assert field(site, "Comment") == "rack 7 | spare"
    cured(site)
    over(site, job)


@pytest.mark.full
def test_a_foreign_reason_stays(site: Site, node: str) -> None:
    job = gang(site)
    ill(site, 0, **HEAT)
    named(site, job, 0, "GPU 0 slowed down by heat")
    site.cluster.run("ctl", ["scontrol", "update", f"nodename={node}", "state=drain", "reason=bad fan"], check=True)
    code, words = astraeus(site, "nodes", "drain", node)
    assert (code, "bad fan; left as it is" in words) == (1, True)
    assert astraeus(site, "nodes", "clear", node)[0] == 0
    assert (field(site, "StateLong").rstrip("*"), field(site, "Reason")) == ("draining", "bad fan")
    site.cluster.run("ctl", ["scontrol", "update", f"nodename={node}", "state=resume"], check=True)


@pytest.mark.full
@pytest.mark.parametrize(("values", "says"), [
    ({"clock_reasons": 0x4, "power": 150, "sm_clock": 1200}, "GPU 1 slowed down by power: 1200 MHz against "),
    ({"clock_reasons": 0x8, "sm_clock": 345}, "GPU 1 slowed down by the hardware: 345 MHz against "),
    ({"sm_clock": 1100}, "GPU 1 runs slowly: 1100 MHz against ")])
def test_the_other_ways_of_a_slow_gpu(site: Site, node: str, values: dict[str, int], says: str) -> None:
    job = gang(site)
    ill(site, 1, **values)
    named(site, job, 1, says)
    cured(site)
    over(site, job)


@pytest.mark.full
def test_a_rank_whose_own_time_stands_out(site: Site, node: str) -> None:
    """A gauge in a text file of each rank; its node is not flagged for it."""
    def times(*values: float) -> None:
        for rank, value in enumerate(values):
            site.cluster.copy_in(node, f"/home/alice/slow-{rank}.prom", f"step_seconds {value}\n")

    times(1.0, 1.1)
    job = gang(site, "--straggler-metric=step_seconds", "--straggler-ratio=1.3",
               "--metrics-file=/home/alice/slow-%t.prom")
    wait_for(lambda: all((w["straggler_metric"] or {}).get("value") for w in site.progress(job)["workers"]), 60,
             every=1, what="both ranks' times", saw=lambda: site.progress(job))
    times(1.45, 1.1)
    named(site, job, 0, "step_seconds is 1.45 against 1.1 across the gang")
    times(1.0, 1.1)
    over(site, job)
    assert "node_flagged" not in site.kinds(job)


@pytest.mark.full
def test_what_all_share_and_what_is_only_a_risk(site: Site, node: str) -> None:
    job = gang(site)
    for index in (0, 1):
        ill(site, index, **HEAT)
    end = time.monotonic() + 75
    while time.monotonic() < end:
        assert not site.findings("stragglers", job)
        time.sleep(2)
    cured(site)
    ill(site, 0, temp=89)
    found = site.wait_finding("at_risk", job, NAMED_S)
    assert found["summary"] == f"Worker {job}-0 (rank 0, on {node}): GPU 0 is close to its slowdown: 89 °C of 90 °C"
    assert not {"straggler", "node_flagged"} & set(site.kinds(job))


@pytest.mark.full
def test_a_link_of_one_node_and_links_of_most(site: Site) -> None:
    cluster = site.cluster
    down = {"state": "1: DOWN", "phys_state": "2: Polling"}
    up = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
    cluster.on_each(cluster.nodes, lambda node: cluster.lay_rails(node, "mlx5_0", "mlx5_1"))
    try:
        job = site.submit(f"srun {RING}\n", "-N4", "-n4", "--ntasks-per-node=1", "--stall-after=1h",
                          "-o", "/home/alice/out-%j.txt")
        cluster.wait_state(job, "RUNNING", timeout=90)
        ranks = {worker["node"]: worker["rank"] for worker in site.settled(job, ranks=4)["workers"]}
        wait_for(lambda: len(site.progress(job)["rails"]) == 8, 60, every=1, what="rails of four nodes")
        cluster.set_rail("c2", "mlx5_1", down)
        found = site.wait_finding("stragglers", job, 150)
        told = found["straggler"]
        assert (told["rank"], told["machine"], told["class"]) == (ranks["c2"], "c2", "link"), found
        assert told["evidence"].startswith("rail mlx5_1: is DOWN, Polling"), found
        assert "Node c2 flagged: rail mlx5_1: is DOWN, Polling" in site.wait_event(job, "node_flagged", 10)["message"]
        cluster.set_rail("c2", "mlx5_1", up)
        site.wait_event(job, "straggler_over", 150)
        for node in ("c1", "c2", "c3"):
            cluster.set_rail(node, "mlx5_0", down)
        wait_for(lambda: sum(bool(rail["off"]) for rail in site.progress(job)["rails"]) >= 3, 120, every=1,
                 what="three links that are down", saw=lambda: site.progress(job)["rails"])
        end = time.monotonic() + 45
        while time.monotonic() < end:
            assert not site.findings("stragglers", job)
            time.sleep(2)
        cluster.run("ctl", ["scancel", str(job)])
    finally:
        cluster.remove_rails()
        for node in cluster.nodes:
            astraeus(site, "nodes", "clear", node)
