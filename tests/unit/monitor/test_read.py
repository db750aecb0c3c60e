"""``astraeus-monitor read``: what it prints and its exit status."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.main import main
from astraeus_monitor.probes import nvml, nvml_abi
from astraeus_monitor.reading.read_process import ProcessReading, process, text
from astraeus_monitor.sources.gpu import Answer, Reading, Slow


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of a real HTTP server whose step grows with each request; ``nan`` does not."""
    class Handler(http.server.BaseHTTPRequestHandler):
        count = 0

        def do_GET(self) -> None:
            Handler.count += 1
            body = f"step_total {Handler.count}\nflat 7\nnan NaN\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def test_metric(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "metric", endpoint, "step"]) == 0
    assert capsys.readouterr().out == "metric: step 1, unchanged for 0 s\n"


def test_metric_twice(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "metric", endpoint, "flat", "--watch", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["source"], answer["reading"]["name"], answer["reading"]["value"]) == ("metric", "flat", 7)
    assert 0.9 <= answer["reading"]["unchanged_s"] <= 3


def test_unknown_says_why(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "metric", endpoint, "nan"]) == 3
    assert main(["read", "metric", endpoint, "absent", "--json"]) == 3
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "metric: unknown: nan is NaN or infinite"
    assert json.loads(out[1]) == {"source": "metric", "unknown": "absent is not among the metrics"}


def test_nccl_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "out.txt"
    log.write_text("step 1\n")
    assert main(["read", "nccl_log", str(log)]) == 0
    assert capsys.readouterr().out == "nccl_log: nothing is said of a collective\n"
    line = ("[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800328 milliseconds before timing "
            "out.")
    with log.open("a") as file:
        file.write(line)  # without an end
    assert main(["read", "nccl_log", str(log)]) == 0
    said = "nccl_log: stuck (nccl): rank 2, ALLREDUCE, seq 2, ran for 1800328 ms"
    assert capsys.readouterr().out == f"{said}\n  {line}\n"
    assert main(["read", "nccl_log", str(log), "--json"]) == 0
    word = json.loads(capsys.readouterr().out)["reading"]["word"]
    assert (word["kind"], word["rank"], word["op"], word["seq"]) == ("stuck", 2, "ALLREDUCE", 2)
    os.mkfifo(tmp_path / "fifo")
    assert main(["read", "nccl_log", str(tmp_path / "fifo")]) == 3
    assert main(["read", "nccl_log", str(tmp_path / "none")]) == 3
    assert capsys.readouterr().out.splitlines() == [
        f"nccl_log: unknown: {tmp_path}/fifo is no regular file",
        f"nccl_log: unknown: {tmp_path}/none: No such file or directory"]


def test_process(capsys: pytest.CaptureFixture[str]) -> None:
    waits = subprocess.Popen(["sleep", "60"], env={"RANK": "3"})
    try:
        until = time.monotonic() + 10
        while "nanosleep" not in Path(f"/proc/{waits.pid}/wchan").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        found = process(waits.pid, 0, Proc(), Clock(), lambda seconds: None)
        assert isinstance(found, ProcessReading)
        lines = text(found).splitlines()
        assert lines[0] == f"process: {waits.pid} sleep (rank 3), state S"
        assert lines[1] == ("  main thread: hrtimer_nanosleep (clock_nanosleep) in 100% of 25 samples; user 0 %, "
                            "system 0 %, 0 voluntary switches/s")
    finally:
        waits.kill()
        waits.wait()
    assert main(["read", "process", str(waits.pid), "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {
        "source": "process", "unknown": f"there is no process {waits.pid}"}


def test_a_process_looked_at_twice() -> None:
    sleeps: list[float] = []
    found = process(os.getpid(), 5.0, Proc(), Clock(), sleeps.append)
    assert isinstance(found, ProcessReading)
    assert (5.0 in sleeps, found.process.pulse is not None, found.process.cpu is not None) == (True, True, True)
    assert found.process.place is not None
    assert f"process: {os.getpid()}" in text(found)
    assert "pulse: " in text(found)


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("a") as log:
        log.write("step 1\n")
        log.flush()
        assert main(["read", "output", log.name]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"output: {log.name}: regular file, 7 bytes, last grew 0 s ago\n  PID {os.getpid()} (")
        assert said.endswith(f", descriptor {log.fileno()}, at 7, appends\n")
        assert main(["read", "output", log.name, "/dev/null", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["unknown"] == "output goes to /dev/null"
    assert [one["kind"] for one in answer["reading"]["files"]] == ["file", "null"]


@pytest.mark.parametrize(("words", "said"), [
    (["metric"], "write read metric URL NAME, such as read metric http://127.0.0.1:9000/metrics step"),
    (["fan"], "write read output PATH, read metric URL NAME, read nccl_log PATH, read nccl_ras, read process PID, "
     "read rail, or read gpu"),
    (["gpu", "0"], "write read gpu, without anything behind it"),
    (["process", "x"], "x is no process id; write a number, such as read process 4242"),
    (["process", "0"], "0 is no process id"),
    (["output"], "write read output PATH, such as read output /home/alice/slurm-42.out"),
    (["metric", "http://example.org/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "https://127.0.0.1:9000/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "http://127.0.0.1:port/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "127.0.0.1:9000", "step", "--watch=0"], "--watch takes seconds from 1 to 3600"),
    (["metric", "127.0.0.1:9000", "step", "--once"], "read has no option --once; write --json or --watch SECONDS"),
])
def test_words_that_cannot_be_used(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", *words]) == 2
    assert said in capsys.readouterr().err


def test_gpus_of_a_node_without_any(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise nvml_abi.NoLibrary("no NVIDIA driver here")
    monkeypatch.setattr(nvml.Nvml.__init__, "__defaults__", (lambda n: None, none))
    assert main(["read", "gpu", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["unknown"].startswith("no NVIDIA driver here")


def test_gpus_one_of_which_is_lost(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer([Reading(0, "GPU-a", 97, sm_mhz=1386, temp_c=92, slow=Slow(sm_max_mhz=1980, slowdown_c=93)),
                     Reading(1, fault="the GPU is lost")])
    monkeypatch.setattr(nvml.Nvml, "read", lambda self, left: answer)
    assert main(["read", "gpu"]) == 3
    said = capsys.readouterr().out
    assert "GPU 0 (GPU-a): 97 %, 1386 of 1980 MHz, 92 of 93 C" in said
    assert "GPU 1 (no UUID): use unknown, busy: the GPU is lost" in said
