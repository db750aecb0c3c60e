"""What NCCL's RAS answers, JSON (2.28.7 and later) or text (2.24 and later), as communicators. Pure.

A reply in which a communicator is being made hides others (an entry with hash 0 and size 0, seen from 2.28.9 to
2.32.3): it tells nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec
from astraeus_protocol.devices import Ras, RasComm, RasGroup, RasRank
from astraeus_protocol.ras import behind

NAMED_AT_MOST, GROUPS_AT_MOST, COMMS_AT_MOST = 32, 8, 16
IN_PROGRESS = 7
"""ncclInProgress, as init_state."""
ZEROED = "a communicator is being made, and the reply hides others"
NO_COMMS = "it tells of no communicator"
Key = tuple[str, int]
"""(host, PID)"""


class Unread(Exception):
    """The reply can't be read; the message says why."""


class Reply(msgspec.Struct):
    """A reply whole. ``comms``: those of a text reply are only the odd ones."""

    version: str = ""
    text: bool = False
    of: int = 0
    comms: list[RasComm] = []
    processes: set[Key] = set()
    """All that it names."""
    unknown: str = ""


class _State(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False

    @property
    def word(self) -> str:
        if self.abort_flag:
            return "ABORT"
        if self.finalize_called or self.destroy_flag:
            return "FINALIZE"
        return "INIT" if self.init_state else "RUNNING"

    @property
    def error(self) -> int:
        return self.async_error or (self.init_state if self.init_state != IN_PROGRESS else 0)


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    status: _State = msgspec.field(default_factory=_State)
    collective_counts: dict[str, int] = {}


class _Silence(msgspec.Struct):
    unresponsive: bool = False
    considered_dead: bool = False


class _Missing(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    status: _Silence = msgspec.field(default_factory=_Silence)


class _Comm(msgspec.Struct):
    hash: str
    size: int
    secondary_hash: str = ""
    ranks: list[_Rank] = []
    missing_ranks: list[_Missing] = []


class _Json(msgspec.Struct):
    nccl_version: str = ""
    communicators: list[_Comm] = []


_DECODER = msgspec.json.Decoder(_Json)
_LACKS_COMMA = re.compile(rb'("nvml_dev": *-?[0-9]+)(\s*"status")')


def read_json(data: bytes) -> Reply:
    """A JSON reply; what comes before its first brace is left out. Raises Unread.

    2.28 leaves a comma out wherever a rank is missing.
    """
    start = data.find(b"{")
    try:
        told = _DECODER.decode(_LACKS_COMMA.sub(rb"\1,\2", data[max(start, 0):]))
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unread(f"its answer is no JSON: {fault}") from None
    reply = Reply(told.nccl_version[:32], of=len(told.communicators))
    if any(_zero(comm.hash) and not comm.size for comm in told.communicators):
        reply.unknown = ZEROED
        return reply
    reply.comms = [_comm(comm) for comm in told.communicators]
    reply.processes = {(one.host, one.pid) for comm in told.communicators
                       for one in (*comm.ranks, *comm.missing_ranks) if one.pid > 0}
    reply.unknown = "" if reply.comms else NO_COMMS
    return reply


def _zero(number: str) -> bool:
    return not number.removeprefix("0x").strip("0")


def _comm(comm: _Comm) -> RasComm:
    by_counts: dict[tuple[tuple[str, int], ...], list[RasRank]] = {}
    states: dict[str, int] = {}
    errors: dict[str, int] = {}
    for one in comm.ranks:
        counts = tuple(sorted((kind, count) for kind, count in one.collective_counts.items() if count))
        by_counts.setdefault(counts, []).append(_rank(one))
        states[one.status.word] = states.get(one.status.word, 0) + 1
        if one.status.error:
            errors[str(one.status.error)] = errors.get(str(one.status.error), 0) + 1
    missing = []
    for lost in comm.missing_ranks:
        if lost.status.considered_dead or lost.status.unresponsive:
            missing.append(_rank(lost, "dead" if lost.status.considered_dead else "missing"))
        else:  # its process answers, and is no member: it has left already, or is not in yet
            states["NOCOMM"] = states.get("NOCOMM", 0) + 1
    groups = [RasGroup(len(ranks), dict(counts), ranks) for counts, ranks in by_counts.items()]
    return RasComm(f"{comm.hash.removeprefix('0x')} {comm.secondary_hash}", comm.size, missing, len(missing),
                   ordered(groups), states, errors)


def _rank(one: _Rank | _Missing, why: str = "") -> RasRank:
    return RasRank(one.rank, "" if one.host == "unknown" else one.host[:64], max(one.pid, 0), why)


def ordered(groups: Iterable[RasGroup]) -> list[RasGroup]:
    """The fullest first; always in the same order."""
    return sorted(groups, key=lambda g: (-g.n, sorted(g.counts.items())))


def odd(comm: RasComm) -> bool:
    """Something of it is to be told."""
    return bool(comm.missing_n or len(comm.groups) > 1 or comm.errors or len(comm.states) > 1)


def compact(reply: Reply) -> Ras:
    """What a report carries of a reply: odd communicators, those first in which a rank is missing or is waited for
    that itself waits nowhere."""
    comms = [comm for comm in reply.comms if odd(comm)]
    waits = {key for comm in comms for group in behind(comm)[1] for key in _keys(group)}

    def weight(comm: RasComm) -> tuple[bool, bool, int, str]:
        roots = any(key not in waits for group in behind(comm)[0] for key in _keys(group))
        return not comm.missing_n, not roots, -comm.size, comm.id

    return Ras(version=reply.version, text=reply.text, of=reply.of, unknown=reply.unknown, comms=[
        msgspec.structs.replace(comm, missing=comm.missing[:NAMED_AT_MOST], groups=[
            msgspec.structs.replace(group, ranks=group.ranks[:NAMED_AT_MOST])
            for group in comm.groups[:GROUPS_AT_MOST]])
        for comm in sorted(comms, key=weight)[:COMMS_AT_MOST]])


def _keys(group: RasGroup) -> list[Key]:
    return [(one.host, one.pid) for one in group.ranks]


def names_ours(reply: Reply, ours: set[int], here: Callable[[str], bool]) -> bool:
    """Whether it speaks of processes of ours. ``ours``: their PIDs as they see themselves; ``here(host)``: whether an
    address is this node's. A PID alone is not enough: another job's process on another node may have the same."""
    return any(pid in ours and here(host) for host, pid in reply.processes)


class RasWatch:
    """What was said of one step over several looks. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.said: Ras | None = None
        self.at, self.asked_at = 0.0, float("-inf")
        self._still: dict[str, tuple[list[RasGroup], float, int]] = {}
        self._missing: dict[tuple[str, int], tuple[float, int]] = {}

    def see(self, said: Ras, now: float) -> None:
        """Take a look in. One that tells nothing breaks no series: a connection that was refused is no sign."""
        if said.unknown and self.said is not None and not self.said.unknown:
            return  # what was said stands until it is too old
        self.said, self.at = said, now
        if said.unknown:
            return
        still, missing = self._still, self._missing
        self._still, self._missing = {}, {}
        for comm in said.comms:
            groups, since, looks = still.get(comm.id, ([], now, 0))
            self._still[comm.id] = (comm.groups, since, looks + 1) if groups == comm.groups else (comm.groups, now, 1)
            for one in comm.missing:
                since, looks = missing.get((comm.id, one.rank), (now, 0))
                self._missing[comm.id, one.rank] = since, looks + 1

    def clear(self) -> None:
        """Nobody asks any more: its step works again."""
        if self.said is not None:
            self.said, self._still, self._missing = None, {}, {}

    def record(self, now: float) -> Ras | None:
        """For the report."""
        if self.said is None:
            return None
        replace = msgspec.structs.replace
        comms = []
        for comm in self.said.comms:
            _, since, looks = self._still[comm.id]
            comms.append(replace(comm, still_s=round(self.at - since, 2), looks=looks, missing=[
                replace(one, s=round(now - self._missing[comm.id, one.rank][0], 2),
                        looks=self._missing[comm.id, one.rank][1]) for one in comm.missing]))
        return replace(self.said, s=round(now - self.at, 2), comms=comms)
