"""Source ``nccl_log``: what NCCL, PyTorch, Gloo, MLX, XLA and vLLM say of a collective, in a log. Pure.

Classes: ``stuck`` (a collective did not complete), ``aborted`` (a communicator was: proof only while its process
lives on quietly), ``dying`` (the process is being ended for it), ``peer_gone``, ``ambiguous`` (true of slow starts and
compilations, too), ``benign`` (a normal exit), ``restart`` (a launcher starts its workers anew: what was said before
is of another attempt). Wordings: PyTorch 1.13 to 2.14
(torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp), gloo's transport/tcp, MLX's ring backend, XLA's rendezvous, vLLM's
shm_broadcast.

PyTorch's words count only right behind its own ``[E … ProcessGroupNCCL.cpp:616] [Rank 1]``: programs, chats and test
data quote the sentences. The mark may stand anywhere in the line, for it is glued to progress bars.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec
from astraeus_protocol.readings import SANE_WORK, Work

from ..plain import plain

STUCK, ABORTED, DYING, PEER_GONE = "stuck", "aborted", "dying", "peer_gone"
AMBIGUOUS, BENIGN, RESTART = "ambiguous", "benign", "restart"
LINE_MAX = 400
"""Characters of a line that are kept."""
RANKS_MAX = 64
"""Ranks of one line that are kept."""
WORKS_MAX, WORKS_TOLD = 1024, 64
"""Ranks whose numbers are kept, and that are told."""


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line that says something."""

    kind: str
    stack: str
    """nccl, c10d, gloo, mlx, xla, vllm, launcher."""
    line: str
    rank: int | None = None
    """The rank that says so: it waits, so it is not the one that is missing."""
    op: str = ""
    seq: int | None = None
    """Counts per process group: no measure between groups."""
    ran_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    ranks: tuple[int, ...] = ()
    """Those that the line names as missing or lagging."""
    works: tuple[Work, ...] = ()
    """Of each rank that told it of the default process group, the last that it enqueued and completed."""


_MARK = re.compile(
    rb"(?:\[rank(?P<outer>\d+)\]: ?)?\[[EWIF][\d :.]*ProcessGroupNCCL\.cpp:\d+\] ?"
    rb"(?:\[(?P<inside>[^\]\n]{0,200})\] ?){0,2}")
_RANK = re.compile(rb"\bRank (\d+)")
_DEFAULT_GROUP = re.compile(rb"\bdefault_pg\b|\bPG (?:ID )?0 ")
"""Of any other group the numbers count something else, and the rank is the group's."""
_WATCHDOG = (
    rb"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    rb"(?:, NumelIn=\d+, NumelOut=\d+)?, Timeout\(ms\)=\d+\) ran for (?P<ran>\d+) milliseconds before timing out")
