"""Rails: what one is made for, and which signs are told of it; through the fleet, as reports bring them."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_controller.api.app import views
from astraeus_controller.config import Config, ConfigFault, parse
from astraeus_controller.fleet import Fleet
from astraeus_controller.rules.rails import Sign, signs
from astraeus_protocol.devices import Rail
from astraeus_protocol.readings import Unknown
from astraeus_protocol.report import Job, Process, Report, Step, Worker

KIND = "MT4129/MT_0000000838/InfiniBand"


def rail(device: str = "mlx5_0", rate: float | None = 400, **more: Any) -> Rail:
    values: dict[str, Any] = {"layer": "InfiniBand", "rate_gb": rate, "width": 4, "speed": "NDR", "state": "ACTIVE",
                              "phys_state": "LinkUp", "compute": True, "kind": KIND, "down_s": 0}
    return Rail(device, **values | more)


class World:
    """Nodes that report rails of job 7, or of others."""

    def __init__(self, config: Config | None = None) -> None:
        self.fleet, self.seq = Fleet(config or Config(), "lab", 1e6), 0

    def report(self, node: str, *rails: Rail, job: int = 7, **more: Any) -> World:
        self.seq += 1
        step = Step("0", tasks=1, workers=[Worker(0, pid=9, processes=[Process(9, 9)])])
        said = Job(job, "n", nodes=2, rails=list(rails), steps=[step], **more)
        self.fleet.report(Report(node, "b", "s", self.seq, "x", 0.0, jobs=[said]), 100.0 + self.seq)
        return self

    def signs(self, job: int = 7) -> list[Sign]:
        [picture] = self.fleet.pictures(100.0 + self.seq, [job])
        return signs(picture.job)

    def said(self) -> list[str]:
        return [f"{sign.node} {sign.sign}: {sign.words}" for sign in self.signs()]


def peers(world: World, *rates: float, **more: Any) -> World:
    """Another job's node with so many rails."""
    return world.report("c9", *(rail(f"mlx5_{place}", rate, **more) for place, rate in enumerate(rates)), job=9)


def test_a_lost_lane_is_named_by_its_peers() -> None:
    world = peers(World(), 100, 100, 100)
    world.report("c1", rail(rate=25, width=1, speed="EDR"), rail("mlx5_1", 100), rail("mlx5_2", 100))
    assert world.said() == ["c1 rate: rail mlx5_0: 25 Gb/s (1X EDR), made for 100 Gb/s as 5 others of its class"]
    assert world.signs()[0].numbers == {"rate_gb": 25, "made_for_gb": 100, "peers": 5}


@pytest.mark.parametrize(("rates", "own"), [
    ((400, 400), 200),  # two peers do not tell
    ((400, 400, 200, 200), 200),  # who is right?
    ((400, 400, 200, 200), 100),
    ((200, 200, 200), 400),  # better than the others
    ((400, 400, 400), None), ((400, 400, 400), 0)])
def test_what_nobody_can_tell(rates: tuple[float, ...], own: float | None) -> None:
    assert peers(World(), *rates).report("c1", rail(rate=own)).said() == []


def test_only_rails_that_are_comparable_and_up_are_peers() -> None:
    world = peers(World(), 400, 400, 400, kind="MT4129/MT_0000000838/Ethernet")
    assert world.report("c1", rail(rate=200)).said() == [], "another class"
    world = peers(World(), 400, 400, 400, state="DOWN")
    assert world.report("c1", rail(rate=200)).said() == [], "not up"
    world = peers(World(), 400, 400, 400, compute=False)
    assert world.report("c1", rail(rate=200)).said() == [], "they carry other data"
    world = peers(World(), 400, 400, 400)
    assert world.report("c1", rail(rate=200, compute=False)).said() == [], "it does"
    assert world.report("c1", rail(rate=200, looked_s=300)).said() == [], "not read for long"
    assert world.report("c1", rail(rate=200)).report("c1", rail(rate=200)).said() == [
        "c1 rate: rail mlx5_0: 200 Gb/s (4X NDR), made for 400 Gb/s as 3 others of its class"], "told twice, one rail"


def test_the_sites_word_goes_first() -> None:
    config = parse('[watch]\nrail_rates = ["MT4129/*=400"]\n[partition.split]\nrail_rates = ["*/InfiniBand=200"]\n')
    world = World(config).report("c1", rail(rate=200), partition="gpu")
    assert world.said() == ["c1 rate: rail mlx5_0: 200 Gb/s (4X NDR), made for 400 Gb/s by the site's word"]
    assert peers(World(config), 400, 400, 400).report("c1", rail(rate=200), partition="split").said() == []
    for wrong in ("400", "x=", "x=0", "=400"):
        with pytest.raises(ConfigFault, match="write a class and what it is made for in Gb/s"):
            parse(f'[watch]\nrail_rates = ["{wrong}"]\n')


