"""The whole controller on real sockets, over a fake Slurm's commands: from a report to a restart, and its API."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fake_munge
import msgspec
import pytest
from astraeus_cli import main as cli
from astraeus_controller import peer, recording
from astraeus_controller.config import parse
from astraeus_controller.history.store import Store
from astraeus_controller.replay import replay
from astraeus_controller.service import Service
from astraeus_controller.slurm.command import Commands
from astraeus_controller.trust.munge import Munge
from astraeus_controller.trust.prover import Prover
from astraeus_protocol import hello, signing
from astraeus_protocol import report as wire
from fake_slurm import FakeSlurm, install, job

KEY = b"k" * 48
TOML = """
[controller]
listen = "127.0.0.1:{port}"
api_socket = "{folder}/api.sock"
api_listen = "{api_listen}"
state = "{folder}/state"
[slurm]
bin = "{folder}/bin"
poll_s = 5
write_interval_s = 0
[watch]
mode = "{mode}"
[restart]
backoff_s = 0
stop_file_wait_s = 5
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


ASK = """
import os, socket, sys
uid = int(sys.argv[3])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
connection.connect(sys.argv[1])
connection.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n".encode())
while chunk := connection.recv(65536):
    sys.stdout.buffer.write(chunk)
"""


class Node:
    """A monitor's side of the wire."""

    def __init__(self, port: int, name: str = "c1") -> None:
        self.port, self.name, self.seq = port, name, 0
        self.shared, self.session = KEY, b""
        self.replies: list[wire.Reply] = []

    def report(self, *jobs: wire.Job, **values: Any) -> wire.Report:
        self.seq += 1
        return wire.Report(**({"node": self.name, "boot": "b", "session": "s", "seq": self.seq,
                               "nonce": f"n{self.seq}", "at": time.time(), "cluster": "test",
                               "jobs": list(jobs)} | values))

    def post(self, report: wire.Report, key: bytes = b"", body: bytes | None = None, *, at: float | None = None,
             credential: str = "") -> tuple[int, bytes]:
        """A report, with a hello where there is no session. ``at``: seconds since boot."""
        body = wire.ENCODER.encode(report) if body is None else body
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        if not self.session and not credential:
            credential, self.session = hello.with_key(self.shared, self.name, os.urandom(16).hex(), time.time())
        stamp = f"{(time.clock_gettime(time.CLOCK_BOOTTIME) if at is None else at) * 1000:.0f}"
        headers = {signing.NODE_HEADER: report.node, signing.NONCE_HEADER: report.nonce, signing.TIME_HEADER: stamp,
                   signing.HEADER: signing.sign(key or self.session, "report", report.node, report.nonce, body, stamp)}
        if credential:
            headers[signing.CREDENTIAL_HEADER] = credential
        connection.request("POST", "/v1/report", body, headers)
        reply = connection.getresponse()
        answer = reply.read()
        assert reply.headers["Connection"] == "close"
        connection.close()
        if reply.status == 200:
            assert signing.verify(key or self.session, "reply", report.node, report.nonce, answer,
                                  reply.headers[signing.HEADER])
            self.replies.append(wire.REPLY_DECODER.decode(answer))
        return reply.status, answer

    async def send(self, *jobs: wire.Job) -> wire.Reply:
        status, answer = await asyncio.to_thread(self.post, self.report(*jobs))
        assert status == 200, answer
        return self.replies[-1]


def stuck(quiet_s: float = 200, *, restarts: int = 0, number: int = 123, stop_file: bool = False,
          restart: bool = True, uid: int = 0) -> wire.Job:
    """A batch job with one GPU that has been quiet and idle for so long."""
    settings = {"stall_after": "60"} | ({"restart_stalled": "1"} if restart else {})
    worker = wire.Worker(
        rank=0, pid=77, start=1, output_s=quiet_s, cpu_idle_s=quiet_s, writing_s=0, began_s=1000,
        gpus=[wire.Gpu(index=0, busy=0, idle_s=quiet_s, ever_busy=True)],
        processes=[wire.Process(pid=77, start=1, state="S", comm="python")])
    return wire.Job(job=number, nonce=f"a{restarts}", restarts=restarts, uid=uid, user="alice", partition="main",
                    nodelist="c1", gpus=[0], settings=settings, began_s=1000, stop_file=stop_file,
                    steps=[wire.Step(step="batch", nodelist="c1", workers=[worker], output_s=quiet_s)])


