"""Recordings: every report and every word of Slurm's as JSON lines. docs/report.md, "Recordings".

A line is ``{"kind": …, "now": CLOCK_BOOTTIME, "wall": Unix seconds, "data": …}``. Kinds: ``meta``,
``config``, ``report``, ``slurm``, ``job``; a reader skips kinds that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec
from astraeus_protocol import VERSION
from astraeus_protocol.report import Report

from .slurm.types import JobFacts, Snapshot

FORMAT = 1
"""Version of the format. A reader takes this one only; a new field needs no new version."""


class RecordingFault(Exception):
    """A recording can't be read; the text is one sentence with the line's number."""


class Meta(msgspec.Struct, frozen=True):
    """The first line: what was recorded, by which version."""

    v: int
    cluster: str
    started: float
    """Unix seconds."""
    version: str = VERSION


class Line(msgspec.Struct, frozen=True):
    """One line, decoded."""

    kind: str
    now: float
    wall: float
    data: Meta | str | Report | Snapshot | JobFacts


class _Raw(msgspec.Struct):
    kind: str
    now: float = 0.0
    wall: float = 0.0
    data: msgspec.Raw = msgspec.Raw(b"null")


_TYPES: dict[str, Any] = {"meta": Meta, "config": str, "report": Report, "slurm": Snapshot, "job": JobFacts}
_DECODERS = {kind: msgspec.json.Decoder(type_) for kind, type_ in _TYPES.items()}
_RAW = msgspec.json.Decoder(_Raw)
_ENCODER = msgspec.json.Encoder()


class Writer:
    """Writes a recording to an open text file. The caller passes both clocks with each line."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def meta(self, cluster: str, now: float, wall: float) -> None:
        self._line("meta", Meta(v=FORMAT, cluster=cluster, started=wall), now, wall)

    def config(self, toml: str, now: float, wall: float) -> None:
        """The site's settings as their file holds them."""
        self._line("config", toml, now, wall)

    def report(self, report: Report, now: float, wall: float) -> None:
        self._line("report", report, now, wall)

    def slurm(self, snapshot: Snapshot, now: float, wall: float) -> None:
        self._line("slurm", snapshot, now, wall)

    def job(self, facts: JobFacts, now: float, wall: float) -> None:
        self._line("job", facts, now, wall)

    def _line(self, kind: str, data: object, now: float, wall: float) -> None:
        line = {"kind": kind, "now": round(now, 3), "wall": round(wall, 3), "data": data}
        self.file.write(_ENCODER.encode(line).decode() + "\n")


def read(lines: Iterable[str]) -> Iterator[Line]:
    """Lines of a recording. RecordingFault where one can't be read; empty lines are skipped, and a last line
    without newline that was cut off by a crash is left out."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            raw = _RAW.decode(text)
            if raw.kind not in _DECODERS:
                continue
            line = Line(raw.kind, raw.now, raw.wall, _DECODERS[raw.kind].decode(raw.data))
        except msgspec.MsgspecError as fault:
            if not text.endswith("\n") and number > 1:
                return
            raise RecordingFault(f"line {number} is no line of a recording: {fault}") from None
        if isinstance(line.data, Meta) and line.data.v != FORMAT:
            raise RecordingFault(f"line {number}: a recording of format {line.data.v}; "
                                 f"this version reads format {FORMAT}")
        yield line
