"""NCCL RAS's text replies (``STATUS``, ``VERBOSE STATUS``), 2.24 to 2.32, as communicators. Pure.

Of ranks that are well a text reply names nobody, and of many it names those that are few, be they ahead or behind.
Its sections Errors and Warnings are always there, also when they are empty.
"""

from __future__ import annotations

import re

import msgspec
from astraeus_protocol.devices import RasComm, RasGroup, RasRank

from .nccl_ras import NO_COMMS, ZEROED, Key, Reply, Unread, ordered

_VERSION = re.compile(r"^NCCL version ([0-9][0-9.]*)", re.M)
_ROW = re.compile(r"^ *(\d+) +(\d+) +\d+ +[\d-]+ +(\d+) +(\d+) +([A-Z]+) +([A-Z,]+) *$")
_BLOCK = re.compile(r"^#(\d+)-(\d+) \(([0-9a-f]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_WHERE = r"GPUs? .* managed by process (\d+) on node (\S+)"
_PROCESS = re.compile(r"^  Process (\d+) on node (\S+) managing GPU")
_LOST = re.compile(r"^  The missing ranks?: ([\d, ]+)$")
_NAMED = re.compile(rf"^  Rank (\d+) -- (?:{_WHERE}|\[process information not found\])$")
_KIND = re.compile(r"^  Communicator ranks have different (\w+) operation counts$")
_MANY = re.compile(r"^  (\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)$")
_ONE = re.compile(rf"^  Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations) -- {_WHERE}$")
_STATES = re.compile(r"^  (\d+) ranks have status (\w+)$")
_STATE = re.compile(rf"^  Rank (\d+) has status (\w+)(?: -- {_WHERE})?$")
_ERRORS = re.compile(r"^  (\d+) ranks reported (.+)$")
_ERROR = re.compile(rf"^  Rank (\d+) reported (.+?) -- {_WHERE}$")

Counts = dict[str, list[tuple[int, int, list[RasRank]]]]
"""Kind to its groups: (count, how many, those that are named)."""


class _Block(msgspec.Struct):
    """What is said of one communicator, over all its sections."""

    id: str
    size: int
    here: int
    status: str
    missing: list[RasRank] = []
    counts: Counts = {}
    states: dict[str, int] = {}
    errors: dict[str, int] = {}


def read_text(data: bytes) -> Reply:
    """A text reply. Raises Unread."""
    text = data.decode(errors="replace").replace("\r", "")
    version = _VERSION.search(text)
    if not version or "Communicators..." not in text:
        raise Unread("its answer is no report")
    reply = Reply(version[1][:32], text=True)
    if "\nWarnings\n" not in text:
        raise Unread("its answer is cut off")
    rows, blocks, lost, dead = {}, {}, [], set()
    block, head, into = None, "", []
    for line in text.split("\n"):
        if row := _ROW.match(line):
            rows[row[1]] = row
            reply.of += int(row[2])
        elif begins := _BLOCK.match(line):
            row = rows.get(begins[1])
            key = f"{begins[3]} {begins[1]}-{begins[2]}"
            block = blocks.setdefault(key, _Block(
                begins[3], int(row[3]) if row else 0, int(row[4]) if row else 0, row[5] if row else ""))
            head, into = begins[4], []
        elif line in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            block, head = None, line
        elif process := _PROCESS.match(line):
            lost.append((process[2], int(process[1])))
            dead |= {lost[-1]} if head == "DEAD" else set()
        elif block is not None:
            into = _take(block, line, into, reply.processes)
    if any(row[3] == "0" for row in rows.values()):
        reply.unknown = ZEROED
    elif not reply.of:
        reply.unknown = NO_COMMS
    reply.processes |= set(lost)
    reply.comms = [_comm(block, lost, dead) for block in blocks.values()] if not reply.unknown else []
    return reply


def _take(block: _Block, line: str, into: list[RasRank], processes: set[Key]) -> list[RasRank]:
    """One line of a communicator's; where ranks that follow by name belong."""
    if many := _MANY.match(line):
        into = []
        _kind(block).append((int(many[2] or 0), int(many[1]), into))
    elif one := _ONE.match(line):
        _kind(block).append((int(one[2] or 0), 1, [_rank(one[1], one[3], one[4], processes)]))
    elif kind := _KIND.match(line):
        block.counts[kind[1].replace("collective", "")] = []
    elif lost := _LOST.match(line):
        block.missing += [RasRank(int(rank), why="missing") for rank in lost[1].replace(",", " ").split()]
    elif states := _STATES.match(line):
        block.states[states[2]] = int(states[1])
        into = []
    elif state := _STATE.match(line):
        block.states[state[2]] = block.states.get(state[2], 0) + 1
        _rank(state[1], state[3] or "0", state[4] or "", processes)
    elif errors := _ERRORS.match(line):
        block.errors[errors[2]] = int(errors[1])
        into = []
    elif error := _ERROR.match(line):
        block.errors[error[2]] = block.errors.get(error[2], 0) + 1
        _rank(error[1], error[3], error[4], processes)
    elif line.startswith("  Missing communicator data"):
        into = block.missing
    elif named := _NAMED.match(line):
        into.append(_rank(named[1], named[2] or "0", named[3] or "", processes))
    return into


def _kind(block: _Block) -> list[tuple[int, int, list[RasRank]]]:
    return block.counts[next(reversed(block.counts))] if block.counts else []


def _rank(rank: str, pid: str, host: str, processes: set[Key]) -> RasRank:
    if int(pid):
        processes.add((host, int(pid)))
    return RasRank(int(rank), host, int(pid))


def _comm(block: _Block, lost: list[Key], dead: set[Key]) -> RasComm:
    missing = block.missing
    if len(missing) == len(lost) == 1 and not missing[0].pid:  # 2.24 names rank and process apart
        missing = [msgspec.structs.replace(missing[0], host=lost[0][0], pid=lost[0][1])]
    missing = [msgspec.structs.replace(one, why="dead" if (one.host, one.pid) in dead else "missing")
               for one in missing]
    states = block.states or {block.status: max(0, block.size - len(missing))}
    return RasComm(block.id, block.size, missing, len(missing), ordered(_groups(block)), states, block.errors)


def _groups(block: _Block) -> list[RasGroup]:
    """Ranks with the same counts. Where of a kind several groups have no names, only that kind can be told of."""
    for kind, groups in block.counts.items():
        if sum(n > len(named) for _, n, named in groups) > 1:
            return [RasGroup(n, _without_zero({kind: count}), named) for count, n, named in groups]
    named = {one.rank: one for groups in block.counts.values() for _, _, ranks in groups for one in ranks}
    rest = {kind: next((count for count, n, ranks in groups if n > len(ranks)), 0)
            for kind, groups in block.counts.items()}
    by_counts: dict[tuple[tuple[str, int], ...], list[RasRank]] = {}
    for rank, one in sorted(named.items()):
        own = dict(rest)
        for kind, groups in block.counts.items():
            own[kind] = next((count for count, _, ranks in groups if any(other.rank == rank for other in ranks)),
                             own[kind])
        by_counts.setdefault(tuple(sorted(own.items())), []).append(one)
    found = [RasGroup(len(ranks), _without_zero(dict(counts)), ranks) for counts, ranks in by_counts.items()]
    others = sum(n for _, n, _ in next(iter(block.counts.values()), [])) - len(named)
    return found + ([RasGroup(others, _without_zero(rest))] if others > 0 else [])


def _without_zero(counts: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in counts.items() if count}
