"""Stacks through the whole controller: asked of nodes, judged, kept, and shown to whom they belong."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from astraeus_cli import main as cli
from astraeus_controller.config import parse
from astraeus_controller.fleet import Fleet
from astraeus_controller.history.store import Store
from astraeus_controller.stacks import AGAIN_S, APART_S, WAIT_S, StackBook
from astraeus_protocol import report as wire
from astraeus_protocol.readings import Stack, ThreadStack
from fake_slurm import job
from msgspec import structs
from service_kit import finding
from test_service import World, stuck, until

LOCK = Stack(77, 1, "0", 0, frames=["next_batch (loader.py:41)"],
                  threads=[ThreadStack("w0", 7, ["wait (t:1)"])])


def gang(rank: int, *, stacks: wire.Stacks | None = None, gone_s: float = 100, quiet_s: float = 200) -> wire.Job:
    """One rank's node of a gang of four that waits."""
    process = wire.Process(pid=70 + rank, start=1, state="S", comm="python", pulse=0, pulse_base=60,
                           pulse_gone_s=gone_s, ties=[10 + rank, 10 + (rank + 1) % 4])
    worker = wire.Worker(rank=rank, pid=70 + rank, start=1, output_s=quiet_s, cpu_idle_s=0, writing_s=0, began_s=1000,
                         processes=[process])
    return wire.Job(job=123, nonce=f"a{rank}", uid=1001, user="alice", partition="main", nodelist="c[1-4]", nodes=4,
                    settings={"stall_after": "900"}, began_s=1000, stacks=stacks,
                    steps=[wire.Step(step="0", nodes=4, tasks=4, nodelist="c[1-4]", workers=[worker])])


def told(rank: int, ask: str, frame: str) -> wire.Stacks:
    return wire.Stacks(ask, taken=[Stack(70 + rank, 1, "0", rank, frames=[frame])])


class Desk:
    """A book over a fleet that hears of a job's nodes, at times of a test's choice."""

    def __init__(self) -> None:
        self.now, self.seq = 1000.0, 0
        self.fleet = Fleet(parse(""), "test", 1_790_000_000.0)
        self.store = Store(":memory:")
        self.book = StackBook(self.fleet, self.store, lambda: self.now)

    def report(self, node: str, *jobs: wire.Job) -> list[wire.TakeStacks]:
        """What the node is asked in the reply."""
        self.seq += 1
        made = wire.Report(node, "b", f"s-{node}", self.seq, f"n{self.seq}", self.now, jobs=list(jobs))
        self.fleet.report(made, self.now)
        self.book.heard(made)
        return [one for one in self.book.commands(made) if isinstance(one, wire.TakeStacks)]


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for rank in range(4):
        desk.report(f"c{rank + 1}", gang(rank))
    return desk


def test_a_suspicion_is_asked_about_once(desk: Desk) -> None:
    suspect = finding(kind="suspect", rank=None, worker="123", key="k1")
    desk.book.suspect({123}, [suspect], set())
    [command] = desk.report("c1", gang(0))
    assert (command.job, command.nonce, command.step, command.native) == (123, "a0", "0", False)
    assert desk.report("c1", gang(0)) == [command], "until it has answered"
    assert desk.report("c1", gang(0, stacks=told(0, command.ask, "f (a.py:1)"))) == []
    assert desk.book.jobs == {123}
    for rank in (1, 2, 3):
        desk.report(f"c{rank + 1}", gang(rank, stacks=told(rank, command.ask, "f (a.py:1)")))
    assert desk.book.jobs == set()
    kept = desk.store.stacks.last(123)
    assert kept
    assert (kept.finding, kept.done, sorted(kept.answers)) == ("k1", True, ["c1", "c2", "c3", "c4"])
    desk.now += 30
    stalled = finding(kind="stalled", rank=None, worker="123", key="k2")
    desk.book.suspect({123}, [stalled], set())
    assert desk.book.jobs == set(), "the same, grown into a stall"
    desk.now += AGAIN_S
    desk.book.suspect({123}, [structs.replace(stalled, rank=5)], set())
    assert desk.book.jobs == set(), "somebody stands out by now"


