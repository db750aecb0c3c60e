"""Prometheus' text format and OpenMetrics, as far as single metrics are asked for. Pure.

Only lines that begin with a wanted name are taken apart, so that 1 MiB of other metrics costs a few passes of
``bytes.find``. A line that can't be read is left out and costs no other line anything. What follows the value (a time
stamp, an exemplar) is not looked at: taken for the value, a time stamp makes a stalled counter look alive.
The grammar: prometheus.io/docs/instrumenting/exposition_formats and the OpenMetrics 1.0 text format; the tests hold
the answers against prometheus-client's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MAX_SERIES = 1000
"""Series of one name that are read; a metric with more is no progress of one rank."""
_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*')
_VALUE = re.compile(rb"[ \t]*([^ \t\r]+)[ \t\r]*(?:$|[-+0-9.eE]+[ \t\r]*(?:$|#)|#)")
_ESCAPED = re.compile(r'\\([n"\\])')


class Series(msgspec.Struct, frozen=True):
    """One sample: its labels and its value, which may be NaN or infinite."""

    labels: dict[str, str]
    value: float


def series(text: bytes, name: str) -> list[Series]:
    """The metric's samples, in the order of the text.

    ``step`` finds ``step``, else ``step_total``: OpenMetrics puts the suffix on a counter's sample alone.
    """
    found = list(_named(text, name.encode()))
    return found or list(_named(text, name.encode() + b"_total"))


def _named(text: bytes, name: bytes) -> Iterator[Series]:
    at, count = 0, 0
    while count < MAX_SERIES:
        at = text.find(name, at)
        if at < 0:
            return
        begin, at = at, at + len(name)
        start = text.rfind(b"\n", 0, begin) + 1
        if text[start:begin].strip(b" \t\r"):
            continue  # in the middle of a line: another metric's label, or a comment
        if text[at:at + 1] not in (b"{", b" ", b"\t"):
            continue  # the beginning of a longer name
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        one = _sample(text[at:end])
        at = end
        if one is not None:
            count += 1
            yield one


def _sample(rest: bytes) -> Series | None:
    """What follows the name on its line: labels, value; None where that can't be read."""
    labels: dict[str, str] = {}
    rest = rest.lstrip(b" \t")
    if rest[:1] == b"{":
        at = 1
        while label := _LABEL.match(rest, at):
            labels[label[1].decode()] = _plain(label[2].decode(errors="replace"))
            at = label.end()
            if rest[at:at + 1] != b",":
                break
            at += 1
        rest = rest[at:].lstrip(b" \t")
        if rest[:1] != b"}":
            return None
        rest = rest[1:]
    value = _VALUE.match(rest)
    if value is None or b"_" in value[1]:  # float() takes 1_000, the format does not
        return None
    try:
        return Series(labels, float(value[1]))
    except ValueError:
        return None


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
