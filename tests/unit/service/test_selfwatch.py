"""The watcher watched: what counts as truly watched, when it is blind, what systemd and Prometheus are told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from astraeus_cli import text
from astraeus_controller.config import Config
from astraeus_controller.fleet import Fleet
from astraeus_controller.judging.watched import Watch
from astraeus_controller.selfwatch import heartbeat, metrics, notify
from astraeus_controller.selfwatch.coverage import Coverage, Covering
from astraeus_controller.selfwatch.health import Seen, faults, passes_run
from astraeus_controller.slurm import parse
from astraeus_controller.slurm.types import JobRow, Snapshot
from astraeus_protocol import report as wire
from fake_slurm import job
from prometheus_client.parser import text_string_to_metric_families
from test_service import World, stuck, until

FULL = Coverage(2, 2, {})


class Site:
    """A fleet on a clock that tests move. Jobs 1 to ``jobs`` run by Slurm's word, all with GPUs."""

    def __init__(self, jobs: int) -> None:
        self.now = 1000.0
        self.fleet = Fleet(Config(), "test", 0)
        self.watches: dict[int, Watch] = {}
        self.covering = Covering(self.fleet, lambda: self.watches, lambda: self.now)
        self.covering.gpu_jobs = frozenset(range(1, jobs + 1))
        self.rows = Snapshot(jobs=tuple(JobRow(n, "RUNNING") for n in range(1, jobs + 1)))
        self.covering.polled(self.rows)
        self.seq = 0

    def report(self, *jobs: wire.Job, node: str = "c1") -> None:
        self.seq += 1
        self.fleet.report(wire.Report(node, "b", "s", self.seq, "n", 0, jobs=list(jobs)), self.now)
        for one in jobs:
            self.watches.setdefault(one.job, Watch(True, "watched: a batch job with GPUs"))

    def pass_on(self, seconds: float) -> None:
        self.now += seconds
        self.covering.polled(self.rows)


def seen_job(number: int, **values: Any) -> wire.Job:
    return msgspec.structs.replace(stuck(number=number), **values)


def test_what_is_truly_watched() -> None:
    site = Site(5)
    assert site.covering.of() == Coverage(0, 0, {}), "what has just begun may not have been reported yet"
    unread = [wire.Step("batch", workers=[wire.Worker(rank=0)])]

    def all_report() -> None:
        site.report(seen_job(1), seen_job(2, nodes=2), seen_job(3, steps=unread))
        site.report(seen_job(4), node="c2")
    all_report()
    site.pass_on(121)
    site.report(seen_job(1), seen_job(2, nodes=2), seen_job(3, steps=unread))
    assert site.covering.of() == Coverage(5, 1, {
        "no monitor": 1, "node not heard yet": 1, "silent node": 1, "unreadable": 1})
    assert site.covering.of().share == 0.2
    assert site.covering.of(lambda job: job in (1, 5)) == Coverage(2, 1, {"no monitor": 1})


@pytest.mark.parametrize("reason", ["not watched: --no-stall-watch", "not watched: the site leaves out qos x; to …",
                                    "not watched: a job without a batch script; to have it watched, give …"])
def test_what_nobody_wants_watched_is_left_out(reason: str) -> None:
    site = Site(1)
    site.watches[1] = Watch(False, reason)
    site.report(seen_job(1))
    assert site.covering.of() == Coverage(0, 0, {})
    assert Coverage(0, 0, {}).share == 1.0


def test_which_jobs_have_gpus() -> None:
    mark = "\x1e0123456789abcdef\x1f"
    rows = [("1", "cpu=1,gres/gpu=2", "N/A", "N/A", "N/A"), ("2", "cpu=1", "gres/gpu:8", "N/A", "N/A"),
            ("3", "cpu=1", "N/A", "gres:gpu:1", "N/A"), ("4", "cpu=1,node=1", "N/A", "N/A", "N/A")]
    printed = "".join("".join(value + mark for value in row) + "\n" for row in rows)
    assert parse.gpu_jobs(printed, mark) == {1, 2, 3}
    with pytest.raises(parse.Garbled):
        parse.gpu_jobs(printed[:-9], mark)


