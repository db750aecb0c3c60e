"""``astraeus-monitor read``: what it prints and its exit status."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from astraeus_monitor.main import main


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


@pytest.mark.parametrize(("words", "said"), [
    (["metric"], "write read metric URL NAME, such as read metric http://127.0.0.1:9000/metrics step"),
    (["gpu"], "write read metric URL NAME"),
    (["metric", "http://example.org/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "https://127.0.0.1:9000/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "http://127.0.0.1:port/metrics", "step"], "write http://127.0.0.1:PORT/metrics"),
    (["metric", "127.0.0.1:9000", "step", "--watch=0"], "--watch takes seconds from 1 to 3600"),
    (["metric", "127.0.0.1:9000", "step", "--once"], "read has no option --once; write --json or --watch SECONDS"),
])
def test_words_that_cannot_be_used(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", *words]) == 2
    assert said in capsys.readouterr().err
