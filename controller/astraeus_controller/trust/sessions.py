"""The nodes' keys, each with what was last heard under it: a report counts once, in order, and fresh."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from astraeus_protocol import hello

STALE_S = 45.0
"""A monitor gives a try up after 25 s: what comes so much later than others of its session was held back."""


class Late(Exception):
    """The report is not taken. ``status``: 401 where the node is to prove itself anew, 409 where it was here before."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Session(msgspec.Struct):
    """``since``: when it began; ``offset``: our clock minus the node's, the least that was seen; seconds."""

    key: bytes
    since: float
    offset: float = float("inf")
    session: str = ""
    seq: int = -1


class Sessions:
    """``clock``: CLOCK_BOOTTIME in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._nodes: dict[str, Session] = {}

    def begin(self, key: bytes) -> Session:
        """A new one; it counts once ``keep`` was told that a report is signed with it."""
        return Session(key, self.clock())

    def of(self, node: str) -> Session:
        """The node's own. Raises Late where there is none (any more)."""
        found = self._nodes.get(node)
        if found is None:
            raise Late(401, "the controller has no key of this node; it is to prove itself")
        if self.clock() - found.since > hello.TAKEN_S:
            raise Late(401, "the node's key is too old; it is to prove itself anew")
        return found

    def fresh(self, session: Session, milliseconds: str) -> None:
        """Raises Late where the report was held back on its way. Counts by the clocks since boot, which nobody sets."""
        if not milliseconds.isascii() or not milliseconds.isdigit() or len(milliseconds) > 15:
            raise Late(401, "the report does not say when it was made")
        offset = self.clock() - int(milliseconds) / 1000
        late = offset - session.offset
        if late > STALE_S:
            raise Late(401, f"the report is {late:.0f} s old; send the newest only")
        session.offset = min(session.offset, offset)

    def keep(self, node: str, session: Session, monitor: str, seq: int) -> None:
        """A verified report: ``monitor`` is its session (the monitor's life), ``seq`` its number there. Raises Late
        where one of that number or a later one was here."""
        if monitor == session.session:
            if seq == session.seq:
                raise Late(409, "this report was here before; send a new one with a number of its own")
            if seq < session.seq:
                raise Late(409, f"report {seq} is older than {session.seq}; send the newest only")
        elif session.session:
            raise Late(401, "another monitor spoke under this key; the node is to prove itself anew")
        session.session, session.seq = monitor, seq
        self._nodes[node] = session
