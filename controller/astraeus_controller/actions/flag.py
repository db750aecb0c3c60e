"""What a finding says of the node it points at, and in which words it stands in Slurm. Pure.

A GPU that is slowed down or lost, or a bad link, speaks of the node by itself. A guilty rank mostly does not: its own
code hangs. So stalls flag a node once two jobs hung there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from astraeus_protocol.findings import Finding

from ..history.flags import Flag

FLAGGED_S = 30 * 86400
"""Flags of this time count."""
STALLED_JOBS = 2
"""So many jobs with a guilty rank on a node flag it: one is mostly the job's own doing."""
NODES_FAULT = ("gpu", "link")
"""Kinds of flags that speak of the node by themselves; only they drain it by policy."""
BROKEN = ("gpu_lost", "driver")
"""Causes of a stall that are the node's own."""
NOT_THE_NODES = ("finished", "debugger", "rank_stopped", "storage", "loader_dead", "loader", "deadlock", "nothing_runs",
                 "first_collective", "never_began")
"""Causes of which no node is to be blamed, though a rank on one was guilty: the job's own doing, or a store's."""


class Flagged(msgspec.Struct, frozen=True):
    """A node and what counts of it, the oldest first."""

    node: str
    flags: tuple[Flag, ...]

    @property
    def faults(self) -> tuple[Flag, ...]:
        """The node's own."""
        return tuple(flag for flag in self.flags if flag.kind in NODES_FAULT)

    @property
    def flagged(self) -> bool:
        """What was found says something of the node."""
        return bool(self.faults) or len({flag.job for flag in self.flags}) >= STALLED_JOBS

    @property
    def last(self) -> Flag:
        """What is said of it: the youngest of its own faults, else the youngest."""
        return (self.faults or self.flags)[-1]

    @property
    def acts(self) -> bool:
        """One of what flags it comes from a partition in which things are written into Slurm."""
        return any(flag.act for flag in (self.faults or self.flags))


def of_finding(finding: Finding, act: bool) -> Flag | None:
    """The flag of a finding that opened or is known better; None: it says nothing of a node."""
    if finding.rank is None:
        return None
    details = finding.details
    if finding.kind == "straggler":
        kind, words = str(details.get("class")), finding.said
        signs = [sign for sign in _signs(details.get("signs")) if sign.get("class") in NODES_FAULT]
        if not signs:
            return None  # its own time alone may be its own code's
        sign = signs[0]
        kind, words = str(sign["class"]), str(sign["words"])
        gpu, uuid = sign.get("gpu"), sign.get("uuid")
    elif finding.kind == "stalled" and finding.action != "list" and details.get("cause_kind") not in NOT_THE_NODES:
        kind = "gpu" if details.get("cause_kind") in BROKEN else "stall"
        words = str(details["cause"]) if kind == "gpu" and details.get("cause") else f"stalled: {finding.said}"
        gpu, uuid = None, ""
    else:
        return None
    return Flag(key=finding.key, node=finding.node, at=finding.detected_at, kind=kind, job=finding.job, run=finding.run,
                worker=finding.worker, words=words, act=act, gpu=gpu if isinstance(gpu, int) else None,
                uuid=str(uuid or ""))


def flagged(flags: Sequence[Flag]) -> list[Flagged]:
    """By node, sorted."""
    by_node: dict[str, list[Flag]] = {}
    for flag in flags:
        by_node.setdefault(flag.node, []).append(flag)
    return [Flagged(node, tuple(some)) for node, some in sorted(by_node.items())]


def sentence(of: Flagged) -> str:
    """``GPU 3 slowed down by heat: …, 92 C (GPU-8f2…); run 123 at 2026-11-29 14:02 UTC; 3 times in 30 days``, in plain
    ASCII: it goes into Slurm."""
    last = of.last
    card = f" ({last.uuid})" if last.uuid else ""
    at = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    times = f"; {len(of.flags)} times in 30 days" if len(of.flags) > 1 else ""
    who = f"worker {last.worker}" if last.kind == "stall" else f"run {last.run}"
    return f"{_cut(last.words)}{card}; {who} at {at}{times}".replace("°", "")


def _cut(words: str) -> str:
    """So long that what follows has room in 400 bytes."""
    return words if len(words) <= WORDS_MAX else words[:WORDS_MAX - 3].rstrip() + "..."


WORDS_MAX = 240


def _signs(found: object) -> list[dict[str, object]]:
    return [sign for sign in found if isinstance(sign, dict)] if isinstance(found, list) else []
