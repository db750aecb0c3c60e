"""Words of a collective that were heard in output files, and when. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from astraeus_protocol import report

from .nccl_log import RANKING, Word, joined, told


class Heard(msgspec.Struct):
    """A word and when it was heard first and last, CLOCK_BOOTTIME seconds."""

    word: Word
    at: float
    last: float


def said(files: Iterable[dict[str, Heard]], now: float) -> list[report.Said]:
    """The first word of each class in some files, the proof first."""
    found: dict[str, Heard] = {}
    for words in files:
        for kind, heard in words.items():
            have = found.get(kind)
            if have is None:
                found[kind] = Heard(heard.word, heard.at, heard.last)
                continue
            first, later = (have, heard) if have.at <= heard.at else (heard, have)
            found[kind] = Heard(joined(first.word, later.word), first.at, max(first.last, later.last))
    return [report.Said(
        kind=kind, stack=one.word.stack, line=one.word.line, s=round(now - one.at, 2), last_s=round(now - one.last, 2),
        rank=one.word.rank, op=one.word.op, seq=one.word.seq, ran_ms=one.word.ran_ms, enqueued=one.word.enqueued,
        completed=one.word.completed, ranks=one.word.ranks[:64], works=told(one.word.works))
        for kind in RANKING if (one := found.get(kind))]