def test_when_it_is_blind() -> None:
    site = Site(1)
    empty = Coverage(0, 0, {})

    def said(now: float, coverage: Coverage = empty, **seen: Any) -> list[str]:
        return faults(Seen(0.0, **seen), site.fleet, coverage, 60, now)
    assert said(50) == [], "a start takes its time"
    assert said(300) == ["no pass over the jobs has run for 300 s (since its start)",
                         "Slurm has not said for 300 s (since its start) what runs"]
    well = {"swept": 290.0, "polled": 260.0, "reported": 295.0}
    assert said(300, FULL, **well) == []
    assert said(300, FULL, **(well | {"reported": 100.0})) == ["no node has reported for 200 s"]
    assert said(300, Coverage(2, 0, {"unreadable": 2}), **well) == ["none of 2 running GPU jobs is truly watched"]
    assert said(300, FULL, **(well | {"stores": False})) == ["history can't be written: nothing new is said or done"]
    assert said(300, FULL, **(well | {"polled": 10.0})) == ["Slurm has not said for 290 s what runs"]
    assert (passes_run(Seen(0, swept=250), 300), passes_run(Seen(0, swept=230), 300)) == (True, False)


def test_metrics_are_prometheus_text_and_unknown_is_not_zero() -> None:
    def numbers(seen: Seen, why: list[str]) -> dict[tuple[str, str], float]:
        printed = metrics.text(seen, Coverage(5, 3, {"no monitor": 2}), why, 7, 300, 1.8e9)
        return {(one.name, one.labels.get("why", "")): one.value for family in text_string_to_metric_families(printed)
                for one in family.samples}
    found = numbers(Seen(0, swept=290), [])
    assert found["astraeus_gpu_jobs_watched_ratio", ""] == 0.6
    assert found["astraeus_gpu_jobs_unwatched", "no monitor"] == 2
    assert (found["astraeus_blind", ""], found["astraeus_reports_total", ""]) == (0, 7)
    assert found["astraeus_last_pass_timestamp_seconds", ""] == 1.8e9 + 290
    assert ("astraeus_last_report_timestamp_seconds", "") not in found
    assert numbers(Seen(0), ["it is"])["astraeus_blind", ""] == 1


def test_what_people_read() -> None:
    seen = {"running": 42, "watched": 40, "why": {"no monitor": 1, "silent node": 1}}
    assert text.coverage({"coverage": seen, "faults": []}) == [
        "WATCHED  40 of 42 running GPU jobs; no monitor: 1; silent node: 1"]
    blind = {"coverage": seen, "faults": ["no node has reported for 200 s"], "watched": 3}
    assert text.coverage(blind)[0] == "BLIND  no node has reported for 200 s"
    assert text.nothing(blind) == "whether something is stalled can't be told"
    assert text.coverage({}) == []


async def test_systemd_hears_of_passes_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(where)
        channel.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", where)
        monkeypatch.setenv("WATCHDOG_USEC", "30000")
        well, asked = True, 0

        def is_well() -> bool:
            nonlocal asked
            asked += 1
            return well
        task = asyncio.create_task(notify.watchdog(is_well))
        assert await asyncio.to_thread(channel.recv, 100) == b"WATCHDOG=1"
        assert await asyncio.to_thread(channel.recv, 100) == b"WATCHDOG=1"
        well = False
        channel.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while channel.recv(100):  # those that were sent before
                pass
        before = asked
        await until(lambda: asked >= before + 3, 5)
        with pytest.raises(BlockingIOError):
            channel.recv(100)
        task.cancel()
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
        assert notify.interval_s() is None


async def test_a_heartbeat_while_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    beats: list[str] = []

    class Switch(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            beats.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass
    server = HTTPServer(("127.0.0.1", 0), Switch)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    blind: list[str] = []
    asked = 0

    def faults_now() -> list[str]:
        nonlocal asked
        asked += 1
        return blind
    task = asyncio.create_task(heartbeat.beat(f"http://127.0.0.1:{server.server_port}/ping", faults_now))
    await until(lambda: len(beats) >= 2, 5)
    blind.append("no pass over the jobs has run for 61 s")
    before = asked
    await until(lambda: asked > before, 5)  # the beat that was on its way has arrived
    count = len(beats)
    await until(lambda: asked >= before + 4, 5)
    assert len(beats) == count
    task.cancel()
    server.shutdown()
    server.server_close()


async def test_over_the_api(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install(job(123, tres="gres/gpu=1"), job(125, tres="gres/gpu=1"))
    async with world.controller() as service:
        await world.node.send(stuck(restart=False))
        await until(lambda: service.judging.watched_jobs() == 1)
        status, health = await world.ask("/healthz")
        assert (status, health["status"], health["faults"]) == (200, "ok", [])
        stalls = (await world.ask("/stalls"))[1]
        assert stalls["coverage"] == {"running": 1, "watched": 1, "why": {}}
        service.judging.stores = False
        status, health = await world.ask("/healthz")
        assert (status, health["status"], len(health["faults"])) == (503, "blind", 1)
        assert (await world.ask("/stalls"))[1]["faults"] == health["faults"]
