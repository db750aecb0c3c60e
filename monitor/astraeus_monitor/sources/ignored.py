"""Lines of output that a run or its site wants to be no progress: ``--ignore-output``, ``ignore_output`` of the site.

The C library's extended regular expressions, which the plugin has asked where the option was typed: Python's are
others. Only in the follower: a pattern can be made to take for ever, or all memory, and nothing stops it but the end of
the process.
"""

from __future__ import annotations

import ctypes

_FLAGS = 1 | 8  # REG_EXTENDED | REG_NOSUB in glibc's regex.h
LINE_MAX = 1000
"""Bytes of a line that are held against a pattern."""


class BadPattern(ValueError):
    """It is no regular expression; the message says which."""


class Patterns:
    """Compiled once. Raises BadPattern."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self._libc = ctypes.CDLL(None)
        self._compiled = []
        for text in patterns:
            compiled = ctypes.create_string_buffer(512)  # a regex_t takes 64 bytes with glibc
            if self._libc.regcomp(compiled, text.encode("utf-8", "surrogateescape"), _FLAGS):
                self.close()
                raise BadPattern(f'"{text[:60]}" is no regular expression; write one that grep -E takes')
            self._compiled.append(compiled)

    def close(self) -> None:
        """Give their memory back."""
        for compiled in self._compiled:
            self._libc.regfree(compiled)
        self._compiled = []

    def all_match(self, lines: bytes, *, tasks: int = 0) -> bool:
        """Whether each line is one to be left out. Empty lines are none; ``srun --label``'s prefix of one of
        ``tasks`` ranks is no part of a line."""
        return all(self.match(line, tasks) for line in set(lines.replace(b"\r", b"\n").split(b"\n")) if line.strip())

    def match(self, line: bytes, tasks: int = 0) -> bool:
        """Whether one line is left out."""
        text = unlabelled(line, tasks)[:LINE_MAX].replace(b"\0", b"")
        return any(not self._libc.regexec(compiled, text, 0, None, 0) for compiled in self._compiled)


def unlabelled(line: bytes, tasks: int) -> bytes:
    """A line without ``srun --label``'s prefix, where that names one of ``tasks`` ranks."""
    head, sep, rest = line.partition(b": ")
    digits = head.lstrip()
    return rest if sep and len(digits) <= 6 and digits.isdigit() and int(digits) < tasks else line
