"""Source ``rail``: sysfs trees of real nodes and odd ones, counters of the job, which rails carry the data."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.config import Config
from astraeus_monitor.host import infiniband as ib
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.topology import TopologyFault, peers
from astraeus_monitor.main import main
from astraeus_monitor.probes.children import LATE, Probes, encode_line
from astraeus_monitor.probes.looker import Looker
from astraeus_monitor.probes.rails import RailAsk
from astraeus_monitor.rounds import rails
from astraeus_monitor.sources.rail import JobRails, Wiring
from astraeus_monitor.watch.job import JobWatch
from astraeus_protocol import report
from astraeus_protocol.devices import Rail

from .conftest import FakeClock
from .sysfs_trees import Sys, h100


def all_of(tree: Path) -> dict[str, ib.PortSeen]:
    devices = ib.devices(ib.folder_of(str(tree)))
    every = [(device.name, port) for device in devices for port in device.ports]
    return {f"{seen.device}/{seen.port}": seen for seen in ib.read(ib.folder_of(str(tree)), devices, every)}


def compute_of(tree: Path, *globs: str) -> list[str]:
    devices = ib.devices(ib.folder_of(str(tree)))
    return sorted(f"{name}/{port}" for name, port in ib.compute(str(tree), devices, globs))


@pytest.mark.parametrize(("text", "wanted"), [
    ("100 Gb/sec (4X EDR)", (100, 4, "EDR")), ("100 Gb/sec (2X HDR)", (100, 2, "HDR")),
    ("25 Gb/sec (1X EDR)", (25, 1, "EDR")), ("40 Gb/sec (4X QDR)", (40, 4, "QDR")), ("0 GB/sec", (0, None, "")),
    ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")), ("500 Gb/sec (4X HDR)", (500, 4, "HDR")),
    ("200 Gb/sec (2X NDR)", (200, 2, "NDR")), ("10 Gb/sec (4X)", (10, 4, "")),
    ("", (None, None, "")), ("N/A", (None, None, "")), ("fast", (None, None, ""))])
def test_spellings_of_a_rate(text: str, wanted: tuple[float | None, int | None, str]) -> None:
    assert ib.rate(text + "\n") == wanted


@pytest.mark.parametrize(("text", "wanted"), [
    ("5: LinkUp", "LinkUp"), ("  5  :  LinkUp  ", "LinkUp"), ("4: ACTIVE", "ACTIVE"), ("2: Polling", "Polling"),
    ("3: Disabled", "Disabled"), ("6: Link error recovery", "Link error recovery"), ("LinkUp", ""), ("", "")])
def test_spellings_of_a_state(text: str, wanted: str) -> None:
    assert ib.state(text + "\n") == wanted


def test_a_healthy_node_with_scary_values(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    watch, wiring = JobRails(), Wiring()
    devices = ib.devices(ib.folder_of(str(tmp_path)))
    wiring.compute = ib.compute(str(tmp_path), devices, ())
    for now in (100.0, 160.0):
        watch.see(list(all_of(tree.root).values()), set(), wiring, [], now)
    rails = {rail.device: rail for rail in watch.records(170)}
    assert list(rails) == [f"mlx5_{n}" for n in (0, 1, 4, 5, 6, 7, 8, 9)] + ["mlx5_bond_0"]
    assert msgspec.structs.replace(rails["mlx5_1"], device="mlx5_0") == rails["mlx5_0"] == Rail(
        "mlx5_0", 1, "InfiniBand", 400, 4, "NDR", "ACTIVE", "LinkUp", compute=True,
        kind="MT4129/MT_0000000838/InfiniBand", down_s=0, looked_s=10)
    bond = rails["mlx5_bond_0"]
    assert (bond.rate_gb, bond.width, bond.layer, bond.compute) == (200, 2, "Ethernet", False)
    assert bond.kind == "MT4129/MT_0000000838/Ethernet"


def test_odd_files_are_no_error(tmp_path: Path) -> None:
    tree = Sys(tmp_path)
    tree.rail("hfi1_0", "100 Gb/sec (4X EDR)", hca="", board="")
    tree.write("class/infiniband/hfi1_0/ports/1/hw_counters/SDEDscFdCn10,32", 7)
    tree.rail("mlx5_0", "0 GB/sec", state="1: DOWN", phys="  3  :  Disabled  ", link_downed="N/A (no PMA)")
    tree.rail("mlx5_1", phys="4: ACTIVE", symbol_error="-1")
    tree.write("class/infiniband/mlx5_1/ports/1/counters/link_downed", "\xff" * 4)
    os.remove(tmp_path / "class/infiniband/mlx5_1/ports/1/link_layer")
    (tmp_path / "class/infiniband/mlx4_0").mkdir()
    (tmp_path / "class/infiniband/mlx4_1/ports/x").mkdir(parents=True)
    seen = all_of(tmp_path)
    assert sorted(seen) == ["hfi1_0/1", "mlx5_0/1", "mlx5_1/1"]
    assert seen["hfi1_0/1"].kind == "15b3:1021/InfiniBand"
    assert "SDEDscFdCn10,32" not in seen["hfi1_0/1"].counters
    assert (seen["mlx5_0/1"].rate_gb, seen["mlx5_0/1"].state, seen["mlx5_0/1"].phys_state) == (0, "DOWN", "Disabled")
    assert "link_downed" not in seen["mlx5_0/1"].counters
    assert seen["mlx5_0/1"].counters["symbol_error"] == 0
    assert {"symbol_error", "link_downed"}.isdisjoint(seen["mlx5_1/1"].counters)
    assert (seen["mlx5_1/1"].layer, seen["mlx5_1/1"].phys_state) == ("", "ACTIVE")
    assert all_of(tmp_path / "nothing") == {}
    assert compute_of(tmp_path / "nothing") == []


def test_compute_rails(tmp_path: Path) -> None:
    tree = Sys(tmp_path / "a")
    # Each switch holds a GPU and an adapter; storage's adapters of the same model hang at roots of their own.
    for number in range(4):
        switch = f"pci0000:{number}5/0000:{number}5:01.0/0000:{number}6:00.0"
        tree.gpu(f"{switch}/0000:{number}6:01.0/0000:{number}8:00.0", numa=number // 2)
        tree.rail(f"mlx5_{number}", pci=f"{switch}/0000:{number}6:02.0/0000:{number}9:00.0", numa=number // 2)
    for number in range(4, 10):
        tree.rail(f"mlx5_{number}", "0 GB/sec", state="1: DOWN", pci=f"pci0000:{number}5/0000:{number}5:00.0")
    assert compute_of(tree.root) == [f"mlx5_{n}/1" for n in range(4)]
    assert compute_of(tree.root, "mlx5_[12]", "mlx5_9/1") == ["mlx5_1/1", "mlx5_2/1", "mlx5_9/1"]
    # One adapter for two GPUs of a root, as many as GPUs by NUMA nodes.
    numa = Sys(tmp_path / "b")
    for number in range(4):
        numa.gpu(f"pci0000:{number}5/0000:{number}6:00.0", numa=number // 2)
        numa.rail(f"mlx5_{number}", pci=f"pci0000:{number}a/0000:{number}b:00.0", numa=number // 2)
    numa.rail("mlx5_9", pci="pci0000:9a/0000:9b:00.0", numa=5)
    assert compute_of(numa.root) == [f"mlx5_{n}/1" for n in range(4)]
    for number in range(20, 40):  # of mlx5_0, lent to guests
        numa.rail(f"mlx5_{number}", pci=f"pci0000:0a/0000:0b:01.{number}")
        os.symlink("../0000:0b:00.0", numa.root / f"class/infiniband/mlx5_{number}/device/physfn")
    assert len(all_of(numa.root)) == 5
    assert compute_of(numa.root) == [f"mlx5_{n}/1" for n in range(4)]
    # Not one for one: the commonest class.
    other = h100(tmp_path / "c")
    other.gpu("pci0000:f5/0000:f6:00.0", numa=7)
    assert compute_of(other.root) == [f"mlx5_{n}/1" for n in (0, 1, 4, 5, 6, 7, 8, 9)]
    assert compute_of(other.root / "class/infiniband") == compute_of(other.root)


def test_counters_are_of_the_job_and_flaps_are_counted(tmp_path: Path) -> None:
    tree = Sys(tmp_path)
    tree.rail("mlx5_0", packet_seq_err=100, link_downed=3)
    watch = JobRails()

    def at(now: float) -> Rail:
        watch.see(list(all_of(tmp_path).values()), set(), Wiring(), [], now)
        return watch.records(now)[0]

    assert (at(0.5).errors, at(60).errors_s) == ({}, None)
    tree.count("mlx5_0", packet_seq_err=4930)
    assert (at(120).errors, at(120).errors_s) == ({"packet_seq_err": 4830}, 0)
    tree.count("mlx5_0", packet_seq_err=7)  # cleared meanwhile
    assert (at(180).errors, at(240).errors_s) == ({"packet_seq_err": 4837}, 60)
    tree.port("mlx5_0", state="1: DOWN", phys_state="2: Polling", rate="2.5 Gb/sec (1X SDR)")
    tree.count("mlx5_0", link_downed=4)
    down = at(300)
    assert (down.state, down.phys_state, down.down_s, down.flaps) == ("DOWN", "Polling", 60, 0)
    tree.port("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp")
    assert (at(360).flaps, at(360).down_s) == (1, 0)
    tree.count("mlx5_0", link_downed=6)  # twice between two looks
    assert at(420).flaps == 3
    saved = msgspec.json.decode(msgspec.json.encode(watch.save()))
    watch = JobRails()
    watch.load(saved)
    assert watch.records(430) == []
    again = at(440)
    assert (again.flaps, again.errors["packet_seq_err"], again.down_s) == (3, 4837, 0)
    watch.see([], set(), Wiring(), [], 500)
    assert (watch.records(500)[0].state, watch.records(500)[0].down_s) == ("GONE", 60)


def test_a_port_that_was_down_from_the_start(tmp_path: Path) -> None:
    Sys(tmp_path).rail("mlx5_0", "2.5 Gb/sec (1X SDR)", state="1: DOWN", phys="2: Polling")
    watch = JobRails()
    watch.see(list(all_of(tmp_path).values()), set(), Wiring(), [], 10)
    assert watch.records(70)[0].down_s is None


def test_topology(tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.write_text("# racks 1 to 4\nc1 mlx5_0 1 leaf-1 17\nc1 mlx5_1 1 leaf-2 17 # spare\nc2 mlx5_0 1 leaf-1 18\n\n")
    assert peers(str(file), "c1") == {("mlx5_0", 1): "leaf-1/17", ("mlx5_1", 1): "leaf-2/17"}
    file.write_text("c1 mlx5_0 leaf-1\n")
    with pytest.raises(TopologyFault, match=r"^line 1 of .* can't be read; write NODE DEVICE PORT SWITCH SWITCH-PORT$"):
        peers(str(file), "c2")
    with pytest.raises(TopologyFault, match="No such file"):
        peers(str(tmp_path / "none"), "c1")


class Lab:
    """Rails with one job of a GPU; its looks run here and now, as far as ``until`` lines."""

    def __init__(self, tree: Path, clock: FakeClock, **config: str) -> None:
        self.clock, self.until, self.asked = clock, None, list[RailAsk]()
        self.job = JobWatch(7, {"gpus": "0"}, tree, clock.now, 5.0)
        self.job.running = lambda: [(None, None)]  # type: ignore[method-assign,list-item]
        selector = selectors.DefaultSelector()
        probes = Probes(selector, clock)
        self.rails = rails.Rails(probes, Looker(Proc(), selector, clock, probes, dict), clock, lambda: None)
        self.rails.config = Config(sysfs=str(tree), **config)
        self.rails.probes.start = self.alone  # type: ignore[method-assign,assignment]
        self.rails.looker.start = self.start  # type: ignore[method-assign,assignment]
        self.by_looker = list[bool]()

    def alone(self, kind: str, work: object, done: object, deadline_s: float) -> str:
        self.start(kind, work.args[0], done, deadline_s)  # type: ignore[attr-defined]
        self.by_looker[-1] = False
        return ""

    def start(self, kind: str, ask: RailAsk, done: object, deadline_s: float) -> str:
        self.asked.append(ask)
        self.by_looker.append(True)
        lines = [encode_line(line) for line in rails.look(ask)]
        done(lines[:self.until], LATE if self.until else "")  # type: ignore[operator]
        return ""

    def turn(self, seconds: float = 60, *, close: bool = False) -> report.Job:
        self.clock.now += seconds
        self.rails.due(self.clock.now, [self.job], "c1", close=close)
        job = report.Job(7, "n")
        self.job.rails.tell(job, self.clock.now)
        return job


def test_looks_are_each_15_s_while_the_controller_wants_to_hear_soon(tmp_path: Path, clock: FakeClock) -> None:
    h100(tmp_path)
    lab = Lab(tmp_path, clock)
    for seconds, close, looks in ((5, False, 1), (15, False, 1), (5, True, 2), (10, True, 2), (5, True, 3),
                                  (45, False, 3), (15, False, 4)):
        lab.turn(seconds, close=close)
        assert len(lab.asked) == looks


def test_looks_are_seldom_and_whole_for_a_new_job(tmp_path: Path, clock: FakeClock) -> None:
    tree = h100(tmp_path)
    topology = tmp_path / "wanted"
    topology.write_text("c1 mlx5_0 1 leaf-1 17\n")
    lab = Lab(tmp_path, clock, topology=str(topology), topology_found=str(tmp_path / "none"))
    said = lab.turn(5)
    assert len(said.rails) == 9
    assert sum(rail.compute for rail in said.rails) == 8
    assert (said.rails[0].peer_wanted, said.rails[0].peer) == ("leaf-1/17", "")
    assert [one.reason for one in said.unknown] == [f"{tmp_path}/none: No such file or directory"]
    lab.turn(30)
    assert len(lab.asked) == 1
    tree.count("mlx5_4", symbol_error=9)
    assert lab.turn(30).rails[2].errors == {"symbol_error": 9}
    assert lab.asked[1].devices is not None
    assert len(lab.asked[1].devices) == 9
    tree.rail("mlx5_99")  # another adapter: all of it anew
    assert len(lab.turn().rails) == 10
    assert lab.asked[2].devices is not None
    lab.job = JobWatch(8, {"gpus": "1"}, tmp_path, clock.now, 5.0)
    lab.job.running = lambda: [(None, None)]  # type: ignore[method-assign,list-item]
    said = lab.turn(5)
    assert lab.asked[3].devices is None
    assert not any(rail.errors for rail in said.rails)


def test_a_broken_adapter_costs_the_others_one_look(tmp_path: Path, clock: FakeClock) -> None:
    tree = Sys(tmp_path)
    for number in range(4):
        tree.rail(f"mlx5_{number}")
    lab = Lab(tmp_path, clock)
    lab.turn()
    lab.until = 1  # mlx5_0 alone answers, then nothing more
    said = lab.turn()
    assert [one.reason for one in said.unknown] == ["mlx5_1 does not answer"]
    assert [rail.looked_s for rail in said.rails] == [0, 60, 60, 60]
    assert all(r.state == "ACTIVE" for r in said.rails)
    lab.until = 3  # it is read last
    assert [rail.looked_s for rail in lab.turn().rails] == [0, 120, 0, 0]
    lab.until = None
    said = lab.turn()
    assert [rail.looked_s for rail in said.rails] == [0, 180, 0, 0]
    assert [one.reason for one in said.unknown] == ["mlx5_1 does not answer"]
    said = lab.turn(700)
    assert [rail.looked_s for rail in said.rails] == [0, 0, 0, 0]
    assert not said.unknown
    assert lab.by_looker == [False, True, False, False, False], "who hung is read apart from all else"


def test_one_that_blocks_while_it_is_found_out_what_is_there(tmp_path: Path, clock: FakeClock) -> None:
    tree = Sys(tmp_path)
    for number in range(4):
        tree.rail(f"mlx5_{number}")
    lab = Lab(tmp_path, clock)
    for lab.until in (2, 4):  # the second time it comes last
        said = lab.turn()
        assert (said.rails, [one.reason for one in said.unknown]) == ([], ["mlx5_1 does not answer"])
    lab.until = None
    said = lab.turn()
    assert [rail.device for rail in said.rails] == ["mlx5_0", "mlx5_2", "mlx5_3"]
    assert [one.reason for one in said.unknown] == ["mlx5_1 does not answer"]
    assert len(lab.turn(700).rails) == 4


def test_a_topology_file_that_blocks_costs_no_rail(tmp_path: Path, clock: FakeClock) -> None:
    h100(tmp_path)
    lab = Lab(tmp_path, clock, topology="/x")
    lab.until = -1
    said = lab.turn()
    assert (len(said.rails), [one.reason for one in said.unknown]) == (9, [LATE])
    lab.until = None
    assert lab.turn().unknown == []


def test_the_looker_reads_them(tmp_path: Path) -> None:
    h100(tmp_path)
    selector, clock = selectors.DefaultSelector(), Clock()
    probes, got = Probes(selector, clock), list[rails.RailLook]()
    looker = Looker(Proc(), selector, clock, probes, dict)
    devices = ib.devices(ib.folder_of(str(tmp_path)))
    ask = RailAsk(str(tmp_path), devices=devices, compute=sorted(ib.compute(str(tmp_path), devices, ())))
    assert looker.start("rails 0", ask, lambda lines, why: got.append(rails.taken(ask, lines, why))) == ""
    while not got and selector.select(5):
        for key, _ in selector.select(0):
            key.data()
    looker.stop()
    assert (len(got[0].ports), got[0].silent, got[0].unread, got[0].found) == (9, "", set(), None)


def test_a_node_without_adapters_and_a_job_without_gpus(tmp_path: Path, clock: FakeClock) -> None:
    lab = Lab(tmp_path, clock)
    assert (lab.turn().rails, lab.turn().unknown, lab.asked) == ([], [], [])
    h100(tmp_path)
    lab.job.gpus.indices = []
    lab.turn()
    assert lab.asked == []
    lab.job.facts["stall_after"] = "60"
    assert len(lab.turn().rails) == 9


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Sys]:
    return h100(tmp_path / "sys")


def test_read_rail(tree: Sys, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "rail", "--sysfs", str(tree.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("rail: mlx5_0/1 InfiniBand, 400 Gb/s (4X NDR), ACTIVE/LinkUp, "
                        "class MT4129/MT_0000000838/InfiniBand, compute")
    assert lines[2] == "  so far: link_downed 255"
    assert main(["read", "rail", f"--sysfs={tree.root}/class/infiniband", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["reading"]["counters"] == {"mlx5_1/1": {"link_downed": 255}}
    assert [rail["device"] for rail in answer["reading"]["rails"]][-1] == "mlx5_bond_0"
    (tree.root.parent / "bare").mkdir()
    assert main(["read", "rail", "--sysfs", f"{tree.root.parent}/bare"]) == 0
    assert "none: there is no RDMA adapter in" in capsys.readouterr().out
    assert main(["read", "rail", "--sysfs", f"{tree.root}/none", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {"source": "rail", "unknown": f"there is no folder {tree.root}/none"}
    assert main(["read", "process", "1", "--sysfs", "/sys"]) == 2
    assert main(["read", "rail", "--sysfs"]) == 2
