"""When a metric last changed, and endpoints that are not what they should be."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.textfile import MAX_BYTES
from astraeus_monitor.probes.children import Probes
from astraeus_monitor.probes.scrape import DECODER, MetricAsk, MetricLook, scrape
from astraeus_monitor.rounds import metrics
from astraeus_monitor.sources.exposition import Series
from astraeus_monitor.sources.metric import MetricClock, of_rank
from astraeus_monitor.watch.job import JobWatch
from astraeus_protocol import report

from .test_probes import Rig

ME = (10, 10)


def seen(clock: MetricClock, value: float, now: float, holder: tuple[int, int] = ME, born: float | None = None) -> None:
    clock.see([Series({}, value)], 0, holder, born, now)


class TestClock:
    def test_unchanged_counts_from_the_last_change(self) -> None:
        clock = MetricClock("step", 100)
        for now, value in ((115, 5), (130, 6), (145, 6), (160, 6)):
            seen(clock, value, now)
        record = clock.record(160)
        assert (record.name, record.value, record.unchanged_s) == ("step", 6, 30)

    def test_nan_is_no_change_and_a_fall_is_a_new_base(self) -> None:
        """20289 -> NaN -> 0, then idle: a restart; and NaN is not a change each time."""
        clock = MetricClock("step", 0)
        seen(clock, 20289.37, 15)
        seen(clock, 20289.37, 30)
        seen(clock, float("nan"), 45)
        assert (clock.record(45).unchanged_s, clock.record(45).value, clock.why) == (
            None, 20289.37, "step is NaN or infinite")
        seen(clock, 20289.37, 60)
        assert clock.record(60).unchanged_s == 45
        seen(clock, 0, 75)
        seen(clock, 0, 90)
        assert clock.record(90).unchanged_s == 15

    def test_another_process_is_a_new_base(self) -> None:
        clock = MetricClock("step", 0)
        seen(clock, 5, 15)
        seen(clock, 5, 30, holder=(11, 11))
        assert clock.record(30).unchanged_s == 0
        seen(clock, 5, 45, holder=(11, 11), born=1000.5)
        assert clock.record(45).unchanged_s == 0

    def test_any_of_several_series(self) -> None:
        clock = MetricClock("samples", 0)
        for now, train in ((15, 10), (30, 20), (45, 20)):
            clock.see([Series({"split": "train"}, train), Series({"split": "eval"}, 3)], 0, ME, None, now)
        assert (clock.record(45).value, clock.record(45).unchanged_s) == (23, 15)

    def test_rank_labels(self) -> None:
        found = [Series({"rank": "0"}, 1), Series({"rank": "1"}, 2), Series({}, 9)]
        assert [one.value for one in of_rank(found, 1)] == [2]
        assert [one.value for one in of_rank(found, 5)] == [9]
        assert of_rank(found[:2], 5) == []
        assert of_rank([Series({"job": "a"}, 1), Series({"job": "b"}, 2)], 5) == [
            Series({"job": "a"}, 1), Series({"job": "b"}, 2)]

    def test_absent(self) -> None:
        clock = MetricClock("step", 0)
        clock.see([], 0, ME, None, 15)
        assert (clock.why, clock.record(15).unchanged_s, clock.record(15).value) == (
            "step is not among the metrics", None, None)
        clock.see([Series({"rank": "0"}, 1)], 3, ME, None, 30)
        assert clock.why == "step has no value for rank 3"

    def test_saved_and_continued(self) -> None:
        clock = MetricClock("step", 0)
        clock.see([Series({"a": "b"}, 5)], 0, ME, 7.5, 15)
        again = MetricClock.load(clock.save())
        again.see([Series({"a": "b"}, 5)], 0, ME, 7.5, 45)
        assert again.record(45).unchanged_s == 30


# Endpoints: real sockets, served by threads of this process

Serve = Callable[[bytes], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Listens on a port of loopback and answers each connection with the given bytes."""
    open_ones: list[socket.socket] = []

    def begin(answer: bytes) -> int:
        listening = socket.create_server(("127.0.0.1", 0))
        open_ones.append(listening)

        def loop() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                open_ones.append(connection)
                try:
                    connection.recv(4096)
                    connection.sendall(answer)
                    if not answer.endswith(b"<open>"):
                        connection.close()
                except OSError:
                    continue
        threading.Thread(target=loop, daemon=True).start()
        return int(listening.getsockname()[1])

    yield begin
    for one in open_ones:
        one.close()


