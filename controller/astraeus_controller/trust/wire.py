"""What the controller asks of its actor, and what it is answered: a closed list, msgpack with a length before it."""

from __future__ import annotations

import asyncio
import struct

import msgspec

LENGTH = struct.Struct("!I")
MESSAGE_MAX = 64 << 20
"""squeue of 100,000 jobs prints 20 MiB."""


class RunSlurm(msgspec.Struct, tag=True):
    """Run one of Slurm's commands (``allowed``)."""

    id: int
    argv: list[bytes]
    timeout_s: float


class NodeHello(msgspec.Struct, tag=True):
    """Take a node's credential."""

    id: int
    credential: str


class ReaderHello(msgspec.Struct, tag=True):
    """Decode a reader's credential."""

    id: int
    credential: str


class Printed(msgspec.Struct, tag=True):
    """What the command printed."""

    id: int
    out: bytes


class Node(msgspec.Struct, tag=True):
    """A node that proved itself (``prover.Claim``)."""

    id: int
    node: str
    key: bytes
    host: str
    address: str


class Who(msgspec.Struct, tag=True):
    """A reader who proved himself (``prover.Asker``)."""

    id: int
    uid: int
    request: str


class Fault(msgspec.Struct, tag=True):
    """``kind``: refused, away (of Slurm), unproven, busy, key (of a proof)."""

    id: int
    kind: str
    words: str


Ask = RunSlurm | NodeHello | ReaderHello
Answer = Printed | Node | Who | Fault
ASK = msgspec.msgpack.Decoder(Ask)
ANSWER = msgspec.msgpack.Decoder(Answer)
_ENCODE = msgspec.msgpack.Encoder().encode


def packed(message: Ask | Answer) -> bytes:
    """The message with its length before it."""
    data = _ENCODE(message)
    return LENGTH.pack(len(data)) + data


async def read(stream: asyncio.StreamReader) -> bytes:
    """The next message. Raises EOFError at the end, and where what comes is none."""
    try:
        (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
        if length > MESSAGE_MAX:
            raise EOFError("a message is too long")
        return await stream.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise EOFError("the other side has ended") from None
