"""One look at the node's RDMA rails, made in a child with a deadline: a line for each port as it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..host import infiniband as ib
from ..host.topology import TopologyFault, peers


class Trying(msgspec.Struct, tag="trying"):
    """A device of which is now found out what it is."""

    device: str


class Found(msgspec.Struct, tag="found", omit_defaults=True):
    """What is there, before the ports are read."""

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


DECODER = msgspec.json.Decoder(Trying | Found | Wired | Told)


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

    def order(self, names: Iterable[str]) -> list[str]:
        """Names of devices in the order in which they are read, without those that are left out."""
        return sorted((name for name in names if name not in self.left_out), key=lambda name: name == self.last)


def look(ask: RailAsk) -> Iterator[msgspec.Struct]:
    """The lines of a look, in a child."""
    folder = ib.folder_of(ask.sysfs)
    there = ask.order(ib.names(folder)[:ib.DEVICES_MAX])
    devices = {device.name: device for device in ask.devices or []}
    compute = ask.compute
    if ask.devices is None or set(there) != devices.keys() - set(ask.left_out):
        devices = {}
        for name in there:
            yield Trying(name)
            devices[name] = ib.device_of(folder, name)
        # With an adapter left out, which of them stand beside a GPU each can't be told anew.
        if not (ask.left_out and compute):
            compute = sorted(ib.compute(ask.sysfs, list(devices.values()), ask.globs))
        yield Found(list(devices.values()), compute)
    for seen in ib.read(folder, [devices[name] for name in ask.order(devices)], compute):
        yield Told(seen)
    if ask.devices is None and (ask.topology or ask.topology_found):
        yield _wired(ask)  # last: a file on a storage that hangs costs no rail


def _wired(ask: RailAsk) -> Wired:
    wired = Wired()
    for path, into in ((ask.topology, wired.wanted), (ask.topology_found, wired.peers)):
        try:
            for (device, port), peer in peers(path, ask.node).items() if path else ():
                into.append((device, port, peer))
        except TopologyFault as fault:
            wired.faults.append(str(fault))
    return wired
