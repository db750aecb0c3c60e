"""The little of HTTP that a report needs. Pure."""

from __future__ import annotations


def parse(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """(status, headers in lower case, body) of an HTTP reply; status 0 when it is none."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not digits(words[1]):
        return 0, {}, b""
    pairs = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, sep, value in pairs if sep}
    length = headers.get("content-length", "")
    return int(words[1]), headers, body[:int(length)] if digits(length) else body


def whole(data: bytes) -> bool:
    """Whether all of a reply has come."""
    head, sep, body = data.partition(b"\r\n\r\n")
    length = parse(head + sep)[1].get("content-length", "") if sep else ""
    return digits(length) and len(body) >= int(length)


def digits(text: str) -> bool:
    """Whether it is a number of nine digits at most."""
    return text.isascii() and text.isdigit() and len(text) < 10
