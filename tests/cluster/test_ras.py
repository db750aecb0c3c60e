"""NCCL's own RAS, without a GPU: asked as the monitor asks, on this machine and in a step on real Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes.ras import Policy, look_at_ras
from astraeus_monitor.reading import read_ras
from astraeus_protocol.devices import Ras
from slurm_test_cluster import wait_for
from slurm_test_cluster.frameworks import NoSuchVersion, nccl_library

from .conftest import Site

RANK = Path(__file__).parents[2] / "slurm-test-cluster" / "workloads" / "ras_rank.py"
JSON_ONLY, ALL = Policy(), Policy((2, 24, 0), text=True)


class Local:
    """Ranks on this machine, two "nodes" on loopback."""

    def __init__(self, library: str, folder: Path, port: int, ranks: int = 4) -> None:
        env = {**os.environ, "NCCL_RAS_ADDR": f"localhost:{port}"}
        self.folder, self.port = folder, port
        self.ranks = [subprocess.Popen(
            [sys.executable, RANK, "--library", library, "--folder", folder, "--rank", str(rank), "--ranks", str(ranks),
             "--address", f"127.0.0.{1 + 2 * rank // ranks}"],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for rank in range(ranks)]
        assert self.ranks[0].stdout is not None
        assert self.ranks[0].stdout.readline().startswith(b"step ")

    def ask(self, policy: Policy = ALL) -> Ras:
        proc = Proc()
        found = [(one.pid, stat.start) for one in self.ranks if (stat := proc.stat(one.pid))]
        return next(iter(look_at_ras(proc, found, policy, {}))).said

    def end(self) -> None:
        for one in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            one.wait(10)


def library(version: str, *, inside: bool) -> str:
    try:
        return nccl_library(version, inside)
    except NoSuchVersion as fault:
        pytest.skip(str(fault))


@pytest.fixture(params=["2.30.7", "2.28.9"])
def gang(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Local]:
    made = Local(library(request.param, inside=False), tmp_path / "gang", 15000 + os.getpid() % 1000)
    yield made
    made.end()


def test_a_real_server_tells_who_is_stopped_and_killed(gang: Local) -> None:
    said = gang.ask()
    assert (said.unknown, said.of, said.comms) == ("", 1, [])
    if said.version == "2.28.9":
        assert "is not asked: the site asks from 2.29.2 on" in gang.ask(JSON_ONLY).unknown
    gang.ranks[2].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    said = gang.ask()
    assert time.monotonic() - began < 25
    [lost] = said.comms[0].missing
    assert (lost.rank, lost.pid, lost.host) == (2, gang.ranks[2].pid, "127.0.0.2")
    assert [group.n for group in said.comms[0].groups if said.comms[0].missing_n] == [3]
    gang.ranks[3].kill()
    said = wait_for(lambda: (one := gang.ask()).comms and one.comms[0].missing_n == 2 and one, 30, what="two missing")
    assert {one.rank for one in said.comms[0].missing} == {2, 3}


def test_a_real_server_tells_who_is_behind(gang: Local) -> None:
    (gang.folder / "hang-1").touch()
    said = wait_for(lambda: (one := gang.ask()).comms and len(one.comms[0].groups) == 2 and one, 10, what="apart")
    time.sleep(1)
    assert gang.ask().comms == said.comms, "it stands still"
    most, late = said.comms[0].groups
    assert (most.n, [one.pid for one in late.ranks]) == (3, [gang.ranks[1].pid])
    assert late.counts["AllReduce"] == most.counts["AllReduce"] - 1
    text = read_ras.text(read_ras.ask(read_ras.places(f"localhost:{gang.port}")))  # type: ignore[arg-type]
    assert f"1 rank launched AllReduce #{late.counts['AllReduce']} (behind): 1 (127.0.0.1, PID " in text


def test_another_job_s_answer_on_the_same_port_is_not_ours(tmp_path: Path) -> None:
    port, path = 16000 + os.getpid() % 300, library("2.30.7", inside=False)
    ours, other = Local(path, tmp_path / "a", port), Local(path, tmp_path / "b", port)
    try:
        (ours.folder / "hang-1").touch()
        wait_for(lambda: (one := ours.ask()).comms and one.comms[0].groups, 20, what="ours is apart")
        for _ in range(12):
            assert not other.ask().comms, "nobody of the other's is behind"
            assert ours.ask().comms
    finally:
        ours.end()
        other.end()


def fake_gang(site: Site, *args: str) -> tuple[int, str]:
    """A gang of 8 on 4 nodes with NCCL's RAS; its folder."""
    folder = f"/home/alice/ras-{time.monotonic_ns()}"
    path = library("2.30.7", inside=True)
    job = site.submit(f"srun python3 -u /opt/workloads/ras_rank.py --library {path} --folder {folder}\n", "-N4", "-n8",
                      "--ntasks-per-node=2", "-o", "/home/alice/out-%j.txt", "--stall-after=100s", *args)
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    site.settled(job, ranks=8)
    return job, folder


def wait_old(site: Site, job: int) -> None:
    """A gang of less than a minute is not asked."""
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 40, 60, every=5, what="a minute of the gang")


def of_ras(site: Site, job: int) -> str:
    """What ``astraeus progress`` says of it."""
    out = site.cluster.run("ctl", ["astraeus", "progress", str(job)]).out
    return next((line.strip() for line in out.splitlines() if "NCCL RAS" in line), "")


def test_the_rank_behind_is_named(site: Site) -> None:
    job, folder = fake_gang(site)
    victim = site.cluster.rank_pid(job, 0, 5)
    wait_old(site, job)
    site.cluster.run(victim.node, ["touch", f"{folder}/hang-5"], check=True)
    said = wait_for(lambda: "is behind" in of_ras(site, job) and of_ras(site, job), 150, every=2, what="RAS's sentence",
                    saw=lambda: (of_ras(site, job), site.progress(job)["steps"]))
    assert re.fullmatch(rf"NCCL RAS: rank 5 \(node {victim.node}, PID {victim.pid}\) is behind: it has launched "
                        r"AllReduce #\d+, the others AllReduce #\d+", said)
    stalled = site.wait_finding("stalled", job, timeout=150)
    assert (stalled["worker"], stalled["machine"], stalled["pid"]) == (f"{job}-5", victim.node, victim.pid)
    assert "NCCL RAS: rank 5 " in stalled["stall"]["evidence"]
    site.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.full
@pytest.mark.parametrize("signal_name", ["STOP", "KILL"])
def test_the_missing_rank_is_named(site: Site, signal_name: str) -> None:
    job, _ = fake_gang(site)
    wait_old(site, job)
    victim = site.cluster.signal_rank(job, 0, 5, signal_name)
    said = wait_for(lambda: " is missing" in of_ras(site, job) and of_ras(site, job), 150, every=2,
                    what="RAS's sentence", saw=lambda: (of_ras(site, job), site.progress(job)["steps"]))
    assert re.fullmatch(rf"NCCL RAS: rank 5 \(node {victim.node}, PID {victim.pid}\) is missing: collective #\d+ "
                        r"\(AllReduce\) in progress on the others", said)
    stalled = site.wait_finding("stalled", job, timeout=150)
    assert stalled["worker"] == f"{job}-5"
    assert "NCCL: NCCL RAS: rank 5 " in stalled["stall"]["evidence"]
    site.cluster.run("ctl", ["scancel", str(job)])
