"""Writes a world as the controller would have recorded it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from astraeus_protocol.report import Report

from scorecard.world import BOOT, EVERY, WALL, World, within


def record(world: World, verdict: dict[str, Any], config: str = "") -> str:
    """The recording as JSON lines: the verdict, then what the controller would have written."""
    worlds = [world, *world.more]
    for one in worlds:
        one.settle()
    nodes = sorted({node for w in worlds for node in w.nodes})
    end = max(w.end for w in worlds)
    lines: list[tuple[float, str, Any]] = [(0, "meta", {"v": 1, "cluster": "lab", "started": WALL})]
    if config:
        lines.append((0, "config", config))
    for t in range(20, int(end), 60):
        alive = [w.row_at(t) for w in worlds if w.begin <= t < w.end]
        lines.append((t + 0.9, "slurm", {"jobs": alive}))
    lines += [(w.begin + 5.5, "job", w.facts_at(w.begin + 5.5)) for w in worlds]
    apart = min(0.1, 1 / len(nodes))
    for place, node in enumerate(nodes):
        for seq, t in enumerate(range(0, int(end), EVERY)):
            at = t + apart * (place + 1)
            if any(within(w.lost.get(node, []), at) is not None for w in worlds):
                continue
            lines.append((at, "report", _report(worlds, node, seq, at)))
    first = {"kind": "verdict", **verdict}
    if "fault_at" in verdict:
        first["fault_at"] = BOOT + verdict["fault_at"]
    out = [json.dumps(first, ensure_ascii=False)]
    for at, kind, data in sorted(lines, key=lambda line: line[0]):
        line = {"kind": kind, "now": round(BOOT + at, 3), "wall": round(WALL + at, 3), "data": data}
        out.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(out) + "\n"


def _report(worlds: list[World], node: str, seq: int, at: float) -> Any:
    jobs = [job for w in worlds if (job := w.job_at(node, at))]
    skew = sum(w.skew.get(node, 0.0) for w in worlds)
    report = Report(node=node, boot=f"boot-{node}", session=f"s-{node}", seq=seq, nonce=f"{node}-{seq}",
                    at=round(WALL + at + skew, 1), cluster="lab", jobs=jobs)
    told = _rounded(msgspec.to_builtins(report))
    old = next((w.wire[node] for w in worlds if node in w.wire), None)
    return told if old is None else told | {"v": old, "version": "0.0.9", "load": 3.5}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