class World:
    """A running controller and its fake Slurm."""

    def __init__(self, folder: Path, mode: str = "act", api_listen: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.config = parse(TOML.format(port=self.port, folder=folder, mode=mode, api_listen=api_listen))
        self.state = folder / "bin" / "state.json"
        self.node = Node(self.port)
        self.socket = str(folder / "api.sock")
        self.recording = folder / "recording"
        self.prover: Any = None
        self.private = "jobs,usage"

    def install(self, *jobs: dict[str, Any]) -> None:
        install(self.folder / "bin", FakeSlurm(*jobs))

    def written(self) -> list[list[str]]:
        """Commands so far that are no mere question."""
        log = json.loads(self.state.read_text())["log"]
        return [argv for argv in log if argv[0] == "scancel" or {"update", "requeue", "modify"} & set(argv)]

    def job(self, number: int = 123) -> dict[str, Any]:
        with open(self.state, encoding="utf-8") as file:
            return dict(json.load(file)["jobs"][str(number)])

    @contextlib.asynccontextmanager
    async def controller(self) -> AsyncIterator[Service]:
        with open(self.recording, "w", buffering=1) as file:
            store = Store(self.folder / "history.db")
            writer = recording.Writer(file)
            writer.meta("test", 0, time.time())
            (self.folder / "report.key").write_bytes(KEY)
            (self.folder / "report.key").chmod(0o600)
            self.node.session = b""  # a controller that is started anew knows none
            service = Service(self.config, store, Commands(self.config.slurm.bin, 5), self.prover or Prover(
                                  self.config.trust.auth, str(self.folder / "report.key"), Munge("unmunge")),
                              {"ClusterName": "test", "KillWait": "8 sec", "PrivateData": self.private}, writer)
            stop = asyncio.Event()
            task = asyncio.create_task(service.run(stop))
            try:
                await until(lambda: Path(self.socket).exists() or task.done())
                assert not task.done(), task
                yield service
            finally:
                stop.set()
                await task
                store.close()

    async def munged(self, *jobs: wire.Job) -> None:
        """A report of a node that proves itself with MUNGE."""
        self.node.session = b"m" * 32
        made = fake_munge.credential(hello.payload(self.node.name, os.urandom(16).hex(), self.node.session))
        status, answer = await asyncio.to_thread(self.node.post, self.node.report(*jobs), credential=made)
        assert status == 200, answer

    def get(self, path: str) -> tuple[int, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(self.socket)
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            text = b""
            while chunk := connection.recv(65536):
                text += chunk
        return _answer(text)

    def get_as(self, uid: int, path: str) -> tuple[int, Any]:
        """The same as another user, by a program of its own: a fork of this process, which has threads, may hang."""
        done = subprocess.run([sys.executable, "-ISc", ASK, self.socket, path, str(uid)], capture_output=True,
                              timeout=20, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return _answer(done.stdout)

    async def ask(self, path: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self.get, path)


def _answer(text: bytes) -> tuple[int, Any]:
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def until(true: Callable[[], object], seconds: float = 15) -> None:
    """Waits for a condition with a deadline."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)


async def test_from_a_report_to_the_next_attempt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, comment="mine"))
    async with world.controller() as service:
        await world.node.send(stuck())
        await until(lambda: "cause=stalled" in world.job().get("comment", ""))
        assert world.job()["comment"].startswith("mine [astraeus: stalled since ")
        await until(lambda: service.stops.jobs)
        reply = await world.node.send(stuck())
        assert reply.next_s == 2
        (command,) = reply.commands
        assert isinstance(command, wire.StopFile)
        assert (command.job, command.nonce, command.lines["cause"], command.lines["grace_seconds"]) == (
            123, "a0", "stalled", "8")
        reply = await world.node.send(stuck(stop_file=True))
        assert reply.commands == []
        await until(lambda: world.job().get("requeued") == 1)
        await until(lambda: world.job().get("state") == "RUNNING" and world.job()["restarts"] == 1)
        await world.node.send(stuck(1, restarts=1))
        await until(lambda: world.job().get("comment") == "mine" and not service.store.open_intents())
        kinds = [event.kind for event in service.store.events(job=123)]
        assert kinds[:5] == ["stalled", "restart_intended", "stopping", "requeued", "scheduled"]
        assert sorted(kinds[5:]) == ["restarted", "stalled_over"]  # a sweep sees the one, the restart the other
        assert ", restarted 1/10]" in world.job()["admin_comment"]
        assert service.store.open_findings() == []
        status, history = await world.ask("/runs/123/history")
        assert (status, [event["kind"] for event in history["events"]]) == (200, kinds)
        assert history["events"][0]["message"].startswith("Stalled: No progress for 3m: no output since ")
    with open(world.recording) as lines:
        kinds = [found["kind"] for found in replay(lines, world.config)]
    assert "open" in kinds
    assert "action" in kinds


async def test_progress_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, comment="mine"))
    async with world.controller():
        await world.node.send(stuck(restart=False))
        await until(lambda: "[astraeus: stalled since" in world.job().get("comment", ""))
        assert "cause" not in world.job()["comment"]
        await world.node.send(stuck(0, restart=False))
        await until(lambda: world.job().get("comment") == "mine")
        assert world.job()["admin_comment"].endswith(", progress again]")
        assert world.job()["requeued"] == 0


async def test_observe_writes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, mode="observe")
    world.install(job(123, comment="mine"))
    async with world.controller() as service:
        await world.node.send(stuck())
        await until(lambda: len(service.store.events(job=123)) == 2)
        assert [e.message.split(":")[0] for e in service.store.events(job=123)] == ["Stalled", "restart declined"]
        assert (await world.ask("/stalls"))[1]["stalled"][0]["worker"] == "123-0"
    assert world.written() == []


async def test_goes_on_after_a_restart_of_the_controller(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, comment="mine"))
    async with world.controller() as service:
        await world.node.send(stuck())
        await until(lambda: service.stops.jobs)
    async with world.controller() as service:
        await until(lambda: service.stops.jobs)
        assert (await world.node.send(stuck())).commands != []
        await world.node.send(stuck(stop_file=True))
        await until(lambda: world.job().get("state") == "RUNNING" and world.job()["restarts"] == 1)
        await world.node.send(stuck(1, restarts=1))
        await until(lambda: world.job().get("comment") == "mine" and not service.store.open_intents())
    assert world.job()["requeued"] == 1


async def test_a_foreign_comment_gets_its_cause_by_reply(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, comment='{"a": 1}'))
    async with world.controller() as service:
        await world.node.send(stuck())
        await until(lambda: service.stops.jobs)
        await world.node.send(stuck(stop_file=True))
        await until(lambda: world.job().get("state") == "RUNNING" and world.job()["restarts"] == 1)
        reply = await world.node.send(stuck(1, restarts=1))
        assert reply.causes == {"123": "stalled"}
        await until(lambda: not service.store.open_intents())
        assert (await world.node.send(stuck(1, restarts=1))).causes == {"123": "stalled"}
        assert (await world.node.send(stuck(1, restarts=2))).causes == {"123": ""}
        assert world.job()["comment"] == '{"a": 1}'
        assert "annotation_skipped" in [event.kind for event in service.store.events(job=123)]


async def test_interactive_is_declined(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, batch=0))
    async with world.controller():
        await world.node.send(stuck())
        await until(lambda: "not restarted: it is interactive" in world.job().get("comment", ""))
        assert world.job()["requeued"] == 0
        history = (await world.ask("/runs/123/history"))[1]["events"]
        assert history[-1]["message"] == "restart declined: it is interactive: Slurm requeues only batch jobs"


async def test_what_is_not_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123))
    async with world.controller():
        node = world.node

        def check() -> None:
            report = node.report()
            assert node.post(report, key=b"x" * 48)[0] == 401
            node.session = b""
            assert node.post(report)[0] == 200
            assert node.post(report)[0] == 409
            assert node.post(msgspec.structs.replace(report, seq=0, nonce="other"))[0] == 409
            assert node.post(node.report(session="another life"))[0] == 401, "a monitor's life has a key of its own"
            assert node.post(node.report(v=wire.WIRE + 1))[0] == 400
            assert node.post(node.report(v=wire.WIRE - 1))[0] == 200
            assert node.post(node.report(), body=b"[]")[0] == 400
            assert too_long(world.port) == 413
            assert node.post(node.report())[0] == 200
        await asyncio.to_thread(check)


async def test_a_node_of_another_cluster_is_refused_and_told_of_once(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    world.install(job(123))
    async with world.controller() as service:
        def check() -> None:
            for _ in range(3):
                status, answer = world.node.post(world.node.report(stuck(), cluster="other"))
                assert (status, answer) == (400, (
                    b"the node's jobs are of cluster 'other', this controller is that of 'test'; write the address of "
                    b"the node's own controller into [monitor] controller\n"))
            assert world.node.post(world.node.report(cluster=""))[0] == 200, "a monitor that has met no job"
            assert world.node.post(world.node.report(cluster="TEST"))[0] == 200, "Slurm writes it in lower case"
        await asyncio.to_thread(check)
        assert service.fleet.jobs == {}
    assert sum("of cluster 'other'" in line for line in caplog.messages) == 1


async def test_who_only_connects_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "PER_HOST", 3)
    monkeypatch.setattr(peer, "CONNECTION_S", 1.0)
    world = World(tmp_path)
    world.install(job(123))
    async with world.controller():
        held = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(4)]
        async with asyncio.timeout(5):
            await asyncio.gather(*(read.read() for read, _ in held), return_exceptions=True)  # all are cut
        await until(lambda: not peer.PeerProtocol.held)
        await world.node.send()
    for _, write in held:
        write.close()


def too_long(port: int) -> int:
    """Status of the answer to a report that only says that it is too long."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nContent-Length: {wire.MAX_BYTES + 1}\r\n\r\n"
        connection.sendall(head.encode())
        return int(connection.recv(4096).split()[1])


async def test_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.install(job(123, name="l\x1b[31mm"), job(124, array_job=120, array_task="4"), job(125))
    async with world.controller() as service:
        await until(lambda: service._runs)
        await world.node.send(stuck(restart=False), stuck(10, number=124))
        await until(lambda: service.fleet.jobs[124].facts and service.passes.memory)
        status, stalls = await world.ask("/stalls")
        assert status == 200
        (one,) = stalls["stalled"]
        assert (one["run"], one["worker"], one["machine"], one["stall"]["action"]) == ("123", "123-0", "c1", "alert")
        assert one["stall"]["since"].endswith("Z")
        assert (stalls["watched"], stalls["unwatched"], stalls["blind"]) == (2, 0, 1)
        assert (one["id"], one["stall"]["cause"], one["stall"]["rests_on"]) == (1, None, {"by": None, "where": None})
        status, progress = await world.ask("/runs/120_4/progress")
        (worker,) = progress["workers"]
        assert (status, worker["worker"], worker["state"], worker["finding"]) == (200, "120_4-0", "Running", None)
        assert worker["gpus"][0]["index"] == 0
        assert 45 < worker["stalled_in_s"] <= 50
        assert (worker["metric"], worker["nccl"]) == (None, None)
        assert (await world.ask("/runs/123.batch/progress"))[0] == 200
        for path, code, words in (("/runs/123.9/progress", 404, "has no step 9"), ("/runs/x/progress", 400, "write"),
                                  (f"/runs/{'9' * 5000}/history", 400, "write"),
                                  ("/runs/120+1/progress", 404, "no job 120+1"),
                                  ("/runs/125/progress", 404, "no monitor has reported it"),
                                  ("/runs/125/progress", 404, "or hold another report key"),
                                  ("/runs/999/history", 404, "no job 999"), ("/nothing", 404, "ask GET /stalls"),
                                  ("/evidence/x", 400, "write its number"), ("/evidence/7", 404, "finding 7 is kept")):
            status, problem = await world.ask(path)
            assert (status, problem["status"]) == (code, code), path
            assert words in problem["detail"], path
        health = (await world.ask("/healthz"))[1]
        assert (health["status"], health["jobs"], health["cluster"]) == ("ok", 2, "test")
        await check_command_line(world, capsys)


async def check_command_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The same through ``astraeus``."""
    async def run(*args: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(cli.main, [*args, "--socket", world.socket])
        out, err = capsys.readouterr()
        return code, out, err
    code, out, _ = await run("stalls")
    assert code == 0
    assert out.startswith("STALLED  123-0 (run 123 l\\x1b[31mm, on c1) since ")
    assert ": no output since " in out
    code, out, _ = await run("progress", "120_4")
    head, _, titles, row = out.splitlines()
    assert head.startswith("120_4 llm: RUNNING on c[1-4]; watched: ")
    assert titles.split() == ["WORKER", "NODE", "PID", "STATE", "OUTPUT", "GPUS", "STALLED", "IN"]
    assert row.split()[:4] == ["120_4-0", "c1", "77", "Running"]
    code, out, _ = await run("history", "123")
    assert "  123-0  Stalled: No progress for 3m: " in out
    code, out, err = await run("progress", "999")
    assert (code, out) == (3, "")
    assert err.startswith("astraeus: no job 999 ")
    code, out, _ = await run("evidence", "1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("1: STALLED  123-0 (run 123 l\\x1b[31mm, on c1) since ")
    assert lines[2].startswith("found at ")
    assert lines[2].endswith("; open; attempt 1")
    assert lines[3:5] == ["cause: not known", "rank: rank 0, stalled on its own"]
    assert lines[-2].split() == ["RANK", "NODE", "PID", "STATE", "OUTPUT", "GPUS"]
    assert lines[-1].split() == [">", "0", "c1", "77", "S", "3m", "0:0%"]
    kept = json.loads((await run("evidence", "1", "--json"))[1])
    assert kept["readings"]["steps"][0]["workers"][0]["gpus"][0]["ever_busy"]
    assert (await run("evidence", "2"))[0] == 3
    code, out, _ = await run("stalls", "--json")
    assert json.loads(out)["stalled"][0]["worker"] == "123-0"


async def test_users_see_their_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to ask as another user")
    world = World(tmp_path)
    world.install(job(123), job(124))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    async with world.controller() as service:
        await world.node.send(stuck(restart=False, uid=1001), stuck(restart=False, number=124, uid=1002))
        await until(lambda: len(service.passes.memory) == 2)
        ids = {one["run"]: one["id"] for one in (await world.ask("/stalls"))[1]["stalled"]}
        assert (await asyncio.to_thread(world.get_as, 1001, f"/evidence/{ids['123']}"))[1]["run"] == "123"
        for number in (ids["124"], 999):  # the same words for another's and for none
            status, problem = await asyncio.to_thread(world.get_as, 1001, f"/evidence/{number}")
            assert (status, problem["detail"].split(";")[0]) == (
                404, f"no evidence of a finding {number} of yours is kept")
        assert (await world.ask(f"/evidence/{ids['124']}"))[0] == 200

        status, stalls = await asyncio.to_thread(world.get_as, 1001, "/stalls")
        assert ([one["run"] for one in stalls["stalled"]], stalls["blind"]) == (["123"], None)
        assert (await asyncio.to_thread(world.get_as, 1001, "/runs/123/progress"))[0] == 200
        for path in ("/runs/124/progress", "/runs/124/history"):
            status, problem = await asyncio.to_thread(world.get_as, 1001, path)
            assert status == 404
            assert problem["detail"].startswith("no job 124 of yours")
        (incident,) = (await asyncio.to_thread(world.get_as, 1001, "/incidents"))[1]["incidents"]
        assert ([one["run"] for one in incident["jobs"]], incident["others"]) == (["123"], 1)
        assert (await asyncio.to_thread(world.get_as, 1003, "/incidents?all"))[1] == {"incidents": []}
        assert len((await world.ask("/stalls"))[1]["stalled"]) == 2
