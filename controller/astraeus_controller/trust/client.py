"""The controller's side of its actor: Slurm's commands and proofs, asked over the channel."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from astraeus_protocol.signing import KeyFault

from ..slurm.command import Away, Commands, Refused, to_bytes, to_text
from . import wire
from .munge import DEADLINE_S, WAITS_S, Busy, Unproven
from .prover import Asker, Claim

PATIENCE_S = 10.0
"""Beyond a command's own deadline, which the actor keeps: for its turn, and for a child that is slow to die."""
PROOF_S = WAITS_S + DEADLINE_S + 1
"""For a turn and an answer of munged; a monitor waits for 13 s."""
FAULTS: dict[str, type[Exception]] = {"refused": Refused, "away": Away, "unproven": Unproven, "busy": Busy,
                                      "key": KeyFault}


class ActorClient(Commands):
    """As ``Commands`` and as a Prover, by asking. ``gone`` is set once the actor has ended."""

    def __init__(self, channel: socket.socket, timeout_s: float = 15) -> None:
        super().__init__(timeout_s=timeout_s)
        self.gone = asyncio.Event()
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[wire.Answer]] = {}
        self._next = 0
        self._opening = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None

    async def run(self, *args: str, timeout_s: float | None = None) -> str:
        """What the command prints. Raises Refused or Away."""
        deadline = timeout_s or self.timeout_s
        answer = await self._ask(lambda number: wire.RunSlurm(number, [to_bytes(one) for one in args], deadline),
                                 deadline + PATIENCE_S)
        assert isinstance(answer, wire.Printed)
        return to_text(answer.out)

    async def node(self, credential: str) -> Claim:
        """A node's proof. Raises Unproven, Busy or KeyFault."""
        try:
            answer = await self._ask(lambda number: wire.NodeHello(number, credential), PROOF_S)
        except Away as fault:
            raise Busy(str(fault)) from None
        assert isinstance(answer, wire.Node)
        return Claim(answer.node, answer.key, answer.host, answer.address)

    async def reader(self, credential: str) -> Asker:
        """A reader's proof. Raises Unproven or Busy."""
        try:
            answer = await self._ask(lambda number: wire.ReaderHello(number, credential), PROOF_S)
        except Away as fault:
            raise Busy(str(fault)) from None
        assert isinstance(answer, wire.Who)
        return Asker(answer.uid, answer.request)

    async def _ask(self, make: Callable[[int], wire.Ask], patience_s: float) -> wire.Answer:
        writer = await self._open()
        if self.gone.is_set():
            raise Away("the controller's actor has ended")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            writer.write(wire.packed(make(number)))
            async with asyncio.timeout(patience_s):
                answer: wire.Answer = await future
        except (TimeoutError, ConnectionError):
            raise Away("the controller's actor gave no answer in time") from None
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, wire.Fault):
            raise FAULTS.get(answer.kind, Away)(answer.words)
        return answer

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=1 << 20)
                self._listener = asyncio.create_task(self._listen(reader))
            return self._writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                answer = wire.ANSWER.decode(await wire.read(reader))
                waiting = self._waiting.get(answer.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except EOFError:
            self.gone.set()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_result(wire.Fault(0, "away", "the controller's actor has ended"))