def test_again_while_nobody_stands_out_and_anew_for_the_next(desk: Desk) -> None:
    suspect = finding(kind="suspect", rank=None, key="k1")
    begun = []
    for _ in range(40):
        desk.now += 60
        for rank in range(4):
            desk.report(f"c{rank + 1}", gang(rank))
        desk.book.suspect({123}, [suspect], set())
        reading = desk.book.last(123)
        if reading and reading.ask not in begun:
            begun.append(reading.ask)
        desk.now += WAIT_S
        desk.book.last(123)
    assert len(begun) == 3
    desk.book.suspect({123}, [], set())
    desk.report("c1", gang(0))
    desk.book.suspect({123}, [suspect], {123})
    assert desk.book.jobs == set(), "it is being stopped"
    desk.book.suspect({123}, [suspect], set())
    assert desk.book.jobs == {123}


def test_a_job_that_is_gone_is_forgotten(desk: Desk) -> None:
    desk.book.suspect({123}, [finding(kind="suspect", rank=None, key="k1")], set())
    assert desk.book._asked
    del desk.fleet.jobs[123]
    desk.book.suspect({124}, [], set())
    assert not desk.book._asked


def test_a_person(desk: Desk) -> None:
    with pytest.raises(LookupError):
        desk.book.person(123, "123", "7", native=False)
    first = desk.book.person(123, "123", "", native=False)
    assert first
    assert desk.book.person(123, "123", "0", native=False) is first, "joined"
    assert desk.book.person(123, "123", "", native=True) is None
    desk.report("c1", gang(0, stacks=told(0, first.ask, "f (a.py:1)")))
    desk.now += WAIT_S + 1
    assert desk.book.last(123) is first
    assert (first.done, desk.book.waiting_for(first)) == (True, ["c2", "c3", "c4"])
    desk.report("c1", gang(0))
    again = desk.book.person(123, "123", "", native=True)
    assert again
    assert (again.native, again.nodes) == (True, ["c1"]), "the others are silent"
    assert desk.report("c1", gang(0))[0].native
    desk.report("c1", gang(0, stacks=wire.Stacks(again.ask, native=True, unknown="off")))
    desk.now += APART_S - 1
    assert desk.book.person(123, "123", "", native=True) is again


def test_a_persons_reading_is_as_good_for_a_finding(desk: Desk) -> None:
    first = desk.book.person(123, "123", "", native=False)
    assert first
    desk.book.suspect({123}, [finding(kind="suspect", rank=5, key="k1")], set())
    for rank in range(4):
        desk.report(f"c{rank + 1}", gang(rank, stacks=told(rank, first.ask, "f (a.py:1)")))
    assert desk.book.jobs == set()
    assert (first.done, first.finding) == (True, "k1")
    desk.book.suspect({123}, [finding(kind="suspect", rank=5, key="k1")], set())
    assert desk.book.jobs == set()
    desk.now += APART_S
    again = desk.book.person(123, "123", "", native=True)
    assert desk.book.last(123) is again
    assert desk.book.last(123, first.ask) is first
    assert desk.book.last(124, first.ask) is None


def test_a_person_who_asks_while_a_finding_is_asked_about(desk: Desk) -> None:
    desk.book.suspect({123}, [finding(kind="suspect", rank=5, key="k1")], set())
    of_step = desk.book.last(123)
    assert of_step
    assert of_step.step == "0"
    assert desk.book.person(123, "123", "0", native=False) is of_step
    assert desk.book.person(123, "123", "0", native=True) is None
    of_all = desk.book.person(123, "123", "", native=False)
    assert of_all
    assert (of_all.step, of_all.finding) == ("", "k1")
    assert [command.ask for command in desk.report("c1", gang(0))] == [of_all.ask]


