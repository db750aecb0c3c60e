"""Source ``rail``: what became of the node's RDMA ports in a job. Pure: what sysfs told in, records out.

Counters count from the job's start: one that stood at 255 for months says nothing of this job. A counter that fell was
cleared, and counts on from there.
"""

from __future__ import annotations

from typing import Any

from astraeus_protocol import report
from astraeus_protocol.devices import Rail
from astraeus_protocol.readings import Unknown

from ..host.infiniband import PortSeen
from ..host.topology import Peers

UP = ("ACTIVE", "ACTIVE_DEFER")
GONE = "GONE"
LINK_DOWNED = "link_downed"
Place = tuple[str, int]


class RailClock:
    """One port in one job. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, seen: PortSeen) -> None:
        self.seen, self.seen_at = seen, 0.0
        self.last: dict[str, int] = {}
        self.grew: dict[str, int] = {}
        self.grew_at: float | None = None
        self.up_at: float | None = None
        """When it was last seen up in this job; None: it never was."""
        self.was_down = False
        self.flaps = 0

    def see(self, seen: PortSeen, now: float) -> None:
        """Take a reading in."""
        self.seen, self.seen_at = seen, now
        for name, value in seen.counters.items():
            last = self.last.get(name, value)
            more = value - last if value >= last else value
            if more:
                self.grew[name] = self.grew.get(name, 0) + more
                self.grew_at = now
            self.last[name] = value
        if seen.state in UP:
            self.flaps += self.was_down and self.up_at is not None
            self.was_down, self.up_at = False, now
        elif seen.state:
            self.was_down = True

    def gone(self, now: float) -> None:
        """The node has no such port any more."""
        self.see(PortSeen(self.seen.device, self.seen.port, self.seen.layer, self.seen.kind, state=GONE), now)

    def record(self, now: float) -> Rail:
        """For the report, but for what is wired to it."""
        seen, up = self.seen, self.seen.state in UP
        # Read each minute: a link that was lost for less is known by its counter only.
        downed = self.grew.get(LINK_DOWNED, 0) - (0 if up else 1)
        down_s = None if self.up_at is None or not seen.state else 0.0 if up else round(now - self.up_at, 1)
        return Rail(
            seen.device, seen.port, seen.layer, seen.rate_gb, seen.width, seen.speed, seen.state, seen.phys_state,
            kind=seen.kind, errors=dict(self.grew),
            errors_s=None if self.grew_at is None else round(now - self.grew_at, 1),
            flaps=max(self.flaps, downed), down_s=down_s, looked_s=round(now - self.seen_at, 1))

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"device": self.seen.device, "port": self.seen.port, "layer": self.seen.layer, "kind": self.seen.kind,
                "last": self.last, "grew": self.grew, "grew_at": self.grew_at, "up_at": self.up_at,
                "was_down": self.was_down, "flaps": self.flaps}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> RailClock:
        """From the clock file."""
        clock = cls(PortSeen(str(saved["device"]), int(saved["port"]), str(saved["layer"]), str(saved["kind"])))
        clock.last = {str(name): int(value) for name, value in saved["last"].items()}
        clock.grew = {str(name): int(value) for name, value in saved["grew"].items()}
        clock.grew_at = None if saved["grew_at"] is None else float(saved["grew_at"])
        clock.up_at = None if saved["up_at"] is None else float(saved["up_at"])
        clock.was_down, clock.flaps = bool(saved["was_down"]), int(saved["flaps"])
        return clock


class Wiring:
    """What is the node's and no job's: which rails carry the training's data, and what is wired to what."""

    def __init__(self) -> None:
        self.compute: set[Place] = set()
        self.peers: Peers = {}
        self.wanted: Peers = {}


class JobRails:
    """The node's rails since the job came. Their first reading is what they are compared with."""

    def __init__(self) -> None:
        self.asked = False
        """It has been in a look, or in one that failed."""
        self.clocks: dict[Place, RailClock] = {}
        self.wiring = Wiring()
        self.faults: list[str] = []
        """Why some, or all, are not known."""

    def see(self, ports: list[PortSeen], unread: set[str], wiring: Wiring, faults: list[str], now: float) -> None:
        """Take a look in. ``unread``: devices that are there and of which nothing was told."""
        self.wiring, self.faults = wiring, faults
        told = {(seen.device, seen.port): seen for seen in ports}
        for place, seen in told.items():
            self.clocks.setdefault(place, RailClock(seen)).see(seen, now)
        for place, clock in self.clocks.items():
            if place not in told and place[0] not in unread:
                clock.gone(now)

    def miss(self, why: str) -> None:
        """A look told nothing."""
        self.faults = [why]

    def records(self, now: float) -> list[Rail]:
        """What was read, in order; who was restored from a file and not read since has nothing to tell yet."""
        found = []
        for place, clock in sorted(self.clocks.items()):
            if clock.seen_at:
                rail = clock.record(now)
                rail.compute = place in self.wiring.compute
                rail.peer, rail.peer_wanted = self.wiring.peers.get(place, ""), self.wiring.wanted.get(place, "")
                found.append(rail)
        return found

    def tell(self, job: report.Job, now: float) -> None:
        """Into the job's report."""
        job.rails = self.records(now)
        job.unknown = [*job.unknown, *(Unknown("rail", why) for why in self.faults)]

    def save(self) -> list[dict[str, Any]]:
        """For the clock file."""
        return [clock.save() for clock in self.clocks.values()]

    def load(self, saved: list[dict[str, Any]]) -> None:
        """From the clock file."""
        for one in saved:
            clock = RailClock.load(one)
            self.clocks[clock.seen.device, clock.seen.port] = clock
