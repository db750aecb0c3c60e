"""TCP connections with their ``tcp_info``, asked of the kernel by netlink (sock_diag(7), linux/inet_diag.h).

A dump of 130 connections takes half a millisecond; /proc/net/tcp holds no time-outs, and ``ss`` is a process of its
own. The kernel answers for the network namespace in which the socket was made.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Iterator

import msgspec

from .ties import ESTABLISHED

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
REQUEST_DUMP = 0x301
DONE, ERROR = 3, 2
INFO = 2
"""INET_DIAG_INFO, the attribute that holds tcp_info."""
MAX_CONNECTIONS = 20_000
TIMEOUT_S = 1.0
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48s")
_MESSAGE = struct.Struct("=BBBB2s2s16s16s12sIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_BACKOFF, _UNACKED, _LAST_SENT, _LAST_RCVD, _RECEIVED, _NOTSENT = 4, 24, 44, 52, 128, 144
"""Offsets in tcp_info. The kernel only ever appends to it."""
MAPPED = bytes(10) + b"\xff\xff"


class Connection(msgspec.Struct, frozen=True):
    """An established connection; addresses as procfs.Socket writes them: ``ip:port`` in hex."""

    inode: int
    local: str
    remote: str
    queued: int
    """Bytes that came and were not read."""
    read: int | None
    """Bytes that came and were read: it stands still while nobody reads."""
    unacked: int
    """Segments."""
    notsent: int
    """Bytes."""
    backoff: int
    sent_ms: int
    rcvd_ms: int


def connections() -> Iterator[Connection]:
    """Established connections of this process's network namespace, 20,000 at most. Raises OSError."""
    count = 0
    for family in (socket.AF_INET, socket.AF_INET6):
        for part in _dump(family):
            for one in parse(part):
                count += 1
                if count > MAX_CONNECTIONS:
                    raise OSError(errno.E2BIG, f"more than {MAX_CONNECTIONS} connections")
                yield one


def _dump(family: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(TIMEOUT_S)
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INFO - 1), 0, 1 << ESTABLISHED, b"")
        asked.send(_HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + body)
        while True:
            part = asked.recv(1 << 18)
            last = _last(part)
            yield part
            if last:
                return


def _last(part: bytes) -> bool:
    """Whether this part ends the answer. Raises OSError where it says why there is none."""
    if not part:
        return True
    for kind, body in _messages(part):
        if kind == DONE:
            return True
        if kind == ERROR:
            number = -int(struct.unpack_from("=i", body)[0]) if len(body) >= 4 else 0
            if number:
                raise OSError(number, "the kernel tells of no TCP connections")
    return False


def _messages(part: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(part):
        length, kind, _, _, _ = _HEADER.unpack_from(part, at)
        if length < _HEADER.size or at + length > len(part):
            return
        yield kind, part[at + _HEADER.size:at + length]
        at += (length + 3) & ~3


def parse(part: bytes) -> Iterator[Connection]:
    """Connections in one part of an answer; those without tcp_info are left out."""
    for kind, body in _messages(part):
        if kind != SOCK_DIAG_BY_FAMILY or len(body) < _MESSAGE.size:
            continue
        family, _, _, _, sport, dport, src, dst, _, _, queued, _, _, inode = _MESSAGE.unpack_from(body)
        info = _info(body[_MESSAGE.size:])
        if info is None or not inode:
            continue
        received = _number(info, _RECEIVED, 8)
        yield Connection(
            inode=inode, local=_address(family, src, sport), remote=_address(family, dst, dport), queued=queued,
            read=None if received is None else received - queued,
            unacked=_number(info, _UNACKED, 4) or 0, notsent=_number(info, _NOTSENT, 4) or 0,
            backoff=info[_BACKOFF], sent_ms=_number(info, _LAST_SENT, 4) or 0,
            rcvd_ms=_number(info, _LAST_RCVD, 4) or 0)


def _info(attributes: bytes) -> bytes | None:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == INFO:
            info = attributes[at + _ATTRIBUTE.size:at + length]
            return info if len(info) >= _LAST_RCVD + 4 else None
        at += (length + 3) & ~3
    return None


def _number(info: bytes, at: int, size: int) -> int | None:
    """None: an older kernel's tcp_info ends before it."""
    return int.from_bytes(info[at:at + size], sys.byteorder) if len(info) >= at + size else None


def _address(family: int, ip: bytes, port: bytes) -> str:
    if family == socket.AF_INET6 and ip.startswith(MAPPED):
        ip = ip[12:]
    elif family == socket.AF_INET:
        ip = ip[:4]
    words = (int.from_bytes(ip[at:at + 4], sys.byteorder) for at in range(0, len(ip), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{int.from_bytes(port, 'big'):04X}"