_WORK = rb"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)"
_MARKED: tuple[tuple[str, bytes], ...] = (
    (STUCK, _WATCHDOG),
    (STUCK, rb"Timeout at NCCL work: (?P<seq>\d+), " + _WORK),
    (STUCK, rb"Exception \(either an error or timeout\) detected by watchdog at work: (?P<seq>\d+), " + _WORK),
    (STUCK, rb"failure detected by watchdog at work sequence id: (?P<seq>\d+) PG status: " + _WORK),
    (STUCK, rb"Received a dump signal due to a collective timeout from .{0,160}?(?:[Ll]" + _WORK[1:] + rb"|$)"),
    (STUCK, rb"Received a (?:global )?dump signal from |First watchdog to set the dump signal"),
    (STUCK, rb"ProcessGroupNCCL's watchdog detected a collective timeout"),
    (STUCK, rb"ProcessGroupNCCL monitor thread is disabled, but would have (?:terminated|killed)"),
    (STUCK, rb"Aborting process due to timeout on rank \d+ - timeout watchdog detected operation timeout"),
    (DYING, rb"Some NCCL operations have failed or timed out\."),
    (DYING, rb"To avoid data inconsistency, we are taking the entire process down"),
    (DYING, rb"(?:NCCL|Process group) watchdog thread terminated with exception: "),
    (DYING, rb"Terminating the process after attempting to dump debug info"),
    (DYING, rb"Heartbeat monitor timed out! Process will be terminated"),
    (PEER_GONE, rb"remote error detected from rank: (?P<peer>\d+)"),
    (AMBIGUOUS, rb"ProcessGroupNCCL's watchdog got stuck for \d+ seconds"),
    (AMBIGUOUS, rb"Could not acquire GIL within \d+ ms on exit, possible GIL induced hang"),
    (AMBIGUOUS, rb"Failed to check the \"should dump\" flag on TCPStore|Failed to get exception dump flag"),
    (BENIGN, rb"(?:Warning: )?WARNING: (?:process group has NOT been destroyed|destroy_process_group\(\) was not called"
             rb"|NCCL communicator hasn't been destroyed)"),
)
_FREE: tuple[tuple[str, str, bytes], ...] = (
    (STUCK, "nccl", rb"NCCL communicator was aborted on rank (?P<rank>\d+)\. +Original reason for failure was: "
                    rb"(?:\[Rank \d+\] )?" + _WATCHDOG),
    (ABORTED, "nccl", rb"NCCL communicator was aborted on rank (?P<rank>\d+)\."),
    (PEER_GONE, "nccl", rb"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"),
    (PEER_GONE, "nccl", rb"NCCL WARN .{0,80}(?:Connection reset by peer|Connection closed by remote peer)"),
    (STUCK, "gloo", rb"gloo/transport/tcp/\w+\.cc:\d+\] Timed out waiting \d+ms for (?P<op>recv|send) operation"),
    (PEER_GONE, "gloo", rb"gloo/transport/tcp/\w+\.cc:\d+\] (?:Connection closed by peer|Read error) \["),
    (STUCK, "c10d", rb"\[Rank (?P<rank>\d+)\]: Ranks (?P<peers>\d+(?:, \d+)*) failed to pass monitoredBarrier in "),
    (STUCK, "c10d", rb"Rank (?P<rank>\d+) timed out in monitoredBarrier after \d+ ms"),
    (STUCK, "c10d", rb"the lagging/dead/mismatched ranks that caused the desync are:"),
    (STUCK, "mlx", rb"\[ring\] Too many send/recv errors\. Aborting"),
    (PEER_GONE, "mlx", rb"\[ring\] (?:Receiving|Sending) (?:from|to) socket \d+ failed with errno \d+"),
    (PEER_GONE, "mlx", rb"\[ring\] connection to a peer was lost"),
    (DYING, "xla", rb"Termination timeout for `[^`]*` of \d+ seconds exceeded\. Exiting to ensure"),
    (BENIGN, "xla", rb"Thread is unstuck! Warning above was a false-positive"),
    (AMBIGUOUS, "xla", rb"This thread has been waiting for `[^`]*` for \d+ seconds and may be stuck"),
    (AMBIGUOUS, "vllm", rb"No available shared memory broadcast block found in \d+ seconds"),
    (DYING, "vllm", rb"TimeoutError: RPC call to \w+ timed out|EngineDeadError"),
    (RESTART, "launcher", rb"will restart worker group|Rendezvous complete for workers|\] Starting worker group"),
)
_HINTS = (
    b"ProcessGroupNCCL.cpp:", b"NCCL communicator was aborted", b"ncclRemoteError", b"NCCL WARN", b"gloo/transport",
    b"monitoredBarrier", b"caused the desync are", b"[ring] ", b"Termination timeout for", b"Thread is unstuck!",
    b"may be stuck", b"shared memory broadcast block", b"RPC call to", b"EngineDeadError", b"worker group",
    b"Rendezvous complete")
"""One of these is in every line that says something: the rest of a log is passed over at memory speed."""
BEFORE, AFTER = 1000, 2000
"""Bytes of a line around a hint that are looked at."""
_BREAK = re.compile(rb"[\r\n]")
_LABEL = re.compile(rb"\s*(\d{1,6}): ")
"""``srun --label`` writes the task's id before each line."""
_LAGGING = re.compile(rb"\[(\d+(?:, \d+)*)\] (?:joined but didn't finish|finished collective)")
"""The lines below ``… that caused the desync are:`` hold the names."""


@cache
def _marked() -> tuple[tuple[str, re.Pattern[bytes]], ...]:
    """Made at the first call, in the child that follows a job's output: nobody else needs them."""
    return tuple((kind, re.compile(rb"(?:\s*)" + words)) for kind, words in _MARKED)


@cache
def _free() -> tuple[tuple[str, str, re.Pattern[bytes]], ...]:
    return tuple((kind, stack, re.compile(words)) for kind, stack, words in _FREE)


def words(chunk: bytes) -> Iterator[Word]:
    """What the whole lines of ``chunk`` say, in order. CR ends a line as LF does; of a line without end only what
    stands around a hint is looked at."""
    lines: dict[int, int] = {}
    for hint in _HINTS:
        at = chunk.find(hint)
        while at >= 0:
            floor, ceiling = max(0, at - BEFORE), at + AFTER
            begin = max(chunk.rfind(b"\n", floor, at) + 1, chunk.rfind(b"\r", floor, at) + 1, floor)
            end = _BREAK.search(chunk, at, ceiling)
            until = end.start() if end else min(ceiling, len(chunk))
            lines[begin] = max(until, lines.get(begin, 0))
            at = chunk.find(hint, until)
    for begin in sorted(lines):
        word = classify(chunk[begin:lines[begin]])
        if word is not None and word.line.endswith("caused the desync are:"):
            named = _LAGGING.findall(chunk, lines[begin], lines[begin] + BEFORE)
            ranks = {int(rank) for one in named for rank in one.split(b", ")}
            word = msgspec.structs.replace(word, ranks=tuple(sorted(ranks)))
        if word is not None:
            yield word


