"""Where the controller is: its host, its port, the addresses of a name."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from .http import digits


class Address(msgspec.Struct):
    """Where the controller's name leads."""

    family: int
    host: str


def resolve(host: str) -> Iterator[Address]:
    """Addresses of a name; asked in a child."""
    try:
        for family, _, _, _, where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            yield Address(int(family), str(where[0]))
    except OSError:
        return


def split(controller: str) -> tuple[str, int]:
    """Host and port of ``http://HOST:PORT``; 6831 where none is given."""
    rest = controller.removeprefix("http://").partition("/")[0]
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = rest.partition(":")
    return host, int(port) if digits(port) else 6831


def literal(host: str) -> tuple[int, str] | None:
    """The address, if ``host`` is one and no name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return int(family), host
    return None
