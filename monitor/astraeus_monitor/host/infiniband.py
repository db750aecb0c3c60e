"""RDMA adapters as sysfs shows them: /sys/class/infiniband, read in a child, for a broken adapter may never answer.

Only what is asked of the adapter itself: never a network interface's state, for cutting IP does not cut RDMA. What is
odd or missing in one file is left out and ends nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec

from .pci import Place, affine, gpus, place_of

TEXT_BYTES = 256
DEVICES_MAX, PORTS_MAX, COUNTERS_MAX = 256, 4, 32
COUNTERS = {
    "counters": ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors",
                 "excessive_buffer_overrun_errors", "port_xmit_discards", "port_rcv_remote_physical_errors"),
    "hw_counters": ("packet_seq_err", "out_of_sequence", "local_ack_timeout_err", "implied_nak_seq_err",
                    "rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to", "req_transport_retries_exceeded",
                    "rx_icrc_encapsulated", "to_retransmits", "max_retry_exceeded", "seq_err_naks_rcvd",
                    "retrans_pkts", "retrans_timeout_events"),
}
"""Counters of errors by folder; the last line's are Broadcom's and Amazon's. Others count traffic, or what healthy
networks do, too."""
_RATE = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*G[bB]/sec(?:\s*\(\s*([0-9]{1,3})X\s*([A-Z0-9]{0,8})\s*\))?")
_STATE = re.compile(r"\s*[0-9]{1,3}\s*:\s*([A-Za-z_ ]{1,40}?)\s*")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Device(msgspec.Struct):
    """An adapter: what does not change while it is there."""

    name: str
    ports: list[int]
    model: str
    """``MT4129/MT_0000000838``; its PCI ids where it has no name."""
    place: Place
    layers: dict[int, str]
    counters: dict[int, list[str]]
    """Port to the counters that it has: ``hw_counters/out_of_sequence``."""

    def kind(self, port: int) -> str:
        """Its class: ports of one kind are to be compared."""
        return f"{self.model}/{self.layers[port]}"


class PortSeen(msgspec.Struct, omit_defaults=True):
    """What a port told. Counters that are missing or no number are left out."""

    device: str
    port: int
    layer: str = ""
    kind: str = ""
    rate_gb: float | None = None
    width: int | None = None
    speed: str = ""
    state: str = ""
    phys_state: str = ""
    counters: dict[str, int] = {}


def folder_of(sysfs: str) -> str:
    """Where the adapters are: below a tree such as /sys, or the given folder itself (a copy of class/infiniband)."""
    below = f"{sysfs.rstrip('/') or '/'}/class/infiniband"
    if not os.path.isdir(below) and any(os.path.isdir(f"{sysfs}/{name}/ports") for name in names(sysfs)):
        return sysfs
    return below


def names(folder: str) -> list[str]:
    """The adapters' names, in order of their numbers; none where there is no such folder."""
    try:
        found = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return []
    return sorted(found, key=_natural)


def devices(folder: str) -> list[Device]:
    """All adapters; those without a port are none."""
    return [device for name in names(folder)[:DEVICES_MAX] if (device := device_of(folder, name)).ports]


def device_of(folder: str, name: str) -> Device:
    """An adapter, from files that the kernel mostly answers without asking it. A virtual function of one that is here,
    too, has no port to be told: they are many, and what ails them ails that one."""
    base = f"{folder}/{name}"
    ports = sorted(int(port) for port in _listed(f"{base}/ports") if port.isdigit() and len(port) <= 3)[:PORTS_MAX]
    ports = [] if os.path.lexists(f"{base}/device/physfn") else ports
    ids = [_text(f"{base}/device/{one}").strip().removeprefix("0x") for one in ("vendor", "device")]
    chip = _word(f"{base}/hca_type") or ":".join(filter(None, ids)) or name.partition("_")[0]
    layers = {port: _word(f"{base}/ports/{port}/link_layer") for port in ports}
    counters = {}
    for port in ports:
        have = [f"{kind}/{counter}" for kind, known in COUNTERS.items()
                for there in [set(_listed(f"{base}/ports/{port}/{kind}"))] for counter in known if counter in there]
        counters[port] = have[:COUNTERS_MAX]
    return Device(name, ports, "/".join(filter(None, (chip, _word(f"{base}/board_id")))), place_of(f"{base}/device"),
                  layers, counters)


def compute(sysfs: str, found: list[Device], wanted: Iterable[str]) -> set[tuple[str, int]]:
    """(device, port) of the rails that carry the training's data: the ``wanted`` globs, else one adapter beside each
    GPU, else the commonest class. Never by their state: a rail that is down is still one."""
    every = [(device, port) for device in found for port in device.ports]
    globs = list(wanted)
    if globs:
        return {(device.name, port) for device, port in every
                if any(fnmatchcase(device.name, glob) or fnmatchcase(f"{device.name}/{port}", glob) for glob in globs)}
    beside = affine(gpus(sysfs), {device.name: device.place for device in found})
    if beside:
        return {(device.name, port) for device, port in every if device.name in beside}
    counts: dict[str, int] = {}
    for device, port in every:
        counts[device.kind(port)] = counts.get(device.kind(port), 0) + 1
    if not counts:
        return set()
    most = min(counts, key=lambda kind: (-counts[kind], not kind.endswith("/InfiniBand"), kind))
    return {(device.name, port) for device, port in every if device.kind(port) == most}


def read(folder: str, found: Iterable[Device], counted: Iterable[tuple[str, int]]) -> Iterator[PortSeen]:
    """Each port's state, and the error counters of ``counted``: here a broken adapter may block."""
    wanted = set(counted)
    for device in found:
        for port in device.ports:
            base = f"{folder}/{device.name}/ports/{port}"
            seen = PortSeen(device.name, port, device.layers[port], device.kind(port))
            seen.rate_gb, seen.width, seen.speed = rate(_text(f"{base}/rate"))
            seen.state, seen.phys_state = state(_text(f"{base}/state")), state(_text(f"{base}/phys_state"))
            if (device.name, port) in wanted:
                for counter in device.counters[port]:
                    number = _text(f"{base}/{counter}").strip()
                    if number.isascii() and number.isdigit():  # "N/A (no PMA)" is none
                        seen.counters[counter.rpartition("/")[2]] = int(number)
            yield seen


def rate(text: str) -> tuple[float | None, int | None, str]:
    """(Gb/s, lanes, name) of ``100 Gb/sec (2X HDR)``; ``0 GB/sec`` is an empty cage; unknown: None, ""."""
    match = _RATE.match(text)
    if match is None:
        return None, None, ""
    return float(match[1]), int(match[2]) if match[2] else None, match[3] or ""


def state(text: str) -> str:
    """``LinkUp`` of ``  5  :  LinkUp  ``; "" for anything else."""
    match = _STATE.fullmatch(text)
    return match[1] if match else ""


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split("([0-9]+)", name)]


def _word(path: str) -> str:
    """A file's only word, printable; "" where it holds anything else."""
    text = _text(path).strip()
    return text if _NAME.fullmatch(text) else ""


def _text(path: str) -> str:
    """The file's text; "" where there is none: a port without a counter is no fault."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, TEXT_BYTES).decode(errors="replace")
        finally:
            os.close(fd)
    except OSError:
        return ""


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
