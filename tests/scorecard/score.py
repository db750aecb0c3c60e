"""Holds what a recording leads to against its verdict line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astraeus_controller.replay import replay

from scorecard.verdict import Case

FOLDER = Path(__file__).parent / "cases"

CAN_TELL = {"state", "wait", "frames"}
"""By what the judge names a rank, for cases of real ranks (``by`` in their verdict) and the scenarios that they were
recorded in. "wait": wait channel, system call, CPU and TCP of many samples; "frames": py-spy's stacks. Where a case
needs what is not in here, at least nobody wrong may be named."""


EARLY_S = 60.0
"""A case whose verdict asks for a suspect within this can be told apart early. What stands on longer looks can't:
NCCL's RAS (two looks of a gang that has long been quiet), an allocation that runs nothing (5 min)."""


@dataclass
class Row:
    """One case's result. ``faults``: what is wrong, empty where all is right; seconds from the fault to the finding."""

    name: str
    title: str
    source: str
    expected: str
    recorded: bool
    faults: list[str]
    suspect_after: float | None
    stalled_after: float | None
    straggler_after: float | None
    said: str
    counts: Counts


@dataclass
class Counts:
    """What the figures are made of; docs/scorecard.md says how."""

    stalls: int = 0
    """Stalled findings that are expected, and of them those that came; and all that were said."""
    found: int = 0
    said: int = 0
    named: bool | None = None
    """The guilty rank is the right one; None: it can't be known, or there is no finding."""
    named_wrongly: bool = False
    """Somebody was named where nobody can be known."""
    wrong_actions: int = 0
    early: bool = False
    """It can be told apart early, and when something was first shown; None: nothing was."""
    shown_after: float | None = None
    warm_after: float | None = None
    """The straggler, from the later of fault and warm-up."""


def score(case: Case) -> Row:
    """Replays a recording and holds what is said against its verdict."""
    verdict = case.verdict
    everything = list(replay(case.lines))
    changes = [change for change in everything if change["kind"] not in ("action", "incident")]
    if verdict.get("begun") is not None:
        # Real ranks start as slowly as their machine lets them: what is said of that is not the case's.
        changes = [change for change in changes if change["now"] >= verdict["begun"]]
    opened = {kind: [c for c in changes if c["kind"] == "open" and c["finding"]["kind"] == kind]
              for kind in ("stalled", "suspect", "node_silent", "straggler", "at_risk")}
    if verdict["expect"] == "stalled":
        faults = _stalled(verdict, opened, changes)
    else:
        faults = _nothing(verdict, opened)
    faults += _stragglers(verdict, opened, changes)
    if len(opened["node_silent"]) != verdict.get("node_silent", 0):
        faults.append(f"{len(opened['node_silent'])} node_silent findings")
    faults += _incidents(verdict, [change for change in everything if change["kind"] == "incident"])
    fault_at = verdict.get("fault_at")
    after = {kind: round(found[0]["now"] - fault_at, 1) if found and fault_at is not None else None
             for kind, found in opened.items()}
    first = [*opened["stalled"], *opened["straggler"], *opened["at_risk"]]
    said = first[0]["event"]["message"] if first else ""
    return Row(case.name, verdict["title"], verdict["source"], verdict["expect"], case.recorded, faults,
               after["suspect"], after["stalled"], after["straggler"], said, _counts(verdict, opened, changes))


def _counts(verdict: dict[str, Any], opened: dict[str, list[Any]], changes: list[Any]) -> Counts:
    stalled, fault_at = opened["stalled"], verdict.get("fault_at") or 0.0
    counts = Counts(said=len(stalled))
    if verdict["expect"] == "nothing":
        counts.wrong_actions = len(stalled)
        return counts
    early = [c for c in stalled if c["now"] < fault_at]
    counts.wrong_actions = len(early)
    shown = [c["now"] for kind in ("suspect", "stalled") for c in opened[kind] if c["now"] >= fault_at]
    counts.shown_after = round(min(shown) - fault_at, 1) if shown else None
    counts.early = (verdict.get("suspect_within") or EARLY_S + 1) <= EARLY_S
    if verdict["expect"] == "stalled":
        counts.stalls = verdict.get("count", 1)
        counts.found = min(counts.stalls, len(stalled) - len(early))
        counts.wrong_actions += sum(c["finding"]["details"].get("finished") is None for c in stalled
                                    if verdict.get("finished"))
        last = [c["finding"] for c in changes if c["kind"] in ("open", "update") and c["finding"]["kind"] == "stalled"]
        known = [field for field in ("rank", "pid") if verdict.get(field) is not None]
        if last and known:
            counts.named = all(last[-1].get(field) == verdict[field] for field in known)
        elif last and "rank" in verdict:
            counts.named_wrongly = last[-1]["rank"] is not None
        return counts
    counts.wrong_actions += len(stalled)
    found = [c["now"] for c in opened["straggler"] if c["finding"]["worker"] == verdict["worker"]]
    if verdict["expect"] == "straggler" and found:
        counts.warm_after = round(found[0] - max(fault_at, verdict.get("warm_at") or 0.0), 1)
    return counts


def _nothing(verdict: dict[str, Any], opened: dict[str, list[Any]]) -> list[str]:
    kinds = ["stalled"] if verdict.get("may_suspect") else ["stalled", "suspect"]
    return [f"{kind} was said: {c['event']['message']}" for kind in kinds for c in opened[kind]]


