"""Every option of sbatch, srun and salloc: its range, its default, its words. The one place.

The C plugin's table is kept in step with this one by ``tests/unit/test_options_table.py``. An option travels as
``SPANK_ASTRAEUS_<ENV>`` in Prolog's environment and as ``<key>=<value>`` in the job file and in a step's first line,
always in canonical form: times in seconds, flags as ``1``, free text percent-encoded (so that a value never breaks a
line).
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from .durations import parse_seconds, say_seconds

STALL_AFTER_MIN, STALL_AFTER_MAX, STALL_AFTER_DEFAULT = 30, 604_800, 1_800
GRACE_MIN, GRACE_MAX = 1, 3_600
TEXT_MAX = 200
"""Bytes that a free-text value may take once encoded: a step's first line stays under 512 bytes."""


class Option(msgspec.Struct, frozen=True):
    """One option as a user types it.

    ``kind``: ``time`` (seconds between ``low`` and ``high``), ``flag``, ``choice``, ``metric`` (a Prometheus
    name), ``number``, ``ratio``, ``port``, ``count``, ``path``, ``regex``, ``signal``.
    """

    name: str
    kind: str
    argument: str
    help: str
    low: float = 0
    high: float = 0
    default: str = ""
    choices: tuple[str, ...] = ()
    asks: bool = False
    """Whether giving it asks for the watch (who is watched: docs/rules.md)."""

    @property
    def key(self) -> str:
        """Key in the job file and in Settings: the name with underscores."""
        return self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("stall-after", "time", "TIME", "call the job stalled after TIME without progress (30s to 7d)",
           STALL_AFTER_MIN, STALL_AFTER_MAX, "30m", asks=True),
    Option("restart-stalled", "flag", "", "restart the job when it is stalled (as --stall-action=restart)",
           asks=True),
    Option("stall-action", "choice", "alert|restart", "what to do when the job is stalled",
           default="alert", choices=("alert", "restart"), asks=True),
    Option("no-stall-watch", "flag", "", "do not watch this job"),
    Option("progress-metric", "metric", "NAME", "this metric of the job alone tells its progress", asks=True),
    Option("progress-end", "number", "VALUE", "the progress metric's last value: at it the job is finished"),
    Option("straggler-metric", "metric", "NAME", "a metric that holds each rank's time per iteration"),
    Option("straggler-ratio", "ratio", "R", "how far above the others' median a straggler is (1.01 to 10)",
           1.01, 10, "1.2"),
    Option("metrics-port", "port", "PORT", "a rank's metrics are at PORT + its local id on loopback",
           1, 65535),
    Option("metrics-file", "path", "PATH", "a rank's metrics are in this text file"),
    Option("ignore-output", "regex", "REGEX", "lines of output that match are no progress"),
    Option("stop-signal", "signal", "SIG[@GRACE]", "how the job is asked to stop (grace 1s to 1h)",
           GRACE_MIN, GRACE_MAX, "TERM"),
    Option("max-restarts", "count", "N", "restart at most N times (0 to 100)", 0, 100, "10"),
    Option("avoid-guilty", "flag", "", "restart the job on other nodes than the guilty rank's"),
)
BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS}
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "URG")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run's own settings; None where it said nothing and the site's default holds. Times in seconds."""

    stall_after: int | None = None
    stall_action: str | None = None
    no_stall_watch: bool = False
    progress_metric: str | None = None
    progress_end: float | None = None
    straggler_metric: str | None = None
    straggler_ratio: float | None = None
    metrics_port: int | None = None
    metrics_file: str | None = None
    ignore_output: str | None = None
    stop_signal: str | None = None
    stop_grace: int | None = None
    max_restarts: int | None = None
    avoid_guilty: bool = False
    asked: bool = False
    """Any option that asks for the watch was given."""

    def over(self, under: Settings) -> Settings:
        """These settings where they say something, ``under`` elsewhere: a step's own go over its job's."""
        mine = {name: getattr(self, name) for name in self.__struct_fields__}
        return Settings(**{
            # 0 says something: `in (None, False)` would take --max-restarts=0 for nothing said
            name: getattr(under, name) if value is None or value is False else value
            for name, value in mine.items()
        })


def settings_from(values: Mapping[str, str]) -> Settings:
    """Settings out of canonical ``key: value`` pairs; unknown keys and broken values are left out.

    Values were checked where they were typed; what is broken here came by another way (an older plugin, a
    hand-set variable), and a job must not lose its watch over it.
    """
    found: dict[str, object] = {}
    for key, raw in values.items():
        option = BY_KEY.get(key)
        if option is None:
            continue
        try:
            found.update(_read(option, unquote(raw)))
        except ValueError:
            continue
        if option.asks:
            found["asked"] = True
    return msgspec.convert(found, Settings)


def _read(option: Option, value: str) -> dict[str, object]:
    match option.kind:
        case "flag":
            return {"stall_action": "restart"} if option.key == "restart_stalled" else {option.key: True}
        case "time":
            return {option.key: _within(option, int(value))}
        case "choice":
            if value not in option.choices:
                raise ValueError(value)
            return {option.key: value}
        case "metric":
            if not _METRIC.fullmatch(value):
                raise ValueError(value)
            return {option.key: value}
        case "number":
            return {option.key: float(value)}
        case "ratio":
            return {option.key: _within(option, float(value))}
        case "port" | "count":
            return {option.key: _within(option, int(value))}
        case "signal":
            name, _, grace = value.partition("@")
            if name not in SIGNALS:
                raise ValueError(value)
            return {"stop_signal": name, "stop_grace": int(grace)} if grace else {"stop_signal": name}
        case _:
            return {option.key: value}


def _within(option: Option, value: float) -> float:
    if not option.low <= value <= option.high:
        raise ValueError(value)
    return value


def parse_option(name: str, text: str) -> str:
    """Canonical value of ``--name=text`` as the plugin hands it on; ValueError with a sentence if it is bad.

    The same checks and the same sentences as the C plugin's (spank/parse.c), for the command line's ``try``
    and for the test that compares both.
    """
    option = next((o for o in OPTIONS if o.name == name), None)
    if option is None:
        raise ValueError(f"--{name} is no option of Astraeus")
    try:
        return _canonical(option, text)
    except ValueError as bad:
        raise ValueError(f"--{name}={_shown(text)}: {bad}") from None


def _canonical(option: Option, text: str) -> str:
    """ValueError here is a reason without the option's name."""
    match option.kind:
        case "flag":
            return "1"
        case "time":
            return str(_typed_time(option, "time", text))
        case "choice":
            return _one_of(text in option.choices, text, f"write {' or '.join(option.choices)}")
        case "metric":
            _one_of(_METRIC.fullmatch(text), text,
                    "not a metric name; write letters, digits, _ and :, with no digit first")
            return _one_of(len(text) <= TEXT_MAX, text, f"too long; write at most {TEXT_MAX} bytes")
        case "number":
            return _one_of(_is_number(text), text, "not a number; write one such as 1000 or 0.5")
        case "ratio":
            return _one_of(_is_number(text) and option.low <= float(text) <= option.high, text,
                           f"write a number from {option.low:g} to {option.high:g}")
        case "port" | "count":
            word = "port" if option.kind == "port" else "whole number"
            good = _WHOLE.fullmatch(text) and option.low <= int(text) <= option.high
            _one_of(good, text, f"write a {word} from {option.low:g} to {option.high:g}")
            return str(int(text))
        case "signal":
            return _typed_signal(option, text)
        case _:
            return _typed_text(option, text)


