"""``astraeus-monitor read rail``: the node's RDMA rails as the monitor reads them, here and now.

Should an adapter not answer, this command hangs, and not the monitor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import msgspec
from astraeus_protocol.devices import Rail

from .. import config as configs
from ..clock import Clock
from ..host import infiniband as ib
from ..sources.rail import JobRails, Wiring


class RailReading(msgspec.Struct, tag="rail", omit_defaults=True):
    """Each port of the node. With ``--watch``, ``errors`` and ``flaps`` are of that time."""

    folder: str
    rails: list[Rail]
    counters: dict[str, dict[str, int]] = {}
    """DEVICE/PORT to what its error counters stand at, since they were last cleared; nothing that is zero."""


def as_configured(sysfs: str, watch_s: float) -> RailReading | str:
    """With the site's ``rails``, and its ``sysfs`` where none is given."""
    try:
        config = configs.load(configs.PATH)
    except configs.ConfigFault:
        config = configs.Config()
    return read(sysfs or config.sysfs, config.rails, watch_s, Clock().boot, time.sleep)


def read(sysfs: str, globs: Iterable[str], watch_s: float, now: Callable[[], float],
         sleep: Callable[[float], None]) -> RailReading | str:
    """Once, or twice ``watch_s`` seconds apart. Why there is no reading."""
    if not os.path.isdir(sysfs):
        return f"there is no folder {sysfs}"
    folder = ib.folder_of(sysfs)
    watch, wiring = JobRails(), Wiring()
    seen: list[ib.PortSeen] = []
    for pause in (0.0, watch_s) if watch_s else (0.0,):
        sleep(pause)
        devices = ib.devices(folder)
        wiring.compute = wiring.compute or ib.compute(sysfs, devices, globs)
        seen = list(ib.read(folder, devices, [(d.name, port) for d in devices for port in d.ports]))
        watch.see(seen, set(), wiring, [], now())
    counters = {f"{one.device}/{one.port}": {name: value for name, value in one.counters.items() if value}
                for one in seen}
    return RailReading(folder, watch.records(now()), {place: grown for place, grown in counters.items() if grown})


def text(reading: RailReading) -> str:
    """For people, line by line."""
    if not reading.rails:
        return f"rail: none: there is no RDMA adapter in {reading.folder}"
    lines = []
    for rail in reading.rails:
        lanes = " ".join(filter(None, (f"{rail.width}X" if rail.width else "", rail.speed)))
        speed = "rate unknown" if rail.rate_gb is None else f"{rail.rate_gb:g} Gb/s" + (f" ({lanes})" if lanes else "")
        words = [f"rail: {rail.device}/{rail.port} {rail.layer}".rstrip(), speed,
                 "/".join(filter(None, (rail.state, rail.phys_state))) or "state unknown",
                 f"class {rail.kind}" + (", compute" if rail.compute else "")]
        lines.append(", ".join(words))
        so_far = reading.counters.get(f"{rail.device}/{rail.port}")
        for what, counts in (("so far", so_far), ("grew meanwhile", rail.errors)):
            if counts:
                lines.append(f"  {what}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return "\n".join(lines)
