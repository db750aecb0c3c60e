"""The first line of a case: what is right to say of the recording below it. ``docs/scorecard.md`` shows its fields."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta


class CaseFault(Exception):
    """A case file can't be used; the text is one sentence that names the file and says what to write instead."""


def _doc(words: str, **more: Any) -> Meta:
    return Meta(description=words, **more)


class Verdict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The verdict line. Seconds are those of the recording's own clock (``now``)."""

    kind: Literal["verdict"]
    title: Annotated[str, _doc("what happens, in one line; it stands in the table", min_length=1)]
    source: Annotated[str, _doc("where such a thing was seen: an issue, a measurement, a recording; `made up`")]
    expect: Annotated[Literal["stalled", "straggler", "at_risk", "nothing"],
                      _doc("`stalled`, `straggler`, `at_risk`: a fault, and what is to be said of it; `nothing`: a "
                           "look-alike, of which nothing may be said")]
    fault_at: Annotated[float | None, _doc("`now` at which the fault begins. Needed for a fault")] = None
    warm_at: Annotated[float | None, _doc("`now` at which the straggler's warm-up is over, where that is later than "
                                          "the fault: its time counts from there")] = None
    after: Annotated[float | None, _doc("the finding comes so many seconds after the fault at the earliest: what comes "
                                        "sooner was said too early. Needed for `stalled`")] = None
    within: Annotated[float | None, _doc("and at the latest. Needed for a fault")] = None
    suspect_within: Annotated[float | None, _doc(
        "it can be told apart early: a suspect is shown so many seconds after the fault at the latest, with the "
        "verdict's rank. Up to 60 s its time counts in `suspect_p50_s` and `suspect_p90_s`")] = None
    may_suspect: Annotated[bool, _doc("of a look-alike: a suspect may be shown (nothing is done for one)")] = False
    count: Annotated[int, _doc("so many `stalled` findings are right: of several jobs, or of one job again and "
                               "again", ge=1)] = 1
    rule: Annotated[str | None, _doc("the rule that finds it; left out: any")] = None
    job: Annotated[int | None, _doc("the job; left out: any")] = None
    worker: Annotated[str | None, _doc("the worker that is named, or the step where nobody stands out")] = None
    rank: Annotated[int | None, _doc("the guilty rank; `null`: nobody can be known, and nobody may be named; left out: "
                                     "not asked")] = None
    node: Annotated[str | None, _doc("the guilty rank's node")] = None
    pid: Annotated[int | None, _doc("the guilty process, on its node")] = None
    action: Annotated[str | None, _doc("what the run's policy leads to: `alert`, `restart`, `list`")] = None
    cause: Annotated[str | None, _doc("the cause in words, as it is last known")] = None
    says: Annotated[list[str], _doc("pieces that the finding's sentence holds")] = []
    waits_on: Annotated[list[str], _doc("stores that it waits for")] = []
    finished: Annotated[str | None, _doc("last words of a training that is over: never to be requeued")] = None
    closed: Annotated[list[str], _doc("why each `stalled` finding is closed before the recording ends, in order")] = []
    over: Annotated[list[str] | None, _doc("sentences by which a straggler is over; left out: none")] = None
    node_silent: Annotated[int, _doc("so many nodes are said to be silent", ge=0)] = 0
    incidents: Annotated[list[dict[str, Any]], _doc("`cause`, `subject`, `jobs`, `open` of each incident there is at "
                                                    "the end")] = []
    begun: Annotated[float | None, _doc("what is said before this `now` is not the case's: real ranks start as slowly "
                                        "as their machine lets them")] = None
    by: Annotated[Literal["state", "wait", "frames"] | None, _doc(
        "by what the rank is known, in a recording of real ranks: its state, its wait channel and system call, or its "
        "stack")] = None
    seen: Annotated[str | None, _doc("what was seen of the guilty rank on its node: for people")] = None


class Case(msgspec.Struct, frozen=True):
    """A case, read. ``verdict`` holds the fields that its line gives; ``lines`` the recording."""

    name: str
    verdict: dict[str, Any]
    lines: list[str]
    recorded: bool = False
    """Of real ranks."""


SUFFIXES = (".jsonl", ".jsonl.gz")
_NEEDS = {"stalled": ("fault_at", "after", "within"), "straggler": ("fault_at", "within", "worker"),
          "at_risk": ("fault_at", "within", "worker"), "nothing": ()}
RECORDED = "recorded"
"""A source that begins so is a recording of real ranks."""


def paths(folder: Path) -> list[Path]:
    """The folder's cases, by number and name; CaseFault where there are none."""
    found = [path for path in folder.iterdir() if path.name.endswith(SUFFIXES)] if folder.is_dir() else []
    if not found:
        raise CaseFault(f"{folder} holds no case: name a folder with files NAME.jsonl or NAME.jsonl.gz")
    return sorted(found, key=_place)


def _place(path: Path) -> tuple[int, str]:
    number = path.name.partition("-")[0]
    return int(number) if number.isdigit() else 0, path.name


def read(path: Path) -> Case:
    """A case file; CaseFault where it can't be used."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as fault:
        raise CaseFault(f"{path.name} can't be read ({fault}): a case is UTF-8 text, packed with gzip or not") from None
    return parsed(path.name.removesuffix(".gz").removesuffix(".jsonl"), text, path.name)


def parsed(name: str, text: str, where: str = "") -> Case:
    """A case out of its text."""
    where = where or name
    first, *rest = text.splitlines(keepends=True) or [""]
    try:
        msgspec.json.decode(first, type=Verdict)
    except msgspec.MsgspecError as fault:
        raise CaseFault(f"{where}: its first line is no verdict line ({fault}): it must be "
                        '{"kind": "verdict", "title": …, "source": …, "expect": …} with the fields of '
                        "docs/scorecard.md") from None
    verdict = json.loads(first)
    missing = [field for field in _NEEDS[verdict["expect"]] if verdict.get(field) is None]
    if missing:
        raise CaseFault(f"{where}: its verdict line lacks {' and '.join(missing)}, which a case that expects "
                        f"{verdict['expect']} needs")
    if verdict["expect"] == "straggler" and "rank" not in verdict:
        raise CaseFault(f"{where}: its verdict line lacks rank, the rank that holds the gang back")
    if not any(line.strip() for line in rest):
        raise CaseFault(f"{where}: no recording stands below its verdict line: write one with "
                        "`astraeus-controller record FILE`")
    return Case(name, verdict, rest, str(verdict["source"]).startswith(RECORDED))


def fields() -> Iterator[tuple[str, str]]:
    """(field, what it means) of the verdict line, for the page."""
    yield "kind", "`verdict`"
    for name, hint in get_type_hints(Verdict, include_extras=True).items():
        words = [note.description for note in get_args(hint)[1:] if isinstance(note, Meta)]
        if words:
            yield name, words[0] or ""
