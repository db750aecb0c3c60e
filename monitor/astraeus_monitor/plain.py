"""Text of others, made fit to be shown."""

from __future__ import annotations


def plain(text: str) -> str:
    """What can't be printed becomes a space: line ends, escapes, halves of characters."""
    return "".join(c if c.isprintable() else " " for c in text)
