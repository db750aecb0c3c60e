"""Source ``written``: bytes that a task's tree writes to files (a checkpoint), and the CPU it uses. Pure."""

from __future__ import annotations

from typing import Any

from ..host.tree import Identity, ProcLook, is_copy, judge

GROWTH = 1 << 20
"""Bytes per look from which the tree is writing."""
SPAN_S = 4
"""A look sooner than this after the one before is left out: events bring looks between those of every 5 s, and half a
second of a checkpoint may hold no write (one was judged a stall because another job began on its node)."""
BUSY_CORE = 0.05
"""Share of one core from which the tree is working."""


class Written:
    """Since when the tree writes 1 MiB or more at each look."""

    def __init__(self) -> None:
        self.counts: dict[Identity, int] | None = None
        self.since: float | None = None
        self.known = False
        self.looked_at = 0.0

    def see(self, procs: list[ProcLook], now: float) -> None:
        """Take a look in: positive changes per process, summed; who comes or goes changes nothing."""
        if self.counts is not None and 0 <= now - self.looked_at < SPAN_S:
            return
        counts = {p.id: p.write_bytes for p in procs if p.write_bytes is not None}
        old, self.counts, before = self.counts, counts, self.looked_at
        self.looked_at = now
        if old is None:
            return
        self.known = bool(counts)
        grown = sum(max(0, count - old.get(key, count)) for key, count in counts.items())
        if grown < GROWTH:
            self.since = None
        elif self.since is None:
            self.since = before

    def seconds(self, now: float) -> float | None:
        """For how long; 0: it does not; None before the second look."""
        if not self.known:
            return None
        return 0.0 if self.since is None else now - self.since

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"since": self.since, "at": self.looked_at,
                "counts": [[*key, n] for key, n in (self.counts or {}).items()]}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.since, self.looked_at = saved["since"], float(saved["at"])
        counts = {(int(pid), int(start)): int(n) for pid, start, n in saved["counts"]}
        self.counts, self.known = counts or None, bool(counts)


class TreeCpu:
    """When a tree last used 5 % of a core, and which parents only launch copies of themselves."""

    def __init__(self, base: float, hertz: float) -> None:
        self.busy_at, self.hertz = base, hertz
        self.ticks: dict[Identity, int] = {}
        self.looked_at = 0.0

    def see(self, procs: list[ProcLook], now: float) -> dict[Identity, bool]:
        """Take a look in; what can be told of parents of copies: True, it only launches them."""
        span = now - self.looked_at
        deltas = {p.id: p.ticks - self.ticks.get(p.id, p.ticks) for p in procs}
        first = not self.ticks
        self.ticks, self.looked_at = {p.id: p.ticks for p in procs}, now
        if first or span <= 0:
            return {}
        if sum(deltas.values()) / self.hertz >= BUSY_CORE * span:
            self.busy_at = now
        verdicts: dict[Identity, bool] = {}
        by_pid = {p.pid: p for p in procs}
        kids: dict[int, list[int]] = {}
        for p in procs:
            parent = by_pid.get(p.ppid)
            if parent and is_copy(p, parent):
                kids.setdefault(parent.pid, []).append(deltas[p.id])
        # Ticks are compared as those of a 15 s look.
        scale = 15 / span
        for pid, ticks in kids.items():
            verdict = judge(round(deltas[by_pid[pid].id] * scale), [round(t * scale) for t in ticks])
            if verdict is not None:
                verdicts[by_pid[pid].id] = verdict
        return verdicts
