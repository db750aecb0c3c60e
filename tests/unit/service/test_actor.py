"""The actor: what it runs and what it never does, that it ends with its controller, and how root is left behind."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import fake_munge
import pytest
from astraeus_controller.slurm.command import Away, Commands, Refused
from astraeus_controller.slurm.jobs import Jobs
from astraeus_controller.slurm.nodes import Nodes
from astraeus_controller.trust import actor, drop
from astraeus_controller.trust.addresses import Addresses
from astraeus_controller.trust.allowed import TEXT_MAX, allowed
from astraeus_controller.trust.client import ActorClient
from astraeus_controller.trust.munge import Busy, Munge, Unproven
from astraeus_controller.trust.operators import Operators
from astraeus_controller.trust.prover import Claim, Prover
from astraeus_protocol import hello
from fake_slurm import FakeSlurm, install, job
from service_kit import FakeCommands

SECRET = b"s" * 32


class Listed(FakeCommands):
    """A Slurm behind the list."""

    async def run(self, *args: str, timeout_s: float | None = None) -> str:
        assert allowed(args), args
        return await super().run(*args, timeout_s=timeout_s)


def test_everything_that_the_controller_asks_is_on_the_list() -> None:
    commands = Listed(FakeSlurm(job(98, array_job=98, array_task=7), job(123)))
    jobs, nodes = Jobs(commands), Nodes(commands)

    async def ask() -> None:
        await jobs.poll()
        await jobs.show(123)
        await jobs.places(123)
        await jobs.settings()
        await jobs.partition_nodes("main,gpu")
        await jobs.expanded("c4,c[2-3]")
        await jobs.completing_nodes("c[1-4]")
        await jobs.with_gpus()
        await jobs.excluded_texts("98_7")
        await jobs.update("98_7", comment="a\nb c=d|\x1b'\udcff", admin_comment="")
        await jobs.signal("123", "STOP", batch=True)
        await jobs.requeue("123")
        await nodes.show("c1")
        await nodes.comment("c1", "any text; with $(things)\n")
        await nodes.drain("c1", "because")
        await nodes.resume("c1")
        await nodes.operates("alice")
        await Operators(commands, ()).read()
        await Addresses(commands).confirm(Claim("c1", SECRET), "")
    asyncio.run(ask())
    update = ("scontrol", "update", "jobid=100+1", "StartTime=now+10", "ExcNodeList=", "Comment=", "AdminComment=x")
    assert allowed(update)
    for more in (("scancel", "--full", "--signal=USR1", "1"), ("sacct", "-X", "-n", "-P", "-j", "1_2", "-o", "State"),
                 ("sacct", "-X", "-n", "-P", "-j", "1", "-o", "End,Comment"), ("scontrol", "requeue", "7"),
                 ("sacctmgr", "-i", "-Q", "modify", "job", "where", "jobid=1", "set", "Comment=a", "AdminComment=b")):
        assert allowed(more), more


@pytest.mark.parametrize("argv", [
    [], ["sh", "-c", "id"], ["/usr/bin/scontrol", "show", "config"], ["scancel", "123"], ["scancel", "--user=alice"],
    ["scancel", "--signal=KILL", "123"], ["scancel", "--signal=TERM", "--user=alice"], ["scontrol", "shutdown"],
    ["scontrol", "reconfigure"], ["scontrol", "update", "jobid=1"], ["scontrol", "update", "jobid=1", "Priority=9"],
    ["scontrol", "update", "jobid=1", "Comment=a", "TimeLimit=9"],
    ["scontrol", "update", "jobid=1", "Comment=a", "UserID=0"],
    ["scontrol", "update", "jobid=1", "Comment=a", "Comment=b"], ["scontrol", "update", "jobid=1,2", "Comment=a"],
    ["scontrol", "update", "jobid=1\n", "Comment=a"],
    ["scontrol", "update", "nodename=c[1-9]", "state=drain", "reason=x"],
    ["scontrol", "update", "nodename=c1", "state=down", "reason=x"],
    ["scontrol", "update", "nodename=ALL,c1", "state=resume"],
    ["scontrol", "update", "partitionname=main", "state=down"], ["scontrol", "show", "hostnames", "--version"],
    ["sacctmgr", "-i", "-Q", "modify", "job", "where", "jobid=1", "set"],
    ["sacctmgr", "-i", "-Q", "modify", "user", "where", "name=alice", "set", "AdminLevel=Administrator"],
    ["sacctmgr", "-n", "-P", "show", "user", "name=-i", "format=AdminLevel"],
    ["sinfo", "-h", "-N", "-p", "-M", "-o", "%N"], ["squeue", "-h", "-t", "all", "-j", "1", "-o", "%A\n"],
    ["scontrol", "requeue", "1,2"], ["scontrol", "update", "jobid=1", "Comment=" + "x" * TEXT_MAX],
    ["scontrol", "update", "jobid=1", "StartTime=now+1day"], ["scontrol", "update", "jobid=1", "Comment=a\0b"],
    ["sbatch", "job.sh"], ["srun", "id"],
], ids=lambda argv: " ".join(argv)[:60])
def test_what_is_not_on_the_list(argv: list[str]) -> None:
    assert not allowed(argv)


class Site:
    """An actor over a fake Slurm's commands and munge."""

    def __init__(self, folder: Path) -> None:
        self.state = install(folder / "bin", FakeSlurm(job(123)))
        fake_munge.install(folder / "munge")
        self.channel = actor.start(Commands(str(folder / "bin"), 5),
                                   Prover("munge", "", Munge(str(folder / "munge" / "unmunge"))))


