"""Reports come in here: ``POST /v1/report``, signed, one per node and connection."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from astraeus_protocol import WIRE, signing
from astraeus_protocol.report import ENCODER, MAX_BYTES, REPORT_DECODER, Reply, Report
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .trust.addresses import Addresses
from .trust.munge import Busy, Unproven
from .trust.prover import Proves
from .trust.sessions import Late, Session, Sessions

log = logging.getLogger(__name__)
CLOSE = {"Connection": "close"}
"""A connection per report: 10,000 idle ones would hold a GiB."""


class Bad(Exception):
    """The report is not taken: an HTTP status and one sentence. ``usual``: nothing is amiss."""

    def __init__(self, status: int, sentence: str, *, usual: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.usual = status, sentence, usual


class Ingest:
    """``take(report)`` does what is to be done with a report and makes its reply. ``cluster``: Slurm's ClusterName;
    a report of another cluster is refused: its job ids are those of other jobs here."""

    def __init__(self, take: Callable[[Report], Reply], *, prover: Proves, addresses: Addresses,
                 clock: Callable[[], float], cluster: str = "") -> None:
        self.take, self.cluster = take, cluster
        self.prover, self.addresses, self.sessions = prover, addresses, Sessions(clock)
        self._told: dict[str, str] = {}

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/report", self.report, methods=["POST"])])

    async def report(self, request: Request) -> Response:
        """The endpoint."""
        try:
            body = await _body(request)
            session, report = self._verified(request, body, await self._session(request))
            reply = ENCODER.encode(self.take(report))
        except Bad as bad:
            self._tell(request, bad)
            return Response(bad.sentence + "\n", bad.status, CLOSE, "text/plain")
        self._told.pop(report.node, None)
        signature = signing.sign(session.key, "reply", report.node, report.nonce, reply)
        return Response(reply, 200, CLOSE | {signing.HEADER: signature}, "application/json")

    async def _session(self, request: Request) -> Session:
        """The node's, or the one that the credential beside the report makes."""
        node = request.headers.get(signing.NODE_HEADER, "")
        credential = request.headers.get(signing.CREDENTIAL_HEADER, "")
        try:
            if not credential:
                return self.sessions.of(node)
            claim = await self.prover.node(credential)
            if claim.node != node:
                raise Bad(401, "the credential is another node's")
            await self.addresses.confirm(claim, request.client.host if request.client else "")
            return self.sessions.begin(claim.key)
        except Late as late:  # every node's first report after a start of this controller
            raise Bad(late.status, late.sentence, usual=True) from None
        except Unproven as why:
            raise Bad(401, str(why)) from None
        except (Busy, signing.KeyFault) as why:
            raise Bad(503, str(why)) from None

    def _verified(self, request: Request, body: bytes, session: Session) -> tuple[Session, Report]:
        node = request.headers.get(signing.NODE_HEADER, "")
        nonce = request.headers.get(signing.NONCE_HEADER, "")
        at = request.headers.get(signing.TIME_HEADER, "")
        signature = request.headers.get(signing.HEADER, "")
        if not signing.verify(session.key, "report", node, nonce, body, signature, at):
            raise Bad(401, "the signature is wrong; the node is to prove itself anew")
        try:
            report = REPORT_DECODER.decode(body)
        except msgspec.DecodeError as fault:
            raise Bad(400, f"this is no report: {fault}") from None
        if report.node != node or report.nonce != nonce:
            raise Bad(401, "the report speaks for another node or nonce than its headers")
        try:  # before what is wrong with its words: who speaks is known
            self.sessions.fresh(session, at)
            self.sessions.keep(node, session, report.session, report.seq)
        except Late as late:
            raise Bad(late.status, late.sentence) from None
        if not WIRE - 1 <= report.v <= WIRE:
            raise Bad(400, f"wire version {report.v} is not taken here, only {WIRE - 1} and {WIRE}; "
                           "upgrade the controller first, then the monitors")
        if self.cluster and report.cluster and report.cluster.lower() != self.cluster.lower():
            raise Bad(400, f"the node's jobs are of cluster {report.cluster[:64]!r}, this controller is that of "
                           f"{self.cluster!r}; write the address of the node's own controller into [monitor] "
                           "controller")
        return session, report

    def _tell(self, request: Request, bad: Bad) -> None:
        """Once for each node and reason: a wrong key repeats itself every 15 s."""
        node = request.headers.get(signing.NODE_HEADER, "?")[:64]
        if self._told.get(node) != bad.sentence and not bad.usual:
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
