"""Source ``finished``: whether the last lines of an output say that the training is over. Pure.

Over: words of the kept list (``last_words``), and after them nothing but the noise with which programs exit. The
same words in the middle of a run are followed by other lines and mean nothing.
"""

from __future__ import annotations

import re

import msgspec

from ..plain import plain
from .last_words import END, ERROR, EXIT, GROUP, NOISE, OTHER, kind_of, said

OVER, GOES_ON, ONLY_NOISE = "over", "goes_on", "only_noise"
"""Verdicts. ``only_noise``: the piece shows nothing else; what came before it decides."""
MAX_LINE = 2000
"""Characters of a line that are looked at: its beginning and its end, as much of each."""
SHOWN = 200
GROUPS_AT_MOST = 8
"""So many ranks that warn of their process group are enough, however large the gang: the piece holds no more."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BREAKS = re.compile(r"[\n\r\x08]+")
_RANK = re.compile(r"\[rank ?(\d{1,6})\]", re.I)
_BLOCK = re.compile(r"\s|Traceback|File |[\w.]+(?:Error|Exception)\b|\^")


class Verdict(msgspec.Struct, frozen=True):
    """``over``, ``goes_on`` or ``only_noise``; ``line``: the last words, 200 printable characters at most."""

    what: str
    line: str = ""


def lines_of(data: bytes, *, whole: bool) -> list[str]:
    """The lines of a file's last bytes, without escapes and NULs; a redrawn progress bar is a line each time.

    ``whole``: they are all of it. Else the first line is cut and left out: of a line without an end nothing is
    left.
    """
    text = _ESCAPES.sub("", data.decode(errors="replace").replace("\0", ""))
    lines = _BREAKS.split(text)
    if not whole:
        lines = lines[1:]
    return [line if len(line) <= MAX_LINE else line[:MAX_LINE // 2] + line[-MAX_LINE // 2:] for line in lines]


def classify(data: bytes, *, whole: bool, ranks: int) -> Verdict:
    """What the last bytes of an output say. ``ranks``: about how many processes write there.

    A process group that was not destroyed is warned of at any exit, that of one rank of many too: it takes more
    than half of them. Such words, and those of a logger that closes, mean nothing after an error: they come at
    the exit of a run that failed, too.
    """
    lines = lines_of(data, whole=whole)
    if _plainly_goes_on(lines):
        return Verdict(GOES_ON)
    last = leaving = first_group = ""
    warned: set[str] = set()
    failed = told = ignored = False
    for line in lines:
        label, message = said(line)
        # "Exception ignored in: …" brings a traceback along that ends nothing.
        ignored = ignored and bool(_BLOCK.match(label))
        kind = NOISE if ignored else kind_of(label, message)
        ignored = ignored or message.startswith("Exception ignored")
        if kind == END:
            last, told = line, True
        elif kind == EXIT:
            leaving = line
        elif kind == GROUP:
            found = _RANK.search(line)
            warned.add(found[1] if found else line[:len(line) - len(label)])
            first_group = first_group or line
        elif kind in (ERROR, OTHER):
            last = leaving = first_group = ""
            warned.clear()
            told, failed = True, failed or kind == ERROR
    if last:
        return Verdict(OVER, shown(last))
    if leaving and not failed:
        return Verdict(OVER, shown(leaving))
    if len(warned) >= min(GROUPS_AT_MOST, ranks // 2 + 1) and not failed:
        return Verdict(OVER, shown(first_group))
    return Verdict(GOES_ON if told or whole else ONLY_NOISE)


def _plainly_goes_on(lines: list[str]) -> bool:
    """The common case, for a fiftieth of the time: the very last line is a run's own."""
    end = next((line for line in reversed(lines) if line.strip()), "")
    return bool(end) and kind_of(*said(end)) == OTHER and not any("Exception ignored" in line for line in lines)


def shown(line: str) -> str:
    """One line of printable text, 200 characters at most."""
    return plain(line.strip()[:SHOWN]).strip()

