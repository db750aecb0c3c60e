"""Lengths of time as people type them, and as we say them."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{1,2}):(\d{1,2})")

BARE_NUMBER = (
    "a bare number is not taken: Slurm would read it as minutes, others as seconds; "
    "write {0}s for seconds or {0}m for minutes"
)


def parse_seconds(text: str) -> int:
    """Seconds in ``text``: ``900s``, ``15m``, ``2h``, ``1d``, ``1h30m`` or Slurm's ``[D-]HH:MM:SS``.

    Raises ValueError with a sentence that says what to write instead. Bare numbers are refused because
    Slurm's own options read them as minutes while most people who type 900 mean seconds.
    """
    text = text.strip()
    if text.isdigit():
        raise ValueError(BARE_NUMBER.format(text))
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    words = _WORDS.fullmatch(text)
    if not text or not words:
        raise ValueError(f'"{text}" is not a time; write 90s, 15m, 2h, 1d, 1h30m or HH:MM:SS')
    return sum(int(n or 0) * _UNITS[unit] for n, unit in zip(words.groups(), "dhms", strict=True))


def say_seconds(seconds: float) -> str:
    """A length as the messages say it, one or two units, rounded down: ``45s``, ``12m``, ``1h30m``, ``2d``."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m"
    if left < 86400:
        hours, minutes = divmod(left // 60, 60)
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(left // 3600, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"
