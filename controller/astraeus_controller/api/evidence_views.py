"""What the API answers of one finding's evidence: the readings that it rests on, as they were kept."""

from __future__ import annotations

from typing import Any

from ..history.evidence import Kept
from ..history.stacks import Reading
from . import stack_views, views
from .views import Json, iso

OWN = ("cause", "cause_kind", "by", "where", "waits_on", "stacks")
"""Of a finding's details: said elsewhere in the answer."""


def evidence(of: Kept, stacks: Reading | None) -> Json:
    """``readings``: the step as the judge saw it, cut to the ranks that matter; ages are seconds before ``at``."""
    step = next(iter(of.job.get("steps", ())), {})
    return {
        "id": of.id, "kind": of.finding.kind, "opened_at": iso(of.opened_at), "closed_at": iso(of.closed_at),
        "closed_why": of.why or None, "restarts": of.finding.restarts, "at": iso(of.at),
    } | views.finding(of.finding) | {
        "details": {key: value for key, value in of.finding.details.items() if key not in OWN},
        "log": step.get("log") or None,
        "ends": [{"machine": node, "step": end.step, "log": end.log, "lines": end.lines, "unknown": end.unknown or None}
                 for node, answer in sorted(stacks.answers.items()) for end in answer.ends
                 if end.step == of.finding.step] if stacks else [],
        "said": [_said(one) for one in step.get("said", ())],
        "ranks": [_rank(worker, of.finding.rank, of.finding.pid) for worker in step.get("workers", ())],
        "stacks": stack_views.reading(stacks, []) if stacks else None,
        "readings": of.job,
    }


def _said(one: dict[str, Any]) -> Json:
    said = one.get("said", {})
    return {"kind": said.get("kind"), "rank": said.get("rank"), "line": said.get("line"), "since": iso(one.get("at"))}


def _rank(worker: dict[str, Any], rank: int | None, pid: int | None) -> Json:
    """One rank in a line: what was known of it. ``rank``, ``pid``: who is named."""
    return {
        "rank": worker["rank"], "machine": worker["node"], "state": views.STATES.get(worker["state"], worker["state"]),
        "output_s": worker.get("output_s"), "cpu_idle_s": worker.get("cpu_idle_s"),
        "gpus": [{"index": gpu["index"], "busy": gpu.get("busy"), "idle_s": gpu.get("idle_s")}
                 for gpu in worker.get("gpus", ())],
        "processes": [{"pid": p["pid"], "rank": p.get("rank"), "named": (worker["rank"], p["pid"]) == (rank, pid),
                       "state": p["state"],
                       "state_s": p.get("state_s"), "pulse": p.get("pulse"), "pulse_gone_s": p.get("pulse_gone_s"),
                       "cpu": p.get("cpu"), "wait": p.get("wait"), "place": p.get("place")}
                      for p in worker.get("processes", ())],
        "unknown": [{"source": source, "reason": reason} for source, reason in worker.get("unknown", ())],
    }
