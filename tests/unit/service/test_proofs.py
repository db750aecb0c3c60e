"""How nodes prove themselves to the controller, and what is refused: forged, replayed, held back, another's."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import fake_munge
import pytest
from astraeus_controller.trust.addresses import Addresses
from astraeus_controller.trust.munge import Busy, Decoded, Munge, Unproven, parse
from astraeus_controller.trust.prover import Claim, Prover
from astraeus_controller.trust.sessions import STALE_S, Late, Sessions
from astraeus_protocol import hello, signing
from fake_slurm import FakeSlurm, job
from service_kit import FakeCommands
from test_service import World, stuck

SECRET, NONCE = b"s" * 32, "0" * 32
HELLO = hello.payload("c1", NONCE, SECRET)


def prover(folder: Path, auth: str = "munge") -> Prover:
    fake_munge.install(folder)
    return Prover(auth, str(folder / "report.key"), Munge(str(folder / "unmunge")))


def test_what_unmunge_prints() -> None:
    text = fake_munge.REPLIED.format(status="Success (0)", host="c1.site", address="10.0.0.1", at=1796129605, now=0,
                                     name="alice", uid=1001, length=9, payload="a\n\nUID: 0\n")
    assert parse(text) == Decoded(1001, "c1.site", "10.0.0.1", 1796129605, "a\n\nUID: 0\n")
    with pytest.raises(Unproven, match="MUNGE: Expired credential"):
        parse(text.replace("Success (0)", "Expired credential (15)"))
    with pytest.raises(Busy, match="Failed to access"):
        parse("", "unmunge: Error: Failed to access socket")
    with pytest.raises(Busy, match="another shape"):
        parse("STATUS: Success (0)\n\n")


@pytest.mark.parametrize(("payload", "uid", "said"), [
    (HELLO, 1001, "uid 1001 is not root"), ("whatever slurmctld is told", 0, "made for something else"),
    (HELLO.replace("c1", "../c1"), 0, "made for something else"),
    ("astraeus-api 1 GET /stalls", 0, "made for something else")])
def test_only_root_speaks_for_a_node(tmp_path: Path, payload: str, uid: int, said: str) -> None:
    with pytest.raises(Unproven, match=said):
        asyncio.run(prover(tmp_path).node(fake_munge.credential(payload, uid=uid)))


def test_a_hello_counts_once(tmp_path: Path) -> None:
    async def check() -> None:
        one, credential = prover(tmp_path), fake_munge.credential(HELLO, host="c1.site")
        assert await one.node(credential) == Claim("c1", SECRET, "c1.site", "10.0.0.1")
        with pytest.raises(Unproven, match="Replayed"):
            await one.node(credential)
        for used in tmp_path.glob("used-*"):
            used.unlink()  # a munged that was started anew forgets
        with pytest.raises(Unproven, match="was here before"):
            await one.node(credential)
        with pytest.raises(Unproven, match="no MUNGE credential"):
            await one.node("MUNGE:" + "x" * 5000)
        with pytest.raises(Unproven, match="with MUNGE here"):
            await one.node(hello.with_key(b"k" * 40, "c1", NONCE, time.time())[0])
    asyncio.run(check())


def test_unmunge_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astraeus_controller.trust.munge.DEADLINE_S", 0.2)
    (tmp_path / "unmunge").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "unmunge").chmod(0o755)
    began = time.monotonic()
    with pytest.raises(Busy, match=r"no answer within 0.2 s"):
        asyncio.run(Munge(str(tmp_path / "unmunge")).decode("MUNGE:x:"))
    assert time.monotonic() - began < 5
    with pytest.raises(Busy, match="can't run /nowhere"):
        asyncio.run(Munge("/nowhere").decode("MUNGE:x:"))


def test_who_waits_too_long_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 nodes prove themselves anew within seconds: what a monitor has given up is not worth a child."""
    monkeypatch.setattr("astraeus_controller.trust.munge.WAITS_S", 0.0)
    fake_munge.install(tmp_path)

    async def check() -> None:
        munge = Munge(str(tmp_path / "unmunge"))
        made = [fake_munge.credential("x") for _ in range(8)]
        done = await asyncio.gather(*(munge.decode(one) for one in made), return_exceptions=True)
        assert [isinstance(one, Busy) for one in done] == [True] * 8
        monkeypatch.setattr("astraeus_controller.trust.munge.WAITS_S", 60.0)
        assert (await munge.decode(made[0])).uid == 0, "it was not used up"
    asyncio.run(check())


