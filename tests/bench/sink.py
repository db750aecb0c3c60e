"""A controller that answers and judges nothing: valid signed replies at the pace of a healthy node."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from astraeus_protocol import hello, report, signing

FIRST_S, HEALTHY_S, HEALTHY_AFTER_S = 15.0, 30.0, 45.0
"""As the controller asks for reports: each 15 s, and each 30 s once all has been well for a while (for two minutes
there; sooner here, so that what is measured is how a healthy job spends its days)."""


class Sink(HTTPServer):
    """Listens on loopback; ``last`` is the report that came last."""

    def __init__(self, key: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key, self.session, self.began = key, b"", time.monotonic()
        self.last: report.Report | None = None
        self.reports = self.refused = 0
        self.tied: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fresh(self) -> None:
        """Another monitor begins."""
        self.began, self.last, self.reports, self.tied = time.monotonic(), None, 0, set()

    def pulses(self) -> int:
        """Worker processes of the last report whose pulse is known."""
        return sum(process.pulse_base is not None for job in (self.last.jobs if self.last else [])
                   for step in job.steps for worker in step.workers for process in worker.processes)

    def reply(self, got: report.Report) -> report.Reply:
        """The answer to a report."""
        self.last, self.reports = got, self.reports + 1
        healthy = time.monotonic() - self.began >= HEALTHY_AFTER_S
        self.tied |= {f"{job.job}.{step.step}" for job in got.jobs for step in job.steps
                      if any(process.ties for worker in step.workers for process in worker.processes)}
        return report.Reply(got.nonce, next_s=HEALTHY_S if healthy else FIRST_S, tied=sorted(self.tied))


class _Handler(BaseHTTPRequestHandler):
    server: Sink
    timeout = 5

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        node, nonce = self.headers[signing.NODE_HEADER], self.headers[signing.NONCE_HEADER]
        beside, at = self.headers[signing.CREDENTIAL_HEADER], self.headers[signing.TIME_HEADER]
        if beside and (proof := hello.read_key(beside, [self.server.key])):
            self.server.session = proof[3]
        if not signing.verify(self.server.session, "report", node, nonce, body, self.headers[signing.HEADER], at):
            self.server.refused += 1
            self.send_error(401)
            return
        answer = report.ENCODER.encode(self.server.reply(report.REPORT_DECODER.decode(body)))
        self.send_response(200)
        self.send_header(signing.HEADER, signing.sign(self.server.session, "reply", node, nonce, answer))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass
