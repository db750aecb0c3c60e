"""When the node's RDMA rails are read, and where the answer goes: each minute, in a child, while a job uses them.

A broken adapter may block who reads it for ever. So each port's answer comes as it is read; a device that did not
answer is left out from then on, for ten minutes, and costs the others one look. While all answer, it is the looker that
reads them: a fork each minute cost four times what the reading does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from ..clock import Clock
from ..config import Config
from ..host import infiniband as ib
from ..host.topology import Peers
from ..probes.children import BUSY, Probes
from ..probes.looker import Looker
from ..probes.rails import DECODER, Found, RailAsk, Told, Wired, look
from ..sources.rail import Wiring
from ..watch.job import JobWatch
from ..watch.step import settings

WHOLE_EVERY_S = 600.0
"""Between two looks at what is there at all, and at the topology files; and when a job comes."""
DEADLINE_S = 2.0
SOON_S = 15.0
"""Between two looks while the controller wants to hear soon: what one node's rails told is to be held against all
others' at the same time. When the links of most nodes went down, those that were read first were named."""
LEFT_OUT_MAX = 3
"""Devices that do not answer; with more of them nothing is read any more."""


class RailLook(msgspec.Struct):
    """A look as it came back. ``found``, ``wired`` None: not looked at, or not come to."""

    found: Found | None = None
    wired: Wired | None = None
    ports: list[ib.PortSeen] = []
    silent: str = ""
    """The device at which the look ended."""
    unread: set[str] = set()
    """Devices of which nothing is known now."""


def taken(ask: RailAsk, lines: Iterable[bytes], why: str) -> RailLook:
    """What came back of a look, which may have ended early: ``why``."""
    look, trying = RailLook(), ""
    for line in lines:
        try:
            one = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(one, Found):
            look.found = one
        elif isinstance(one, Wired):
            look.wired = one
        elif isinstance(one, Told):
            look.ports.append(one.seen)
        else:
            trying = one.device
    devices = {device.name: device for device in (look.found.devices if look.found else ask.devices or [])}
    told = {(seen.device, seen.port) for seen in look.ports}
    missing = [name for name in ask.order(devices) for port in devices[name].ports if (name, port) not in told]
    if why:
        look.silent = trying if trying and not look.found else missing[0] if missing else ""
    look.unread = {*missing, *ask.left_out}
    return look


class Rails:
    """The node's rails, for all jobs that use them."""

    def __init__(self, probes: Probes, looker: Looker, clock: Clock, seen: Callable[[], None]) -> None:
        self.probes, self.looker, self.clock, self.seen = probes, looker, clock, seen
        self.config = Config()
        self.next_at = self.whole_at = self.begun_at = 0.0
        self.devices: list[ib.Device] | None = None
        self.compute: list[tuple[str, int]] = []
        self.wiring, self.wiring_faults = Wiring(), list[str]()
        self.left_out: dict[str, float] = {}
        """Device that did not answer twice to when it is tried again."""
        self.last = ""

    def due(self, now: float, jobs: Iterable[JobWatch], node: str, *, close: bool = False) -> None:
        """Begin a look where one is due: at once for a job that came, for its counters begin with it. ``close``: the
        controller wants to hear soon."""
        using = [job for job in jobs if uses(job)]
        new = any(not job.rails.asked for job in using)
        kind = f"rails {len(self.left_out)}"
        next_at = min(self.next_at, self.begun_at + SOON_S - 0.5) if close else self.next_at
        if not using or (now < next_at and not new) or kind in self.probes.running:
            return
        had = self.devices is not None or any(job.rails.clocks for job in using)
        if not had and not os.path.isdir(ib.folder_of(self.config.sysfs)):
            self._begun(using, now)  # a node without adapters: the folder's name is all that is ever asked of it
            return
        if self.last and self.probes.hangs(kind):
            self.left_out[self.last], self.last = now + WHOLE_EVERY_S, ""
        whole = new or now >= self.whole_at
        if whole and not any(other.startswith("rails ") for other in self.probes.left_behind):
            self.left_out = {name: until for name, until in self.left_out.items() if until > now}
        kind = f"rails {len(self.left_out)}"
        config = self.config
        ask = RailAsk(config.sysfs, config.rails, node, config.topology, config.topology_found,
                      None if whole else self.devices, self.compute, sorted(self.left_out), self.last)
        done = partial(self._looked, ask, using)
        if len(self.left_out) > LEFT_OUT_MAX:
            why = "too many adapters do not answer"
        elif whole or self.last or self.left_out:
            why = self.probes.start(kind, partial(look, ask), done, DEADLINE_S)
        else:
            why = self.looker.start(kind, ask, done, DEADLINE_S)
        if why == BUSY:
            return
        self._begun(using, now)
        self.whole_at = now + WHOLE_EVERY_S if whole else self.whole_at
        if why:
            for job in using:
                job.rails.miss(why)

    def _begun(self, jobs: list[JobWatch], now: float) -> None:
        self.next_at, self.begun_at = now + self.config.rails_s - 0.5, now
        for job in jobs:
            job.rails.asked = True

    def _looked(self, ask: RailAsk, jobs: list[JobWatch], lines: list[bytes], why: str) -> None:
        now = self.clock.boot()
        got = taken(ask, lines, why)
        if got.found is not None:
            self.devices, self.compute = got.found.devices, got.found.compute
        elif ask.devices is None:
            self.devices, self.whole_at = None, now
        if got.wired is not None:
            self.wiring = Wiring()
            self.wiring.peers, self.wiring.wanted = _peers(got.wired.peers), _peers(got.wired.wanted)
            self.wiring_faults = got.wired.faults
        self.wiring.compute = set(self.compute)
        if got.silent and got.silent == self.last:
            self.left_out[got.silent] = now + WHOLE_EVERY_S
        self.last = got.silent
        faults = [*self.wiring_faults,
                  *(f"{name} does not answer" for name in sorted({*ask.left_out, *self.left_out, got.silent} - {""}))]
        if why and not got.silent:
            faults.append(why)
        for job in jobs:
            if self.devices is None:  # it did not come to what is there
                job.rails.miss(", ".join(faults))
            else:
                job.rails.see(got.ports, got.unread, self.wiring, faults, now)
        self.seen()


def uses(job: JobWatch) -> bool:
    """Whether rails matter to it: it has GPUs here, or asked to be watched."""
    return bool(job.running()) and (bool(job.gpus.indices) or any(
        settings(facts) for facts in (job.facts, *(step.facts for step in job.steps.values()))))


def _peers(rows: list[tuple[str, int, str]]) -> Peers:
    return {(device, port): peer for device, port, peer in rows}