def _stalled(verdict: dict[str, Any], opened: dict[str, list[Any]], changes: list[Any]) -> list[str]:
    found = opened["stalled"]
    faults = []
    if len(found) != verdict.get("count", 1):
        faults.append(f"{len(found)} stalls were found, not {verdict.get('count', 1)}")
    if not found:
        return faults
    first, finding = found[0], {"action": "alert"} | found[0]["finding"]
    if verdict.get("by") is not None:
        finding |= [c["finding"] for c in changes if c["kind"] != "close" and c["finding"]["kind"] == "stalled"][-1]
    for field in ("worker", "rank", "pid", "node", "rule", "job", "action"):
        if field in verdict and finding.get(field) != verdict[field] and not _not_told(verdict, finding):
            faults.append(f"{field} is {finding.get(field)!r}, not {verdict[field]!r}")
    words = finding.get("details", {}).get("finished")
    if words != verdict.get("finished"):
        faults.append(f"its last words are {words!r}, not {verdict.get('finished')!r}")
    stores = [c["finding"]["details"].get("waits_on", []) for c in changes
              if c["kind"] in ("open", "update") and c["finding"]["kind"] == "stalled"]
    if stores[-1] != verdict.get("waits_on", []):
        faults.append(f"waits on {stores[-1]}, not on {verdict.get('waits_on', [])}")
    late = first["now"] - verdict["fault_at"]
    if not verdict["after"] <= late <= verdict["within"]:
        faults.append(f"found {late:.1f} s after the fault, "
                      f"not between {verdict['after']} and {verdict['within']}")
    causes = [c["finding"]["details"].get("cause", "") for c in changes
              if c["kind"] in ("open", "update") and c["finding"]["kind"] == "stalled"]
    if causes[-1] != verdict.get("cause", causes[-1]):
        faults.append(f"its cause is {causes[-1]!r}, not {verdict['cause']!r}")
    message = first["event"]["message"]
    faults += [f"{words!r} is not said in: {message}" for words in verdict.get("says", [])
               if words not in message]
    faults += _around(verdict, opened, changes)
    return faults


def _stragglers(verdict: dict[str, Any], opened: dict[str, list[Any]], changes: list[Any]) -> list[str]:
    """Who holds the gang back, or is at risk to; of nobody else may anything be said."""
    faults = []
    for kind in ("straggler", "at_risk"):
        wanted, found = verdict["expect"] == kind, opened[kind]
        if not wanted:
            faults += [f"{kind} was said: {c['event']['message']}" for c in found]
            continue
        if len(found) != 1:
            faults.append(f"{len(found)} workers were said to be {kind}")
        for change in found[:1]:
            finding, late = change["finding"], change["now"] - verdict["fault_at"]
            faults += [f"{field} is {finding.get(field)!r}, not {verdict[field]!r}"
                       for field in ("worker", "rank", "node") if finding.get(field) != verdict[field]]
            if not 0 < late <= verdict["within"]:
                faults.append(f"found {late:.1f} s after the fault, not within {verdict['within']} s")
            faults += [f"{words!r} is not said in: {change['event']['message']}" for words in verdict["says"]
                       if words not in change["event"]["message"]]
        closed = [c["event"]["message"] for c in changes if c["kind"] == "close" and c["finding"]["kind"] == kind]
        if closed != verdict.get("over", []):
            faults.append(f"over by {closed}")
    return faults


def _not_told(verdict: dict[str, Any], finding: dict[str, Any]) -> bool:
    """Nobody is named, and the judge can't yet tell by what this case needs."""
    return verdict.get("by", "state") not in CAN_TELL and finding.get("pid") is None


def _around(verdict: dict[str, Any], opened: dict[str, list[Any]], changes: list[Any]) -> list[str]:
    """The suspect before it, and how it ends."""
    faults = []
    if "suspect_within" in verdict:
        early = [c for c in opened["suspect"]
                 if 0 <= c["now"] - verdict["fault_at"] <= verdict["suspect_within"]]
        if not early:
            faults.append(f"not suspect within {verdict['suspect_within']} s")
        elif early[0]["finding"].get("rank") != verdict.get("rank"):
            faults.append(f"suspect names rank {early[0]['finding'].get('rank')}")
    before = [c for c in opened["suspect"] if c["now"] < verdict["fault_at"]]
    faults += [f"suspect before the fault: {c['event']['message']}" for c in before]
    closed = [c["why"] for c in changes if c["kind"] == "close" and c["finding"]["kind"] == "stalled"]
    if closed != verdict.get("closed", []):
        faults.append(f"closed by {closed}, not by {verdict.get('closed', [])}")
    return faults


def _incidents(verdict: dict[str, Any], turns: list[Any]) -> list[str]:
    """What there is at the recording's end, and that each was opened and closed once at most."""
    last = {turn["incident"]["id"]: turn["incident"] for turn in turns}
    found = [{"cause": one["cause"], "subject": one["subject"], "jobs": [job["job"] for job in one["jobs"]],
              "open": one.get("closed_at") is None} for one in last.values()]
    faults = [] if found == verdict.get("incidents", []) else [f"incidents are {found}"]
    said = [turn["event"]["kind"] for turn in turns if turn["event"]]
    if len(said) != sum(1 if one["open"] else 2 for one in found):
        faults.append(f"of {len(found)} incidents was said: {said}")
    return faults