def test_shared_keys(tmp_path: Path) -> None:
    async def check() -> None:
        one, old, new = prover(tmp_path, "auto"), b"o" * 40, b"n" * 40
        assert not one.by_key()
        path = tmp_path / "report.key"
        path.write_bytes(old + b"\n" + new + b"\n")
        path.chmod(0o600)
        for number, key in enumerate((old, new)):
            credential, session = hello.with_key(key, "c1", f"{number:032}", time.time() + 0.01)
            assert (await one.node(credential)).key == session
            with pytest.raises(Unproven, match="was here before"):
                await one.node(credential)
        path.write_bytes(new + b"\n")  # the rotation is over
        with pytest.raises(Unproven, match="none of those that the controller has"):
            await one.node(hello.with_key(old, "c1", NONCE, time.time())[0])
        with pytest.raises(Unproven, match="off by 3600 s"):
            await one.node(hello.with_key(new, "c1", NONCE, time.time() + 3600)[0])
        with pytest.raises(Unproven, match="older than this controller"):
            await one.node(hello.with_key(new, "c1", NONCE, one.started - 1)[0])
        with pytest.raises(Unproven, match="shared key here"):
            await one.node(fake_munge.credential(HELLO))
        path.chmod(0o644)
        with pytest.raises(signing.KeyFault, match="chmod 600"):
            await one.node(hello.with_key(new, "c1", NONCE, time.time())[0])
    asyncio.run(check())


@pytest.mark.parametrize(("node", "host", "address", "peer", "said"), [
    ("c1", "c1", "10.0.0.1", "", ""), ("c1", "c1.site", "10.0.0.1", "", ""), ("c2", "???", "10.0.0.2", "", ""),
    ("c2", "c1", "10.0.0.1", "10.0.0.2", "no address of node c2"),
    ("c2", "???", "10.0.0.9", "", "no address of node c2"),
    ("c9", "c9", "10.0.0.9", "", "Slurm knows no node c9"),
    # A host whose own name leads to loopback, as Debian's hosts file has it: the connection says more.
    ("c2", "localhost", "127.0.1.1", "10.0.0.2", ""), ("c2", "c2", "127.0.1.1", "10.0.0.1", "no address of node c2"),
    ("c2", "", "", "", "")])
def test_a_proof_comes_from_the_node(node: str, host: str, address: str, peer: str, said: str) -> None:
    slurm = FakeSlurm(job(123), addresses={"c2": "10.0.0.2"})
    known = Addresses(FakeCommands(slurm))
    claim = Claim(node, SECRET, host, address)
    if not said:
        asyncio.run(known.confirm(claim, peer))
        return
    with pytest.raises(Unproven, match=said):
        asyncio.run(known.confirm(claim, peer))


def test_where_slurm_is_away_a_node_is_told_to_come_again() -> None:
    slurm = FakeSlurm(job(123), away=True)
    known = Addresses(FakeCommands(slurm), check=False)
    with pytest.raises(Busy, match="can't be told"):
        asyncio.run(known.confirm(Claim("c1", SECRET), ""))
    slurm.state["away"] = False
    asyncio.run(known.confirm(Claim("c1", SECRET, "elsewhere", "10.9.9.9"), ""))
    slurm.state["away"] = True
    asyncio.run(known.confirm(Claim("c1", SECRET), ""))


def test_what_was_held_back_is_stale_whatever_the_time_of_day() -> None:
    now = [1000.0]
    sessions = Sessions(lambda: now[0])
    session = sessions.begin(SECRET)
    sessions.fresh(session, "500000")  # a node that booted later
    sessions.keep("c1", session, "m", 1)
    now[0] += 100
    sessions.fresh(session, "600000")
    now[0] += STALE_S + 1
    with pytest.raises(Late, match="the report is 46 s old"):
        sessions.fresh(session, "600000")
    for rubbish in ("", "-1", "1e9", "٣", "9" * 16):
        with pytest.raises(Late, match="does not say when"):
            sessions.fresh(session, rubbish)
    now[0] += hello.TAKEN_S
    with pytest.raises(Late, match="too old") as late:
        sessions.of("c1")
    assert late.value.status == 401


async def test_over_the_wire(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123))
    world.prover = prover(tmp_path / "munge")
    async with world.controller() as service:
        node = world.node

        def post(credential: str, key: bytes = SECRET, name: str = "c1", **values: Any) -> tuple[int, str]:
            node.name, node.session = name, key
            status, answer = node.post(node.report(stuck(), **values), credential=credential)
            return status, answer.decode()

        def fresh(**values: Any) -> str:
            return fake_munge.credential(hello.payload("c1", os.urandom(16).hex(), SECRET), **values)

        def check() -> None:
            user = fake_munge.credential(HELLO, uid=1001)
            assert post(user) == (401, "uid 1001 is not root, who alone speaks for a node\n")
            assert post(fresh(), name="c2") == (401, "the credential is another node's\n")
            assert "no address of node c1" in post(fresh(host="c2", address="10.9.9.9"))[1]
            assert post(fresh(), key=b"x" * 32)[0] == 401, "a credential alone signs nothing"
            assert service.fleet.jobs == {}
            assert post(fresh(), session="life")[0] == 200
            report = node.report(stuck(), session="life")
            assert node.post(report)[0] == 200
            assert node.post(report)[0] == 409
            late = time.clock_gettime(time.CLOCK_BOOTTIME) - STALE_S - 5
            assert node.post(node.report(stuck(), session="life"), at=late)[0] == 401
            assert node.post(node.report(stuck(), session="life"), key=os.urandom(32))[0] == 401
            assert node.post(node.report(stuck(), session="life"))[0] == 200
            (tmp_path / "munge" / "dead").touch()
            status, said = post(fresh())
            assert (status, "Failed to access" in said) == (503, True)
        await asyncio.to_thread(check)
        assert set(service.fleet.nodes) == {"c1"}
