"""The process with the rights: runs Slurm's commands off a closed list, and takes credentials. It speaks no HTTP.

It is forked before the controller opens anything and ends with it: its one channel is a socket pair.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket

from astraeus_protocol.signing import KeyFault

from ..slurm.command import Away, Commands, Refused, to_bytes, to_text
from . import wire
from .allowed import allowed
from .munge import Busy, Unproven
from .prover import Prover

log = logging.getLogger(__name__)
COMMAND_MAX_S = 120.0
KINDS: dict[type[Exception], str] = {Refused: "refused", Away: "away", Unproven: "unproven", Busy: "busy",
                                     KeyFault: "key"}


def start(commands: Commands, prover: Prover) -> socket.socket:
    """Fork the actor; our end of its channel. Before any thread and event loop."""
    ours, its = socket.socketpair()
    pid = os.fork()
    if pid:
        its.close()
        return ours
    status = 1
    try:
        ours.close()
        # systemd's TERM and a terminal's INT go to both: it serves until the controller has ended in good order.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        asyncio.run(Actor(commands, prover).serve(its))
        status = 0
    except BaseException:
        log.exception("the actor broke off")
    finally:
        os._exit(status)


class Actor:
    """``commands`` runs Slurm's, ``prover`` takes credentials; both with rights that the asker lacks."""

    def __init__(self, commands: Commands, prover: Prover) -> None:
        self.commands, self.prover = commands, prover

    async def serve(self, channel: socket.socket) -> None:
        """Answer until the other side ends; what runs then is ended, too."""
        reader, writer = await asyncio.open_connection(sock=channel, limit=1 << 20)
        tasks: set[asyncio.Task[None]] = set()
        with contextlib.suppress(EOFError):
            while True:
                ask = wire.ASK.decode(await wire.read(reader))
                task = asyncio.create_task(self._reply(ask, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reply(self, ask: wire.Ask, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self.answer(ask)
        except tuple(KINDS) as fault:
            kind = next(name for one, name in KINDS.items() if isinstance(fault, one))
            answer = wire.Fault(ask.id, kind, str(fault))
        except Exception as fault:  # one that fails is one that can't be told
            log.exception("the actor could not answer")
            answer = wire.Fault(ask.id, "away", f"the actor failed: {type(fault).__name__}")
        writer.write(wire.packed(answer))
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    async def answer(self, ask: wire.Ask) -> wire.Answer:
        """What is asked, done. Raises what its doing raises."""
        match ask:
            case wire.NodeHello():
                claim = await self.prover.node(ask.credential)
                return wire.Node(ask.id, claim.node, claim.key, claim.host, claim.address)
            case wire.ReaderHello():
                asker = await self.prover.reader(ask.credential)
                return wire.Who(ask.id, asker.uid, asker.request)
            case wire.RunSlurm():
                argv = [to_text(one) for one in ask.argv]
                if not allowed(argv):
                    log.error("a command that is not on the list was asked for: %s", " ".join(argv)[:200])
                    raise Refused("this command is not on the controller's list")
                out = await self.commands.run(*argv, timeout_s=min(max(ask.timeout_s, 0.001), COMMAND_MAX_S))
                return wire.Printed(ask.id, to_bytes(out))
