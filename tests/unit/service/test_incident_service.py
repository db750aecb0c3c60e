"""An incident through the whole controller: its comments, its events, the API, and a controller that starts anew."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from astraeus_cli import main as cli
from astraeus_controller.config import Incidents
from astraeus_controller.history.store import Store
from astraeus_controller.rules.limits import INCIDENT_REST_S
from fake_slurm import job
from test_service import World, stuck, until

NOTE = "incident 1: stalled on the same nodes as other jobs; nothing is stopped]"


def updates(world: World, number: int) -> int:
    log = json.loads(world.state.read_text())["log"]
    return sum(argv[:2] == ["scontrol", "update"] and argv[2] == f"jobid={number}" for argv in log)


async def test_two_jobs_on_one_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.install(*(job(n, comment="mine") for n in (123, 124, 125)))
    async with world.controller() as service:
        await until(lambda: service._runs)
        await world.node.send(stuck(), stuck(number=124))
        await until(lambda: NOTE in world.job(123).get("comment", "") and NOTE in world.job(124)["comment"])
        await until(lambda: all(service.store.events(job=n)[-1].kind == "restart_declined" for n in (123, 124)))
        assert service.store.events(job=124)[-1].message == (
            "restart declined: it is part of incident 1 (2 jobs stalled on c1), so nothing is stopped")
        status, answer = await world.ask("/incidents")
        (one,) = answer["incidents"]
        assert (status, one["incident"], one["key"], one["cause"], one["subject"], one["closed_at"], one["others"]) == (
            200, 1, "test/incident/1", "nodes", "c1", None, 0)
        assert [(j["run"], j["stalled"]) for j in one["jobs"]] == [("123", True), ("124", True)]
        assert [f["incident"] for f in (await world.ask("/stalls"))[1]["stalled"]] == [1, 1]
        assert await asyncio.to_thread(cli.main, ["incidents", "--socket", world.socket]) == 0
        out = capsys.readouterr().out
        assert out.startswith("INCIDENT 1  since ")
        assert out.endswith(": 2 jobs stalled on c1: 123, 124\n")
        assert await asyncio.to_thread(cli.main, ["stalls", "--socket", world.socket]) == 0
        assert capsys.readouterr().out.count("; incident 1\n") == 2
        written = updates(world, 123)

    async with world.controller() as service:
        assert [one.id for one in service.incidents.open] == [1]
        await world.node.send(stuck(), stuck(number=124), stuck(number=125, restart=False))
        await until(lambda: NOTE in world.job(125).get("comment", ""))
        assert [member.job for member in service.incidents.open[0].jobs] == [123, 124, 125]
        assert updates(world, 123) == written, "a job that joins changes no other job's comment"
        events = service.store.events(run="incident 1")
        assert [(e.kind, e.message) for e in events] == [
            ("incident", "Incident 1: 3 jobs stalled on c1; none of them is stopped")]
        assert events[0].details["incident"]["jobs"] == ["123", "124", "125"]  # type: ignore[index]
        await world.node.send(*(stuck(0, number=n) for n in (123, 124, 125)))
        await until(lambda: not service.incidents.open)
        await until(lambda: world.job(125)["comment"] == world.job(123)["comment"] == "mine")
        assert world.job(123)["admin_comment"].endswith(", progress again, incident 1]")
        assert [e.kind for e in service.store.events(run="incident 1")] == ["incident", "incident_over"]
        over = service.store.events(run="incident 1")[-1].message
        assert over.startswith("Incident 1 over after ")
        assert over.endswith("; it held 3 jobs")
        assert (await world.ask("/incidents"))[1] == {"incidents": []}
        assert await asyncio.to_thread(cli.main, ["incidents", "--socket", world.socket]) == 0
        assert capsys.readouterr() == ("", "no incident is open\n")
        assert await asyncio.to_thread(cli.main, ["incidents", "--all", "--socket", world.socket]) == 0
        assert ", over: 3 jobs stalled on c1: 123, 124, 125\n" in capsys.readouterr().out
        history = (await world.ask("/runs/125/history"))[1]["events"]
        assert [(e["kind"], e["message"]) for e in history if "incident" in e["kind"]] == [
            ("incident", "Part of incident 1: 3 jobs stalled on c1"), ("incident_over", "Incident 1 over")]
        assert history[0]["kind"] == "stalled"
    assert [world.job(n)["requeued"] for n in (123, 124)] == [0, 0]


async def test_the_last_one_is_told_that_it_is_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123), job(124))
    async with world.controller() as service:
        await world.node.send(stuck(restart=False), stuck(number=124, restart=False))
        await until(lambda: NOTE in world.job(124).get("comment", ""))
        await world.node.send(stuck(0, restart=False), stuck(number=124, restart=False))
        await until(lambda: service.incidents.hanging(service.incidents.open[0]) == (124,))
        service.judging._after_sweep()
        assert len(service.incidents.open) == 1
        service.incidents._few[1] -= INCIDENT_REST_S
        service.judging._after_sweep()
        assert service.store.events(run="incident 1")[-1].message.endswith("; it held 2 jobs; still stalled: 124")
        await until(lambda: "incident" not in world.job(124)["comment"])
        assert world.job(124)["comment"].endswith(" UTC, rank 0 on c1]")


async def test_a_site_whose_small_jobs_share_nodes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.config = msgspec.structs.replace(world.config, incidents=Incidents(by_nodes=False))
    world.install(job(123), job(124))
    async with world.controller() as service:
        await world.node.send(stuck(), stuck(number=124))
        await until(lambda: service.stops.jobs)
        assert service.incidents.open == []


async def test_observe_writes_nothing_and_still_tells(tmp_path: Path) -> None:
    world = World(tmp_path, mode="observe")
    world.install(job(123, comment="mine"), job(124, comment="mine"))
    async with world.controller() as service:
        await world.node.send(stuck(), stuck(number=124))
        await until(lambda: [len(one.jobs) for one in service.incidents.open] == [2])
        await until(lambda: all(len(service.store.events(job=n)) == 2 for n in (123, 124)))
    assert world.written() == []
    store = Store(tmp_path / "history.db")
    assert [e.kind for e in store.events(run="incident 1")] == ["incident"]
    store.close()