def test_the_actor_runs_commands_and_takes_proofs(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def ask() -> None:
        client = ActorClient(site.channel, 5)
        assert (await Jobs(client).settings())["ClusterName"]
        snapshot, shown = await asyncio.gather(Jobs(client).poll(), Jobs(client).show(123))
        assert [row.job for row in snapshot.jobs] == [123]
        assert shown is not None
        with pytest.raises(Refused, match="not on the controller's list"):
            await client.run("scontrol", "shutdown")
        with pytest.raises(Refused, match="Invalid"):
            await client.run("scontrol", "update", "jobid=999", "Comment=x")
        with pytest.raises(Away, match="no answer within"):
            await client.run("squeue", "-h", "-t", "all", "-j", "123", "-o", "%A", timeout_s=0.001)
        text = hello.payload("c1", "0" * 32, SECRET)
        assert await client.node(fake_munge.credential(text)) == Claim("c1", SECRET, "c1", "10.0.0.1")
        with pytest.raises(Unproven, match="uid 1001"):
            await client.node(fake_munge.credential(text, uid=1001))
        asker = await client.reader(fake_munge.credential("astraeus-api 1 GET /stalls", uid=1001))
        assert (asker.uid, asker.request) == (1001, "GET /stalls")
        (tmp_path / "munge" / "dead").touch()
        with pytest.raises(Busy, match="Failed to access"):
            await client.node(fake_munge.credential(text))
    asyncio.run(ask())


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_the_actor_ends_with_its_controller_and_the_controller_hears_of_its_end(tmp_path: Path) -> None:
    before = children()
    site = Site(tmp_path)
    (pid,) = children() - before

    async def ask() -> None:
        client = ActorClient(site.channel, 5)
        assert (await Jobs(client).settings())["ClusterName"]
        os.kill(pid, signal.SIGTERM)  # systemd's goes to both: it serves until the controller has ended
        assert (await Jobs(client).settings())["ClusterName"]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            await client.gone.wait()
        with pytest.raises(Away, match="actor has ended"):
            await client.run("scontrol", "show", "config")
    asyncio.run(ask())
    os.waitpid(pid, 0)
    site = Site(tmp_path)
    (pid,) = children() - before
    site.channel.close()
    end = time.monotonic() + 5
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rubbish_on_the_channel_ends_the_actor(tmp_path: Path) -> None:
    before = children()
    site = Site(tmp_path)
    (pid,) = children() - before
    site.channel.sendall(b"\xff" * 64)
    assert site.channel.recv(1) == b""
    os.waitpid(pid, 0)


# Leaving root

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = pwd.getpwnam("nobody")


@root
def test_who_is_not_there_can_not_be_become() -> None:
    with pytest.raises(drop.DropFault, match="useradd --system --no-create-home nobody-here"):
        drop.user_of("nobody-here")
    assert drop.user_of("root") is None
    assert drop.user_of("nobody") == NOBODY


@root
def test_the_state_folder_is_given_away_and_nothing_that_hangs_on_it(tmp_path: Path) -> None:
    state, secret = tmp_path / "state", tmp_path / "shadow"
    state.mkdir()
    secret.write_text("root's")
    (state / "history.db").touch()
    (state / "link").symlink_to(secret)
    os.link(secret, state / "hard")
    os.mkfifo(state / "pipe")
    drop.own(state, NOBODY)
    assert (state.stat().st_uid, (state / "history.db").stat().st_uid, secret.stat().st_uid) == (NOBODY.pw_uid,
                                                                                                NOBODY.pw_uid, 0)


@root
def test_there_is_no_way_back() -> None:
    program = ("import os, pwd, sys; sys.path[:0] = {!r}; from astraeus_controller.trust import drop\n"
               "drop.become(pwd.getpwnam('nobody'))\n"
               "assert os.getresuid() == ({uid},) * 3 and os.getgroups() == []\n"
               "try: os.setuid(0)\nexcept PermissionError: print('no')\n").replace("{!r}", repr(sys.path)).replace(
                   "{uid}", str(NOBODY.pw_uid))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == ("no\n", "")


def test_sockets_refuse_until_they_listen(tmp_path: Path) -> None:
    from astraeus_controller import peer
    from astraeus_controller.config import Controller

    bound = peer.bind(Controller(listen="127.0.0.1:0", api_socket=str(tmp_path / "api.sock"), api_listen="127.0.0.1:0"))
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(str(tmp_path / "api.sock"))
    listening = bound.listen()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(tmp_path / "api.sock"))
    for one in listening:
        one.close()