_WHOLE = re.compile(r"[0-9]{1,64}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME_SIGNS = re.compile(r"[0-9dhms:-]+")
_DIGITS = re.compile(r"[0-9]+")


def _one_of(good: object, text: str, reason: str) -> str:
    if not good:
        raise ValueError(reason)
    return text


def _is_number(text: str) -> bool:
    """A finite number that C and Python read alike."""
    return len(text) <= 64 and bool(_NUMBER.fullmatch(text)) and math.isfinite(float(text))


def _typed_time(option: Option, word: str, text: str) -> int:
    if _DIGITS.fullmatch(text):
        shown = _shown(text)
        raise ValueError(
            "a bare number is not taken (Slurm would read it as minutes); "
            f"write {shown}s or {shown}m"
        )
    try:
        seconds = parse_seconds(_one_of(_TIME_SIGNS.fullmatch(text), text, ""))
    except ValueError:
        raise ValueError("not a time; write 90s, 15m, 2h, 1d, 1h30m or HH:MM:SS") from None
    if not option.low <= seconds <= option.high:
        low, high = say_seconds(option.low), say_seconds(option.high)
        raise ValueError(f"out of range; write a {word} from {low} to {high}")
    return seconds


def _typed_signal(option: Option, text: str) -> str:
    name, sep, grace = text.partition("@")
    word = name.upper() if name.isascii() else ""
    word = word[3:] if word.startswith("SIG") else word
    if word not in SIGNALS:
        raise ValueError(
            f"write one of {', '.join(SIGNALS[:-1])} or {SIGNALS[-1]}, "
            "with @GRACE from 1s to 1h if it needs one, such as USR1@5m"
        )
    return f"{word}@{_typed_time(option, 'grace', grace)}" if sep else word


def _typed_text(option: Option, text: str) -> str:
    """A path or a regular expression, percent-encoded."""
    if not text:
        wanted = "the path of a text file" if option.kind == "path" else "a regular expression"
        raise ValueError(f"write {wanted}")
    encoded = quote(text.encode("utf-8", "surrogateescape"), safe="/")
    if len(encoded) > TEXT_MAX:
        raise ValueError(
            f"too long; write at most {TEXT_MAX} bytes "
            "(one that is no letter, digit, _ . - ~ or / counts as three)"
        )
    if option.kind == "regex" and not is_extended_regex(text):
        raise ValueError("not a regular expression; write one that grep -E takes")
    return encoded


def is_extended_regex(text: str) -> bool:
    """Whether the C library takes ``text`` as a POSIX extended regular expression, as the plugin asks it."""
    libc = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(512)  # a regex_t takes 64 bytes with glibc
    flags = 1 | 8  # REG_EXTENDED | REG_NOSUB in glibc's regex.h
    if libc.regcomp(compiled, text.encode("utf-8", "surrogateescape"), flags) != 0:
        return False
    libc.regfree(compiled)
    return True


def _shown(text: str) -> str:
    """``text`` as an error message may show it: control bytes as ``?``, cut after 60 bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    kept = raw[:60]
    if len(raw) > 60:
        while kept and raw[len(kept)] & 0xC0 == 0x80:
            kept = kept[:-1]
        kept += b"..."
    return bytes(b if 0x20 <= b != 0x7F else 0x3F for b in kept).decode("utf-8", "surrogateescape")