def test_too_large_to_keep_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = desk.book.person(123, "123", "", native=False)
    assert first
    first.answers["c1"] = wire.Stacks(first.ask, taken=[LOCK])
    assert desk.store.stacks.put(first)
    monkeypatch.setattr("astraeus_controller.history.stacks.MAX_BYTES", 300)
    assert desk.store.stacks.put(first)
    kept = desk.store.stacks.last(123)
    assert kept
    assert kept.answers["c1"].taken == [structs.replace(LOCK, threads=[])]
    monkeypatch.setattr("astraeus_controller.history.stacks.MAX_BYTES", 50)
    assert not desk.store.stacks.put(first)


def post(world: World, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("x")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(world.socket)
    connection.request("POST", path)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


async def test_from_a_suspicion_to_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four ranks wait; their stacks are asked for, and one of them is elsewhere."""
    world = World(tmp_path, "observe")
    world.install(job(123, nodes=4))
    nodes = [type(world.node)(world.port, f"c{rank + 1}") for rank in range(4)]
    async with world.controller() as service:
        asked: set[str] = set()
        end = time.monotonic() + 10
        while not asked:
            assert time.monotonic() < end
            replies = [await node.send(gang(rank)) for rank, node in enumerate(nodes)]
            asked = {command.ask for reply in replies for command in reply.commands
                     if isinstance(command, wire.TakeStacks)}
        assert [finding.rank for finding in service.passes.memory] == [None]
        for rank, node in enumerate(nodes):
            place = "next_batch (loader.py:41)" if rank == 2 else "all_reduce (train.py:88)"
            await node.send(gang(rank, stacks=told(rank, *asked, place)))
        await until(lambda: service.passes.memory[0].rank is not None)
        [named] = service.passes.memory
        assert (named.kind, named.rank, named.node, named.pid) == ("suspect", 2, "c3", 72)
        assert "3 ranks in all_reduce (train.py:88) · rank 2 in next_batch (loader.py:41)" in named.said
        status, body = await world.ask("/runs/123/stacks")
        assert (status, body["done"], body["finding"]) == (200, True, named.key.replace("#2", ""))
        status = await asyncio.to_thread(cli.main, ["stacks", "123", "--last", "--socket", world.socket])
        assert status == 0
        assert capsys.readouterr().out.splitlines()[:4] == [
            "3 ranks in all_reduce (train.py:88) · rank 2 in next_batch (loader.py:41)", "",
            "ranks 0,1,3 on c[1-2,4]:", "    all_reduce (train.py:88)"]


async def test_whose_they_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123))
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    async with world.controller():
        await world.node.send(stuck(1, uid=1001))
        assert (await asyncio.to_thread(world.get_as, 1001, "/runs/123/stacks"))[0] == 409
        assert (await asyncio.to_thread(world.get_as, 65534, "/runs/123/stacks"))[0] == 404
        status, body = await asyncio.to_thread(post, world, "/runs/123/stacks")
        assert (status, body["done"], body["waiting_for"]) == (200, False, ["c1"])
        reply = await world.node.send(stuck(1, uid=1001))
        assert (reply.next_s, [command.ask for command in reply.commands]) == (2, [body["ask"]])  # type: ignore[union-attr]
        assert (await asyncio.to_thread(post, world, "/runs/123.9/stacks"))[0] == 409
        assert (await asyncio.to_thread(post, world, "/runs/99/stacks"))[0] == 404


def test_a_rank_at_a_debuggers_prompt_is_under_a_debugger(desk: Desk) -> None:
    for rank in range(4):
        frames = ["select (selectors.py:468)", "Pdb.interaction (pdb.py:363)"] if rank == 2 else ["recv (a.py:3)"]
        desk.report(f"c{rank + 1}", gang(rank, stacks=wire.Stacks("a", taken=[
            Stack(70 + rank, 1, "0", rank, frames=frames)])))
    [picture] = desk.fleet.pictures(desk.now, [123])
    assert [w.processes[0].traced for w in picture.job.steps[0].workers] == [False, False, True, False]
    desk.report("c3", gang(2, gone_s=0))
    [picture] = desk.fleet.pictures(desk.now, [123])
    assert not any(w.processes[0].traced for w in picture.job.steps[0].workers)