def classify(line: bytes) -> Word | None:
    """What one line says; None for nothing. Of several marks in a line the first that says something counts."""
    for mark in _MARK.finditer(line):
        for kind, pattern in _marked():
            found = pattern.match(line, mark.end())
            if found:
                marked = mark["inside"] or b""
                inside = _RANK.search(marked)
                rank = inside[1] if inside else mark["outer"] or _labelled(line)
                word = _word(kind, "nccl", line[mark.start():], found, rank)
                whole = b"PG " not in marked or _DEFAULT_GROUP.search(marked)
                own = _number(mark["outer"] or rank)
                if whole and own is not None and word.enqueued is not None:
                    word = msgspec.structs.replace(word, works=(Work(own, word.enqueued, word.completed),))
                return word
    for kind, stack, pattern in _free():
        found = pattern.search(line)
        if found:
            return _word(kind, stack, line, found, found.groupdict().get("rank") or _labelled(line))
    return None


def _labelled(line: bytes) -> bytes | None:
    label = _LABEL.match(line)
    return label[1] if label else None


RANKING = (STUCK, ABORTED, DYING, PEER_GONE, AMBIGUOUS, BENIGN)
"""Which of several words is kept: the proof before its consequences."""


def joined(first: Word | None, later: Word) -> Word:
    """The first word of a kind, with the numbers that a later one of the same rank brings: the watchdog says which
    operation timed out in one line, and which work was completed in the next."""
    if first is None:
        return later
    if later.works:
        first = msgspec.structs.replace(first, works=_together(first.works, later.works))
    if None not in (first.rank, later.rank) and first.rank != later.rank:
        return first if first.ranks or not later.ranks else msgspec.structs.replace(first, ranks=later.ranks)
    missing = {name: value for name in _NUMBERS if (value := getattr(later, name)) not in (None, "", ())
               and getattr(first, name) in (None, "", ())}
    return msgspec.structs.replace(first, **missing) if missing else first


def _together(some: tuple[Work, ...], more: tuple[Work, ...]) -> tuple[Work, ...]:
    """One for each rank, the newest; as many as are kept."""
    found = {work.rank: work for work in some}
    for work in more:
        known = found.get(work.rank)
        if known.enqueued <= work.enqueued if known else len(found) < WORKS_MAX:
            found[work.rank] = work
    return tuple(found.values())


def told(works: tuple[Work, ...]) -> tuple[Work, ...]:
    """Those with the lowest numbers and the one with the highest, for a report."""
    ordered = sorted(works, key=lambda work: (work.enqueued, work.rank))
    return tuple(ordered if len(ordered) <= WORKS_TOLD else [*ordered[:WORKS_TOLD - 1], ordered[-1]])


_NUMBERS = ("rank", "op", "seq", "ran_ms", "enqueued", "completed", "ranks")


class Log:
    """A log that is read on as it grows: the first word of each class since the last restart."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = {}
        self.restarted = False
        """A launcher started its workers anew."""
        self.rest = b""

    @property
    def word(self) -> Word | None:
        """The word that stands."""
        return next((self.words[kind] for kind in RANKING if kind in self.words), None)

    def feed(self, chunk: bytes) -> bytes:
        """More of the log; the whole lines that it made, for others to look at. A line that has no end yet waits for
        it, as far as it may matter: its end may never come."""
        whole = self.rest + chunk if self.rest else chunk
        cut = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        self.rest = whole[cut:]
        if len(self.rest) > BEFORE + AFTER:
            self._take(self.rest)
            self.rest = self.rest[-(BEFORE + AFTER):]
        lines = whole[:cut]
        self._take(lines)
        return lines

    def end(self) -> bytes:
        """Nothing more came for a while: a line without end is one, too."""
        lines, self.rest = self.rest, b""
        self._take(lines)
        return lines

    def begin(self) -> None:
        """Another file, or another place in it: a line that began is none."""
        self.rest = b""

    def take(self) -> tuple[bool, list[Word]]:
        """(restarted, words) since it was last asked."""
        told = self.restarted, list(self.words.values())
        self.words, self.restarted = {}, False
        return told

    def _take(self, lines: bytes) -> None:
        for word in words(lines):
            if word.kind == RESTART:
                self.words, self.restarted = {}, True
            else:
                self.words[word.kind] = joined(self.words.get(word.kind), word)


def _word(kind: str, stack: str, line: bytes, found: re.Match[bytes], rank: bytes | None) -> Word:
    groups = found.groupdict()
    peers = groups.get("peers") or groups.get("peer") or b""
    text = line.decode(errors="replace").strip()
    return Word(
        kind=kind, stack=stack, line=plain(text[:LINE_MAX]),
        rank=_number(rank), op=(groups.get("op") or b"").decode(), seq=_number(groups.get("seq")),
        ran_ms=_number(groups.get("ran")), enqueued=_number(groups.get("enqueued")),
        completed=_number(groups.get("completed")),
        ranks=tuple(peer for p in peers.split(b", ")[:RANKS_MAX] if (peer := _number(p)) is not None))


def _number(text: bytes | None) -> int | None:
    """None where there is none, and for what can't be a count of operations."""
    return int(text) if text and len(text) < 17 and 0 <= int(text) < SANE_WORK else None