def ask(port: int, *pids: int) -> MetricAsk:
    return MetricAsk("0", 3, port, list(pids or (os.getpid(),)), ["step"])


def look(port: int, *pids: int) -> MetricLook:
    return next(iter(scrape(Proc(), [ask(port, *pids)])))


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
BODY = b"process_start_time_seconds 1000.5\nstep 4321\n"


@pytest.mark.parametrize("answer", [
    OK + BODY,
    b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n%s<open>" % (len(BODY), BODY),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        BODY[:4], len(BODY) - 4, BODY[4:]),
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(BODY),
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + BODY,  # says so and does not
])
def test_an_endpoint_is_read(serve: Serve, answer: bytes) -> None:
    found = look(serve(answer))
    assert (found.why, found.found, found.born) == ("", {"step": [Series({}, 4321)]}, 1000.5)
    assert (found.step, found.rank, found.holder[0]) == ("0", 3, os.getpid())


@pytest.mark.parametrize(("answer", "why"), [
    (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "answers with HTTP 302"),
    (b"HTTP/1.1 500 Oops\r\n\r\nstep 1\n", "answers with HTTP 500"),
    (b"step 1\n", "does not answer as HTTP does"),
    (b"", "does not answer as HTTP does"),
    (OK + b"step 1\n" * (MAX_BYTES // 4), "answers with more than 1 MiB"),
    (OK + gzip.compress(b"step 1\n" * MAX_BYTES), "answers with more than 1 MiB"),
    (OK + b"\x1f\x8bnonsense", "answers with broken gzip"),
    (OK + b"step 1\n<open>", "does not answer within 1 s"),
])
def test_an_endpoint_that_is_of_no_use(serve: Serve, answer: bytes, why: str) -> None:
    port = serve(answer)
    found = look(port)
    assert (found.why, found.found) == (f"port {port} {why}", {})


def test_a_listener_of_somebody_else(serve: Serve) -> None:
    port = serve(OK + BODY)
    with subprocess.Popen(["sleep", "60"]) as other:
        why = look(port, other.pid).why
        other.kill()
    assert why == f"the listener on port {port} does not belong to the task"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert look(port).why == f"nothing listens on loopback port {port}"


def test_one_that_hangs_costs_the_others_nothing(serve: Serve) -> None:
    hangs, well = serve(b"<open>"), serve(OK + BODY)
    found = {one.rank: one for one in scrape(Proc(), [
        MetricAsk("0", rank, port, [os.getpid()], ["step"]) for rank, port in enumerate((hangs, well, hangs))])}
    assert [found[rank].why for rank in range(3)] == [
        f"port {hangs} does not answer within 1 s", "", f"port {hangs} does not answer within 1 s"]


# Text files: read in a child, which takes the task's user's rights for good

NOBODY = 65534


@pytest.fixture
def task(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A task at work in a folder that is its own."""
    user = NOBODY if os.geteuid() == 0 else None
    home = tmp_path / "home"
    home.mkdir()
    if user is not None:
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o011)
        os.chown(home, user, user)
    with subprocess.Popen(["sleep", "60"], cwd=home, user=user, group=user,
                          extra_groups=None if user is None else []) as process:
        yield process
        process.kill()


def from_file(task: subprocess.Popen[bytes], file: str) -> MetricLook:
    rig = Rig()
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    one = MetricAsk("0", 3, 0, [task.pid], ["step"], file, uid)
    assert Probes(rig.selector, rig.clock).start("metric 7", lambda: scrape(Proc(), [one]), rig.done) == ""
    rig.until(lambda: rig.got)
    [line] = rig.got[0][0]
    return DECODER.decode(line)


def test_a_text_file(task: subprocess.Popen[bytes], tmp_path: Path) -> None:
    file = tmp_path / "home" / "rank.prom"
    file.write_bytes(BODY)
    for path in (str(file), "rank.prom", "../home/rank.prom"):
        found = from_file(task, path)
        assert (found.why, found.found, found.holder[0]) == ("", {"step": [Series({}, 4321)]}, task.pid)


def test_files_that_are_of_no_use(task: subprocess.Popen[bytes], tmp_path: Path) -> None:
    home = tmp_path / "home"
    os.mkfifo(home / "fifo")
    (home / "null").symlink_to("/dev/null")
    (home / "large").write_bytes(b"step 1\n" * MAX_BYTES)
    assert from_file(task, "fifo").why == "fifo is no regular file"
    assert from_file(task, "null").why == "null is no regular file"
    assert from_file(task, "large").why == "large holds more than 1 MiB"
    assert from_file(task, "none").why == "none: No such file or directory"
    secret = tmp_path / "secret"
    secret.write_bytes(BODY)
    secret.chmod(0o600)
    (home / "link").symlink_to(secret)
    expected = "link: Permission denied" if os.geteuid() == 0 else ""
    assert from_file(task, "link").why == expected


# A job's workers

def job_of(tmp_path: Path, **settings: str) -> JobWatch:
    """Two tasks of step 0 on this node, local ids 0 and 1; the settings are the step's own."""
    job = JobWatch(7, {"nonce": "n", "progress_metric": "loss"}, tmp_path, 1000.0, 5)
    job.feed("0", [("step", {"nodes": "1", "tasks": "2", **settings})], 1000.0)
    for rank in (0, 1):
        job.feed("0", [("task", {"rank": str(rank), "local": str(rank), "pid": str(100 + rank), "start": "1"})], 1000.0)
    return job


def told(job: JobWatch, now: float) -> list[tuple[list[report.Metric], list[str]]]:
    return [(w.metrics, [u.reason for u in w.unknown if u.source == "metric"])
            for w in job.record(now, "c1").steps[0].workers]


def test_each_task_has_its_own_port(tmp_path: Path) -> None:
    job = job_of(tmp_path, progress_metric="step", metrics_port="9000")
    asked = metrics.asks(job, 1000)
    assert [(a.step, a.rank, a.port, a.pids, a.names) for a in asked] == [
        ("0", 0, 9000, [100], ["step"]), ("0", 1, 9001, [101], ["step"])]
    answers = [msgspec.json.encode(MetricLook("0", 0, ME, None, {"step": [Series({}, 5)]})), b"nonsense"]
    metrics.seen(job, asked, answers, "no answer before the deadline", 1015)
    assert told(job, 1020) == [
        ([report.Metric("step", 5, 5, 5)], []), ([report.Metric("step")], ["no answer before the deadline"])]


def test_a_file_in_place_of_the_port(tmp_path: Path) -> None:
    job = job_of(tmp_path, progress_metric="step", metrics_file="run/rank-%t.prom")
    job.facts["uid"] = "1001"
    assert [(a.rank, a.file, a.pids, a.uid) for a in metrics.asks(job, 1000)] == [
        (0, "run/rank-0.prom", [100], 1001), (1, "run/rank-1.prom", [101], 1001)]


def test_the_time_per_iteration_is_read_beside_the_progress(tmp_path: Path) -> None:
    both = job_of(tmp_path, progress_metric="step", straggler_metric="step_seconds", metrics_port="9000")
    asked = metrics.asks(both, 1000)
    assert [a.names for a in asked] == [["step", "step_seconds"]] * 2, "in one answer"
    metrics.seen(both, asked, [], "no answer before the deadline", 1015)
    assert told(both, 1020)[0] == ([report.Metric("step"), report.Metric("step_seconds")],
                                   ["no answer before the deadline"])
    alone = job_of(tmp_path, straggler_metric="loss", metrics_port="9000")  # the same as the progress metric
    assert [a.names for a in metrics.asks(alone, 1000)] == [["loss"]] * 2


def test_no_place_is_unknown_with_its_reason(tmp_path: Path) -> None:
    job = job_of(tmp_path)  # the job's own --progress-metric=loss
    assert metrics.asks(job, 1000) == []
    assert told(job, 1000)[1] == ([report.Metric("loss")], [
        "where it is served is not known: --metrics-port and --metrics-file are not given"])


def test_a_port_beyond_the_last(tmp_path: Path) -> None:
    job = job_of(tmp_path, progress_metric="step", metrics_port="65535")
    assert [ask.rank for ask in metrics.asks(job, 1000)] == [0]
    assert told(job, 1000)[1][1] == ["port 65535 + local id 1 is beyond 65535"]


def test_metric_clocks_survive_the_monitor(tmp_path: Path) -> None:
    job = job_of(tmp_path, progress_metric="step", metrics_port="9000")
    asked = metrics.asks(job, 1000)
    answer = [msgspec.json.encode(MetricLook("0", 0, ME, None, {"step": [Series({}, 5)]}))]
    metrics.seen(job, asked, answer, "", 1015)
    again = job_of(tmp_path, progress_metric="step", metrics_port="9000")
    again.load(msgspec.json.decode(msgspec.json.encode(job.save())))
    metrics.seen(again, metrics.asks(again, 1030), answer, "", 1030)
    assert told(again, 1030)[0] == ([report.Metric("step", 5, 15)], [])
