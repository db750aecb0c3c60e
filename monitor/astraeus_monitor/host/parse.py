"""The texts of /proc, as records. Pure."""

from __future__ import annotations

import msgspec


class Stat(msgspec.Struct, frozen=True):
    """Of /proc/PID/stat: what is needed."""

    pid: int
    comm: str
    state: str
    ppid: int
    start: int
    """Clock ticks since boot."""
    ticks: int
    """utime + stime in clock ticks, all threads."""
    exit_code: int
    """Wait status; only a zombie has one."""
    fresh: bool = True
    """False: all but its state is of a stat line some seconds ago."""
    image: int = 0
    """Address of its stack's start, which the kernel draws anew at exec: tells a process that runs another
    program now. 0 where it may not be read."""


class Status(msgspec.Struct, frozen=True):
    """Of /proc/PID/status: what is needed."""

    switches: int
    """Voluntary context switches of the main thread since its start."""
    tracer: int
    state: str = "?"
    comm: bytes = b""


def parse_stat(pid: int, data: bytes) -> Stat | None:
    """A stat line; None for one that is not whole."""
    head, _, tail = data.rpartition(b")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    return Stat(
        pid=pid, comm=head.partition(b"(")[2].decode(errors="replace"), state=fields[0].decode(),
        ppid=int(fields[1]), start=int(fields[19]), ticks=int(fields[11]) + int(fields[12]),
        exit_code=int(fields[49]) if len(fields) > 49 else 0,
        image=int(fields[25]) if len(fields) > 25 else 0)


def parse_status(data: bytes) -> Status | None:
    """A status file."""
    switches = number(data, b"\nvoluntary_ctxt_switches:")
    if switches is None:
        return None
    at = data.find(b"\nState:\t") + 8
    return Status(switches, number(data, b"\nTracerPid:") or 0, data[at:at + 1].decode() if at >= 8 else "?",
                  data[6:data.find(b"\n")])


def number(data: bytes, key: bytes, base: int = 10) -> int | None:
    """The number behind a key, up to the end of its line; None where the key is not there."""
    at = data.find(key)
    if at < 0:
        return None
    end = data.find(b"\n", at + len(key))
    return int(data[at + len(key):end if end >= 0 else None], base)


def address(text: bytes) -> str:
    """``ip:port`` as net/tcp has it; an IPv4 address that is written as IPv6 comes as IPv4."""
    ip, _, port = text.decode().partition(":")
    if len(ip) == 32 and ip.startswith("0000000000000000FFFF0000"):
        ip = ip[24:]
    return f"{ip}:{port}"
