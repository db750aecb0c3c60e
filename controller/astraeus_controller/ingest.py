"""Reports come in here: ``POST /v1/report``, signed, one per node and connection."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import msgspec
from astraeus_protocol import WIRE, signing
from astraeus_protocol.report import ENCODER, MAX_BYTES, REPORT_DECODER, Reply, Report
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

log = logging.getLogger(__name__)
NONCES = 64
"""How many nonces of a node are remembered: a replay of an older report fails by its number."""
CLOSE = {"Connection": "close"}
"""A connection per report: 10,000 idle ones would hold a GiB."""


class Bad(Exception):
    """The report is not taken: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Seen:
    """Which nonces and numbers a node has used."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, int, OrderedDict[str, None]]] = {}

    def check(self, report: Report) -> None:
        """Raises Bad where the report was here before or is older than the last; remembers it otherwise."""
        session, seq, nonces = self._nodes.get(report.node, ("", -1, OrderedDict()))
        if report.nonce in nonces:
            raise Bad(409, "this report was here before; send a new one with a nonce of its own")
        if report.session == session and report.seq < seq:
            raise Bad(409, f"report {report.seq} is older than {seq}; send the newest only")
        nonces[report.nonce] = None
        if len(nonces) > NONCES:
            nonces.popitem(last=False)
        self._nodes[report.node] = report.session, report.seq, nonces


class Ingest:
    """``take(report)`` does what is to be done with a report and makes its reply. ``cluster``: Slurm's ClusterName;
    a report of another cluster is refused: its job ids are those of other jobs here."""

    def __init__(self, key: bytes, take: Callable[[Report], Reply], cluster: str = "") -> None:
        self.key, self.take, self.cluster, self.seen = key, take, cluster, Seen()
        self._told: dict[str, str] = {}

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/report", self.report, methods=["POST"])])

    async def report(self, request: Request) -> Response:
        """The endpoint."""
        try:
            body = await _body(request)
            report = self._verified(request, body)
            reply = ENCODER.encode(self.take(report))
        except Bad as bad:
            self._tell(request, bad)
            return Response(bad.sentence + "\n", bad.status, CLOSE, "text/plain")
        signature = signing.sign(self.key, "reply", report.node, report.nonce, reply)
        return Response(reply, 200, CLOSE | {signing.HEADER: signature}, "application/json")

    def _verified(self, request: Request, body: bytes) -> Report:
        node = request.headers.get(signing.NODE_HEADER, "")
        nonce = request.headers.get(signing.NONCE_HEADER, "")
        signature = request.headers.get(signing.HEADER, "")
        if not signature.isascii() or not signing.verify(self.key, "report", node, nonce, body, signature):
            raise Bad(401, "the signature is wrong; the node and the controller must hold the same report key")
        try:
            report = REPORT_DECODER.decode(body)
        except msgspec.DecodeError as fault:
            raise Bad(400, f"this is no report: {fault}") from None
        if report.node != node or report.nonce != nonce:
            raise Bad(401, "the report speaks for another node or nonce than its headers")
        if not WIRE - 1 <= report.v <= WIRE:
            raise Bad(400, f"wire version {report.v} is not taken here, only {WIRE - 1} and {WIRE}; "
                           "upgrade the controller first, then the monitors")
        if self.cluster and report.cluster and report.cluster.lower() != self.cluster.lower():
            raise Bad(400, f"the node's jobs are of cluster {report.cluster[:64]!r}, this controller is that of "
                           f"{self.cluster!r}; write the address of the node's own controller into [monitor] "
                           "controller")
        self.seen.check(report)
        return report

    def _tell(self, request: Request, bad: Bad) -> None:
        """Once for each node and reason: a wrong key repeats itself every 15 s."""
        node = request.headers.get(signing.NODE_HEADER, "?")[:64]
        if self._told.get(node) != bad.sentence:
            if len(self._told) > 20_000:
                self._told.clear()
            self._told[node] = bad.sentence
            where = request.client.host if request.client else "?"
            log.warning("report of %s from %s not taken: %s", node, where, bad.sentence)


async def _body(request: Request) -> bytes:
    said = request.headers.get("content-length", "0")
    if not said.isdigit() or int(said) > MAX_BYTES:
        raise Bad(413, f"a report holds {MAX_BYTES} bytes at most")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Bad(413, f"a report holds {MAX_BYTES} bytes at most")
    return bytes(body)
