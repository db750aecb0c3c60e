"""unmunge as a child with a deadline: who made a credential, says munged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time

import msgspec
from astraeus_protocol import hello

from ..slurm.command import clean_environment

DEADLINE_S = 3.0
AT_ONCE = 4
"""Children at a time: 10,000 nodes that prove themselves anew within seconds must not take every core of slurmctld's
host."""
WAITS_S = 8.0
"""Who has waited longer for his turn is told to come again: a monitor gives up after 13 s, and decoding what nobody
waits for would keep 10,000 nodes out for good."""
WAITING_MAX = 20_000
_LINE = re.compile(r"([A-Z_]+): +(.*)")
_HOST = re.compile(r"(\S+) \(([0-9a-fA-F.:]+)\)")
_NUMBER = re.compile(r".*\((\d+)\)")


class Unproven(Exception):
    """The credential proves nothing; the text says why, in one sentence."""


class Busy(Exception):
    """It can't be told now: munged does not answer, or too many ask."""


class Decoded(msgspec.Struct, frozen=True):
    """What munged says of a credential. ``at``: Unix time of its making; ``host``, ``address``: where."""

    uid: int
    host: str
    address: str
    at: int
    payload: str


class Munge:
    """``program``: unmunge, a name or a path."""

    def __init__(self, program: str = "unmunge") -> None:
        self.program = program
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def decode(self, credential: str) -> Decoded:
        """Raises Unproven where munged refuses it (a replay, an old one, one for another user), Busy where there is no
        answer."""
        if not credential.startswith(hello.MUNGE_PREFIX) or len(credential) > hello.CREDENTIAL_MAX:
            raise Unproven("this is no MUNGE credential")
        if self._waiting >= WAITING_MAX:
            raise Busy("too many credentials wait to be decoded; come again")
        self._waiting += 1
        try:
            came = time.monotonic()
            async with self._turns:
                if time.monotonic() - came > WAITS_S:
                    raise Busy("too many credentials wait to be decoded; come again")
                return await self._run(credential)
        finally:
            self._waiting -= 1

    async def _run(self, credential: str) -> Decoded:
        pipe = asyncio.subprocess.PIPE
        try:
            child = await asyncio.create_subprocess_exec(
                self.program, stdin=pipe, stdout=pipe, stderr=pipe, env=clean_environment())
        except OSError as fault:
            raise Busy(f"can't run {self.program}: {fault.strerror}") from None
        try:
            async with asyncio.timeout(DEADLINE_S):
                out, err = await child.communicate(credential.encode())
        except TimeoutError:
            raise Busy(f"{self.program} gave no answer within {DEADLINE_S:g} s; see whether munged runs here") from None
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, 9)
                await child.wait()
        return parse(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def parse(text: str, fault: str = "") -> Decoded:
    """What unmunge printed. The lines above the first empty one are its own, the payload is the caller's."""
    head, _, payload = text.partition("\n\n")
    said = {found[1]: found[2] for line in head.splitlines() if (found := _LINE.fullmatch(line.rstrip()))}
    status = said.get("STATUS", "")
    if not status:
        raise Busy(f"unmunge can't decode: {' '.join(fault.split())[:200] or 'it printed nothing'}")
    if not status.startswith("Success"):
        raise Unproven(f"MUNGE: {status[:100]}")
    host, uid, at = _HOST.fullmatch(said.get("ENCODE_HOST", "")), *(
        _NUMBER.fullmatch(said.get(key, "")) for key in ("UID", "ENCODE_TIME"))
    if not (host and uid and at):
        raise Busy("unmunge printed another shape than known here")
    return Decoded(int(uid[1]), host[1], host[2], int(at[1]), payload)
