"""The sender against a small HTTP server with a real signature check; the monitor's obedience."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import astraeus_monitor.talk.sender
import pytest
from astraeus_monitor.config import Config
from astraeus_monitor.loop import Monitor
from astraeus_monitor.talk import sender
from astraeus_monitor.talk.address import literal, split
from astraeus_monitor.talk.http import parse
from astraeus_protocol import hello, report, signing

KEY = b"k" * 40


class Controller(ThreadingHTTPServer):
    """Checks signatures, keeps reports, answers as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reports: list[report.Report] = []
        self.nonces: list[str] = []
        self.forged = self.hellos = 0
        self.shared, self.key = [KEY], b""
        self.reply: Callable[[report.Report], report.Reply] = lambda r: report.Reply(r.nonce, next_s=1)
        self.tamper: Callable[[bytes, str], tuple[bytes, str]] = lambda body, sign: (body, sign)
        self.status = 200
        self.silent = False


    def proof(self, credential: str) -> bytes:
        """The session's key that a hello makes; b"" where it is none of ours."""
        found = hello.read_key(credential, self.shared)
        return found[3] if found else b""


class Handler(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        node, nonce = self.headers[signing.NODE_HEADER], self.headers[signing.NONCE_HEADER]
        beside, at = self.headers[signing.CREDENTIAL_HEADER], self.headers[signing.TIME_HEADER]
        if beside and (proof := self.server.proof(beside)):
            self.server.hellos += 1
            self.server.key = proof
        if not signing.verify(self.server.key, "report", node, nonce, body, self.headers[signing.HEADER], at):
            self.server.forged += 1
            self.send_error(401)
            return
        got = report.REPORT_DECODER.decode(body)
        assert (self.path, got.node, got.nonce) == ("/v1/report", node, nonce)
        self.server.reports.append(got)
        if self.server.silent:
            time.sleep(7)
            return
        answer = report.ENCODER.encode(self.server.reply(got))
        answer, sign = self.server.tamper(answer, signing.sign(self.server.key, "reply", node, nonce, answer))
        self.send_response(self.server.status)
        self.send_header(signing.HEADER, sign)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries, ten times as short."""
    assert astraeus_monitor.talk.sender.BACKOFF_S == (1, 2, 4, 8, 15)
    monkeypatch.setattr(astraeus_monitor.talk.sender, "BACKOFF_S", (0.1, 0.2, 0.4, 0.8, 1.5))


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Site:
    """A monitor with one job that has no tasks yet."""

    def __init__(self, tmp: Path, port: int, host: str = "127.0.0.1", key: bytes = KEY) -> None:
        self.state = tmp / "run"
        self.key = tmp / "key"
        self.key.write_bytes(key)
        self.key.chmod(0o600)
        self.job = self.state / "jobs" / "7"
        (self.job / "steps").mkdir(parents=True)
        (self.job / "job").write_text(f"nonce=n1\njob=7\nnode=c1\ncluster=demo\nuid={os.geteuid()}\nby=prolog\n")
        self.monitor = Monitor(Config(f"http://{host}:{port}", str(self.key), state_dir=str(self.state)))
        self.monitor.open()
        self.monitor.tick()

    def until(self, holds: Callable[[], bool], seconds: float = 8) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come about"
            self.monitor.recheck_at = self.monitor.clock.boot() + 0.02  # so that a turn is short
            self.monitor.turn()


@pytest.fixture
def site(tmp_path: Path, controller: Controller) -> Iterator[Site]:
    site = Site(tmp_path, controller.server_port)
    yield site
    site.monitor.close()


def test_reports_come_as_often_as_the_reply_says(site: Site, controller: Controller) -> None:
    site.until(lambda: len(controller.reports) == 3)
    first, second, third = controller.reports
    assert (first.node, first.cluster, [j.job for j in first.jobs]) == ("c1", "demo", [7])
    assert [r.seq for r in (first, second, third)] == [1, 2, 3]
    assert len({r.nonce for r in controller.reports}) == 3
    assert 0.9 < third.at - second.at < 2
    assert controller.forged == 0


def test_a_name_is_looked_up_in_a_child(tmp_path: Path, controller: Controller) -> None:
    site = Site(tmp_path, controller.server_port, "localhost")
    site.until(lambda: len(controller.reports) >= 1)
    site.monitor.close()


def test_a_tampered_reply_is_not_obeyed(site: Site, controller: Controller) -> None:
    controller.reply = lambda r: report.Reply(r.nonce, commands=[report.StopFile(7, "n1", {"cause": "stalled"})])
    controller.tamper = lambda body, sign: (body.replace(b"stalled", b"removed"), sign)
    site.until(lambda: site.monitor.sender.failures >= 2)
    assert not (site.job / "stop").exists()
    assert len({r.nonce for r in controller.reports}) == len(controller.reports)
    controller.tamper = lambda body, sign: (body, "v1 " + "0" * 64)
    site.until(lambda: site.monitor.sender.failures >= 3)
    assert not (site.job / "stop").exists()
    controller.tamper = lambda body, sign: (body, sign)
    site.until(lambda: (site.job / "stop").exists())
    assert (site.job / "stop").read_text() == "cause: stalled\n"


def test_a_reply_to_another_report_is_not_obeyed(site: Site, controller: Controller) -> None:
    controller.reply = lambda r: report.Reply("0" * 32, commands=[report.StopFile(7, "n1", {"cause": "x"})])
    site.until(lambda: site.monitor.sender.failures >= 1)
    assert not (site.job / "stop").exists()


def test_the_stop_file_is_told_at_once(site: Site, controller: Controller) -> None:
    command = report.StopFile(7, "n1", {"cause": "stalled", "signal": "TERM"})
    controller.reply = lambda r: report.Reply(r.nonce, next_s=60, commands=[command])
    site.until(lambda: any(j.stop_file for r in controller.reports for j in r.jobs), 3)
    assert (site.job / "stop").read_text() == "cause: stalled\nsignal: TERM\n"
    assert (site.job / "stop").stat().st_mode & 0o777 == 0o400


def test_another_attempts_commands_are_left(site: Site, controller: Controller) -> None:
    controller.reply = lambda r: report.Reply(r.nonce, next_s=1, commands=[
        report.StopFile(7, "n0", {"cause": "stalled"}), report.DropJob(7, "n0"), report.DropJob(8, "n1")])
    site.until(lambda: len(controller.reports) == 2)
    assert not (site.job / "stop").exists()
    assert controller.reports[-1].jobs[0].job == 7


def test_drop_cause_and_tied(site: Site, controller: Controller) -> None:
    (site.job / "steps" / "0").write_text("step v=1 step=0\n")
    site.monitor.tick()
    controller.reply = lambda r: report.Reply(r.nonce, next_s=1, causes={"7": "stalled", "9": "x"},
                                              tied=["7.0", "9.1", "nonsense"])
    site.until(lambda: (site.job / "cause").exists())
    assert site.monitor.jobs[7].steps["0"].tied
    before = len(controller.reports)
    controller.reply = lambda r: report.Reply(r.nonce, next_s=60)
    site.until(lambda: not site.monitor.jobs[7].steps["0"].tied)
    site.until(lambda: len(controller.reports) == before + 2, 3)  # a new controller hears of the ties at once
    controller.reply = lambda r: report.Reply(r.nonce, next_s=1, commands=[report.DropJob(7, "n1", "no")])
    site.monitor.report_at = site.monitor.clock.boot()  # instead of after those 60 s
    site.until(lambda: bool(controller.reports) and not controller.reports[-1].jobs)


def test_a_job_that_left_is_told_at_once(site: Site, controller: Controller) -> None:
    controller.reply = lambda r: report.Reply(r.nonce, next_s=60)
    site.until(lambda: len(controller.reports) >= 1)
    for path in (site.job / "clock", site.job / "job"):
        path.unlink()
    (site.job / "steps").rmdir()
    site.job.rmdir()
    fd = os.open(site.state / "wake", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"x")
    os.close(fd)
    site.until(lambda: not controller.reports[-1].jobs, 3)
    site.until(lambda: site.monitor.report_at is None or site.monitor.farewell_until == 0, 3)


def test_backoff_while_the_controller_is_away(site: Site, controller: Controller) -> None:
    controller.status = 503
    site.until(lambda: site.monitor.sender.failures == 3)
    gaps = [b.at - a.at for a, b in pairwise(controller.reports)]
    assert 0.1 <= gaps[0] < 0.2 <= gaps[1] < 0.35
    controller.status = 200
    site.until(lambda: site.monitor.sender.failures == 0)
    assert controller.reports[-1].jobs[0].began_s > controller.reports[0].jobs[0].began_s


def test_a_controller_that_never_answers_does_not_stop_the_sampling(
        site: Site, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TOTAL_S", 3.0)
    monkeypatch.setattr(sender, "CONNECT_S", 1.0)
    controller.silent = True
    site.monitor.config = Config(site.monitor.config.controller, str(site.key), pulse_s=1,
                                 state_dir=str(site.state))
    site.monitor.next_tick = site.monitor.clock.boot()
    before = time.monotonic()
    ticks: list[float] = []
    tick = site.monitor.tick

    def counted(*, regular: bool = True) -> None:
        if regular:
            ticks.append(time.monotonic())
        tick(regular=regular)

    site.monitor.tick = counted  # type: ignore[method-assign]
    site.until(lambda: site.monitor.sender.failures == 1)
    assert time.monotonic() - before < 6
    assert max(b - a for a, b in pairwise(ticks)) < 1.5


def test_a_controller_that_forgot_the_key_loses_no_report(site: Site, controller: Controller) -> None:
    site.until(lambda: len(controller.reports) == 2)
    assert controller.hellos == 1
    controller.key = b""  # it was started anew
    refused_at = 0.0

    def refused() -> bool:
        nonlocal refused_at
        refused_at = time.monotonic()
        return controller.forged == 1
    site.until(refused)
    site.until(lambda: len(controller.reports) == 3)
    assert time.monotonic() - refused_at < 0.5, "at once, not with the next report"
    assert (controller.hellos, controller.forged, controller.reports[-1].seq) == (2, 1, 4)


def test_a_wrong_key_or_none(tmp_path: Path, controller: Controller, capfd: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path, controller.server_port, key=b"z" * 40)
    site.until(lambda: controller.forged == 1)
    site.key.chmod(0o644)
    said = ""

    def refused() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "chmod 600" in said
    site.until(refused)
    site.key.chmod(0o600)
    site.key.write_bytes(KEY)
    site.until(lambda: len(controller.reports) == 1)
    site.monitor.close()


def test_split_and_parse() -> None:
    assert split("http://ctl:6831") == ("ctl", 6831)
    assert split("http://ctl/") == ("ctl", 6831)
    assert split("http://[fe80::1]:99/x") == ("fe80::1", 99)
    assert literal("10.0.0.1")
    assert literal("ctl") is None
    assert parse(b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nxyz") == (
        200, {"a": "b", "content-length": "2"}, b"xy")
    assert parse(b"SSH-2.0\r\n\r\n") == (0, {}, b"")