def test_nodes_that_are_gone_are_no_peers() -> None:
    world = peers(World(), 400, 400, 400).report("c1", rail(rate=200))
    assert len(world.signs()) == 1
    peers(world, 400, 400)
    assert world.signs() == []
    world.fleet.rails.forget("c1")
    world.fleet.rails.forget("c9")
    assert (world.fleet.rails.nodes, world.fleet.rails.classes) == ({}, {})


@pytest.mark.parametrize(("more", "words"), [
    ({"state": "DOWN", "phys_state": "Polling", "down_s": 60}, "is DOWN, Polling for 60 s"),
    ({"state": "INIT", "down_s": 0.2}, "is INIT, LinkUp"),
    ({"state": "", "phys_state": "Polling", "down_s": 90}, "is not up, Polling for 90 s"),
    ({"state": "GONE", "phys_state": "", "down_s": 120}, "is gone from the node for 120 s"),
    ({"state": "", "phys_state": "", "down_s": None}, None),
    ({"state": "", "phys_state": "ACTIVE"}, None), ({"state": "ACTIVE_DEFER"}, None), ({"phys_state": "ACTIVE"}, None)])
def test_down(more: dict[str, Any], words: str | None) -> None:
    world = World().report("c1", rail(port=2, **more))
    assert world.said() == ([f"c1 down: rail mlx5_0/2: {words}"] if words else [])


def test_a_port_that_never_was_up() -> None:
    dead = rail(rate=2.5, state="DOWN", phys_state="Polling", down_s=None)
    world = World().report("c1", dead)
    for node in ("c2", "c3", "c4"):
        assert world.said() == []
        world.report(node, rail(), job=9)
    assert world.said() == ["c1 down: rail mlx5_0: is DOWN, Polling since the job began, up on 3 other nodes"]
    for node in ("c5", "c6", "c7"):
        world.report(node, dead, job=9)
    assert world.said() == [], "a port that is used on some nodes only"


def test_errors_of_the_job() -> None:
    fabric = rail(errors={"packet_seq_err": 4830, "roce_adp_retrans": 498}, errors_s=12)
    other = rail("mlx5_1", errors={"out_of_sequence": 5057, "req_transport_retries_exceeded": 8}, errors_s=3)
    world = World().report("c1", fabric, rail("mlx5_1"), rail("mlx5_2")).report("c2", rail(), other, rail("mlx5_2"))
    assert world.said() == [
        "c1 errors: rail mlx5_0: errors grow: packet_seq_err +4830, roce_adp_retrans +498",
        "c2 errors: rail mlx5_1: errors grow: req_transport_retries_exceeded +8, out_of_sequence +5057"]
    assert world.signs()[0].numbers == {"packet_seq_err": 4830, "roce_adp_retrans": 498}


@pytest.mark.parametrize(("mine", "others", "age"), [
    ({"symbol_error": 9}, {}, 10),  # part of a healthy link
    ({"symbol_error": 900}, {}, 600),  # long ago
    ({"out_of_sequence": 9000}, {"out_of_sequence": 1000}, 10)])  # as congestion does to all
def test_errors_that_say_nothing(mine: dict[str, int], others: dict[str, int], age: float) -> None:
    rails = [rail(f"mlx5_{n}", errors=others, errors_s=1 if others else None) for n in (1, 2, 3)]
    assert World().report("c1", rail(errors=mine, errors_s=age), *rails).said() == []


def test_miswired_only_where_both_are_known() -> None:
    rails = [rail(peer="leaf-1/17", peer_wanted="leaf-2/17"), rail("mlx5_1", peer_wanted="leaf-2/18"),
             rail("mlx5_2", peer="leaf-1/19"), rail("mlx5_3", peer="leaf-1/20", peer_wanted="leaf-1/20")]
    assert World().report("c1", *rails).said() == ["c1 miswired: rail mlx5_0: is wired to leaf-1/17, not to leaf-2/17"]


def test_a_healthy_node_with_a_bond_shows_nothing_and_all_of_it_by_the_api() -> None:
    bond = rail("mlx5_bond_0", 200, width=2, layer="Ethernet", kind="MT4129/MT_0000000838/Ethernet", compute=False)
    world = World().report("c1", *(rail(f"mlx5_{n}") for n in (0, 1, 4, 5, 6, 7, 8, 9)), bond,
                           unknown=[Unknown("rail", "mlx5_2 does not answer")])
    assert world.said() == []
    [picture] = world.fleet.pictures(110, [7])
    answer = views.progress(picture, [])
    assert [one["device"] for one in answer["rails"]][-1] == "mlx5_bond_0"
    first = answer["rails"][0]
    assert (first["node"], first["class"], first["rate_gb"], first["made_for_gb"], first["off"]) == (
        "c1", KIND, 400, 400, [])
    assert answer["rails_unknown"] == [{"node": "c1", "reason": "mlx5_2 does not answer"}]
