"""Who asks the API and what each sees: tokens, MUNGE from elsewhere, proxies, private jobs; the seed's curl lines."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import fake_munge
import pytest
from astraeus_cli import main as cli
from astraeus_controller.api.problem import Problem
from astraeus_controller.trust import users
from astraeus_controller.trust.munge import Munge
from astraeus_controller.trust.prover import Prover
from astraeus_controller.trust.readers import Reader, Readers, may_see_evidence
from astraeus_controller.trust.tokens import LIFE_S, BadToken, Tokens, kept_key
from fake_slurm import job
from test_service import World, free_port, stuck, until

ALICE, BOB = 1001, 1002
KEY = b"t" * 32


def test_tokens_end_and_can_not_be_made_up() -> None:
    tokens = Tokens(KEY)
    token, end = tokens.make(ALICE, now=1000)
    assert (tokens.uid(token, now=1000), end) == (ALICE, 1000 + LIFE_S)
    for bad, when in ((token, end), (token.replace("1001", "0"), 1000), (token.replace(str(end), str(end + 9)), 1000),
                      (token[:-1], 1000), ("astraeus1.0.9999999999.", 1000), ("", 1000), ("a" * 5000, 1000),
                      ("astraeus1.٣.9.x", 1000)):
        with pytest.raises(BadToken):
            tokens.uid(bad, now=when)
    with pytest.raises(BadToken):
        Tokens(b"u" * 32).uid(token, now=1000)


def test_the_key_of_tokens_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "token.key"
    key = kept_key(path)
    assert (kept_key(path), path.stat().st_mode & 0o777) == (key, 0o600)
    path.chmod(0o644)  # somebody may have read it
    assert kept_key(path) != key


def readers(tmp_path: Path, **values: Any) -> Readers:
    fake_munge.install(tmp_path)
    return Readers(**({"privileged": {0}, "operators": lambda: {"bob", "carol"}, "private": lambda: True,
                       "prover": Prover("munge", "", Munge(str(tmp_path / "unmunge"))), "tokens": Tokens(KEY),
                       "proxies": ["10.0.0.5"]} | values))


def request(host: str = "10.0.0.5", path: str = "/stalls", query: str = "", **headers: str) -> Any:
    return SimpleNamespace(headers=headers, client=SimpleNamespace(host=host), scope={}, method="GET",
                           url=SimpleNamespace(path=path, query=query))


def test_a_proxys_word_counts_from_listed_addresses_only(tmp_path: Path) -> None:
    async def check() -> None:
        one = readers(tmp_path)
        named = {"X-Remote-User": "root"}
        assert await one.of(request(**named)) == Reader("root", 0, is_operator=True)
        assert await one.of(request("10.0.0.6", **named)) is None
        assert await one.of(request("127.0.0.1", **named)) is None
        assert await one.of(request()) is None
        stranger = await one.of(request(**{"X-Remote-User": "nobody-here"}))
        assert stranger == Reader("nobody-here", -1)
        assert not one.may_see(stranger, ALICE)
        assert not may_see_evidence(stranger, None)
        assert (await one.of(request(**{"X-Remote-User": "carol"}))).is_operator
        for site, good in (("same-origin", True), ("cross-site", False)):
            post = request(**named, **{"sec-fetch-site": site})
            post.method = "POST"
            if good:
                assert (await one.of(post)).is_operator
            else:
                with pytest.raises(Problem, match="another site's page"):
                    await one.of(post)
    asyncio.run(check())


def test_munge_opens_the_request_that_it_was_made_for(tmp_path: Path) -> None:
    async def check() -> None:
        one = readers(tmp_path)

        def made(said: str, uid: int = ALICE) -> dict[str, str]:
            return {"authorization": f"MUNGE {fake_munge.credential(said, uid=uid)}"}
        good = made("astraeus-api 1 GET /incidents?all")
        asked = request("10.0.0.9", "/incidents", "all", **good)
        reader = await one.of(asked)
        assert (reader.uid, reader.is_operator) == (ALICE, False)
        with pytest.raises(Problem, match="Replayed") as fault:
            await one.of(asked)
        assert fault.value.status == 401
        with pytest.raises(Problem, match="made for another request"):
            await one.of(request(**made("astraeus-api 1 GET /runs/1/progress")))
        with pytest.raises(Problem, match="made for something else"):
            await one.of(request(**made("what srun tells slurmctld")))
        (tmp_path / "dead").touch()
        with pytest.raises(Problem, match="Failed to access") as fault:
            await one.of(request(**made("astraeus-api 1 GET /stalls")))
        assert fault.value.status == 503
    asyncio.run(check())


def test_a_directory_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "DEADLINE_S", 0.05)
    ends = Event()

    def hangs(uid: int) -> str:
        ends.wait(10)
        return "alice"

    async def check() -> None:
        known = users.Users()
        assert (await known.name(0), await known.uid("root"), await known.uid("nobody-here")) == ("root", 0, None)
        monkeypatch.setattr(users, "_name", hangs)
        assert await known.name(ALICE) == "uid 1001"
        assert await known.name(0) == "root", "it is kept"
        ends.set()
        monkeypatch.setattr(users, "DEADLINE_S", 10)
        assert await known.name(ALICE) == "alice"
    asyncio.run(check())


@pytest.mark.parametrize(("private", "uid", "owner", "sees", "evidence"), [
    (True, ALICE, ALICE, True, True), (True, ALICE, BOB, False, False), (False, ALICE, BOB, True, False),
    (True, 0, BOB, True, True), (True, ALICE, None, False, False), (False, ALICE, None, False, False)])
def test_who_sees_what(tmp_path: Path, private: bool, uid: int, owner: int | None, sees: bool, evidence: bool) -> None:
    one = readers(tmp_path, private=lambda: private)
    reader = asyncio.run(one.reader(uid))
    assert (one.may_see(reader, owner), may_see_evidence(reader, owner)) == (sees, evidence)
    assert not one.may_see(None, owner)


def curl(*words: str, **env: str) -> tuple[int, Any]:
    """The seed's line, by a shell as a user has it."""
    done = subprocess.run(["sh", "-c", " ".join(words) + " -w '\n%{http_code}'"], env=os.environ | env,
                          capture_output=True, text=True, timeout=20, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
async def test_both_curl_lines_of_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    fake_munge.install(tmp_path / "munge", uid=ALICE)
    monkeypatch.setenv("PATH", f"{tmp_path}/munge:{os.environ['PATH']}")
    port = free_port()
    world = World(tmp_path, api_listen=f"127.0.0.1:{port}")
    world.install(job(123, name="llm"), job(124, name="theirs"))
    world.prover = Prover("munge", "", Munge("unmunge"))
    url = f"http://127.0.0.1:{port}"
    async with world.controller() as service:
        await world.munged(stuck(restart=False, uid=ALICE), stuck(restart=False, number=124, uid=BOB))
        await until(lambda: len(service.passes.memory) == 2)
        await until(lambda: all(held.row for held in service.fleet.jobs.values()))

        def check() -> None:
            assert curl(f"curl -sS {url}/stalls")[0] == 401
            assert cli.main(["token", "--socket", url]) == 0  # from another host, with MUNGE
            token = capsys.readouterr().out.strip()
            env = {"ASTRALYX_API": url, "ASTRALYX_TOKEN": token}
            status, stalls = curl('curl -sS "$ASTRALYX_API/stalls" -H "Authorization: Bearer $ASTRALYX_TOKEN"', **env)
            assert (status, [one["run"] for one in stalls["stalled"]]) == (200, ["123"])
            status, progress = curl(
                'curl -sS "$ASTRALYX_API/runs/llm/progress" -H "Authorization: Bearer $ASTRALYX_TOKEN"', **env)
            assert (status, progress["run"], progress["run_name"]) == (200, "123", "llm")
            assert curl(f'curl -sS {url}/runs/theirs/progress -H "Authorization: Bearer {token}"')[0] == 400
            for path in ("/runs/124/progress", "/runs/124/history", "/runs/124/stacks"):
                assert curl(f'curl -sS {url}{path} -H "Authorization: Bearer {token}"')[0] == 404
            assert curl(f'curl -sS {url}/stalls -H "Authorization: Bearer {token}x"')[0] == 401
            assert curl(f"curl -sS {url}/stalls -H 'Authorization: Basic eDp4'")[0] == 401
            assert curl(f"curl -sS {url}/stalls -H 'X-Remote-User: root'")[0] == 401
            assert curl(f'curl -sS -X POST {url}/nodes/c1/drain -H "Authorization: Bearer {token}"')[0] == 403
            assert curl(f"curl -sS {url}/healthz")[0] in (200, 503)
            old = Tokens(service.api.readers.tokens.key).make(ALICE, now=time.time() - LIFE_S)[0]
            status, problem = curl(f'curl -sS {url}/stalls -H "Authorization: Bearer {old}"')
            assert (status, problem["detail"]) == (401, "the token has expired; make a new one: astraeus token")
            assert cli.main(["stalls", "--socket", url]) == 0
            assert capsys.readouterr().out.startswith("STALLED  123-0 ")
        await asyncio.to_thread(check)


async def test_where_slurm_hides_no_jobs_all_see_them_but_not_their_evidence(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to ask as another user")
    world = World(tmp_path)
    world.private = "accounts,usage"
    world.install(job(123))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    async with world.controller() as service:
        await world.node.send(stuck(restart=False, uid=ALICE))
        await until(lambda: service.passes.memory)
        status, stalls = await asyncio.to_thread(world.get_as, BOB, "/stalls")
        (found,) = stalls["stalled"]
        assert (status, found["run"]) == (200, "123")
        for path in (f"/evidence/{found['id']}", "/runs/123/stacks"):
            assert (await asyncio.to_thread(world.get_as, BOB, path))[0] == 404
        assert (await asyncio.to_thread(world.get_as, ALICE, f"/evidence/{found['id']}"))[0] == 200
