"""One look at the node's RDMA rails, made in a child with a deadline: a line for each port as it is read."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..host import infiniband as ib
from ..host.topology import TopologyFault, peers


class Found(msgspec.Struct, tag="found", omit_defaults=True):
    """What is there, before anything is read that may block."""

    devices: list[ib.Device]
    compute: list[tuple[str, int]] = []


class Wired(msgspec.Struct, tag="wired", omit_defaults=True):
    """What the topology files say of this node."""

    peers: list[tuple[str, int, str]] = []
    wanted: list[tuple[str, int, str]] = []
    faults: list[str] = []


class Told(msgspec.Struct, tag="told"):
    """One port's answer."""

    seen: ib.PortSeen


DECODER = msgspec.json.Decoder(Found | Wired | Told)


class RailAsk(msgspec.Struct, tag="rails", omit_defaults=True):
    """What a look is to read. ``devices`` None: what is there is to be found out."""

    sysfs: str
    globs: tuple[str, ...] = ()
    node: str = ""
    topology: str = ""
    topology_found: str = ""
    devices: list[ib.Device] | None = None
    compute: list[tuple[str, int]] = []
    left_out: list[str] = []
    last: str = ""
    """The device that is read last: it was the one that did not answer."""


def look(ask: RailAsk) -> Iterator[msgspec.Struct]:
    """The lines of a look, in a child."""
    folder = ib.folder_of(ask.sysfs)
    devices, compute = ask.devices, ask.compute
    if devices is None or [device.name for device in devices] != ib.names(folder):
        devices = ib.devices(folder)
        compute = sorted(ib.compute(ask.sysfs, devices, ask.globs))
        yield Found(devices, compute)
    if ask.devices is None and (ask.topology or ask.topology_found):
        yield _wired(ask)
    order = sorted(devices, key=lambda device: device.name == ask.last)
    for seen in ib.read(folder, [d for d in order if d.name not in ask.left_out], compute):
        yield Told(seen)


def _wired(ask: RailAsk) -> Wired:
    wired = Wired()
    for path, into in ((ask.topology, wired.wanted), (ask.topology_found, wired.peers)):
        try:
            for (device, port), peer in peers(path, ask.node).items() if path else ():
                into.append((device, port, peer))
        except TopologyFault as fault:
            wired.faults.append(str(fault))
    return wired
