"""``astraeus evidence ID``: what a finding rests on, as it was kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from . import stacks
from .text import Json, busy, clock, safe, span, table

WORDS = {"stalled": "STALLED", "suspect": "SUSPECT"}
BY = {"T": "its state", "Z": "its state", "gone": "its end", "D": "what it waits for in the kernel",
      "late": "PyTorch's numbers of enqueued work", "place": "where its main thread is", "idle": "its CPU",
      "edges": "its connections", "stack": "its Python stack", "named": "what other ranks say", "ras": "NCCL's RAS"}
"""Kinds of evidence, in words; one that is not listed is shown as it is."""


HEAD = (" ", "RANK", "NODE", "PID", "STATE", "OUTPUT", "GPUS", "PULSE", "CPU", "WHERE", "UNKNOWN")


def lines(answer: Json, now: datetime) -> Iterator[str]:
    """The finding, why, by what, the last output, words of a collective, the ranks, their stacks."""
    stall = answer["stall"]
    run = safe(f"{answer['run']} {answer['run_name']}").strip()
    word = WORDS.get(answer["kind"], safe(answer["kind"]))
    yield (f"{answer['id']}: {word}  {safe(answer['worker'])} (run {run}, on {safe(answer['machine'])}) since "
           f"{clock(stall['since'], now)} UTC")
    yield f"  {safe(stall['evidence'])}"
    over = f"; over since {clock(answer['closed_at'], now)}" if answer["closed_at"] else "; open"
    why = f": {safe(answer['closed_why'])}" if answer["closed_why"] not in (None, "over") else ""
    yield f"found at {clock(answer['opened_at'], now)}{over}{why}; attempt {answer['restarts'] + 1}"
    yield f"cause: {safe(stall['cause'] or 'not known')}"
    by = stall["rests_on"]["by"]
    if answer["rank"] is None:
        yield "rank: no rank stands out"
    else:
        yield f"rank: rank {answer['rank']}, " + (f"named by {safe(BY.get(by, by))}" if by else "stalled on its own")
    if stall["rests_on"]["where"]:
        yield f"where: {safe(stall['rests_on']['where'])}"
    yield from _ends(answer)
    for one in answer["said"]:
        rank = "" if one["rank"] is None else f" by rank {one['rank']}"
        yield f"said{rank} at {clock(one['since'], now)} ({safe(one['kind'])}): {safe(one['line'])}"
    rows = [row for rank in answer["ranks"] for row in _rows(rank)]
    if rows:
        yield ""
        yield f"the ranks at {clock(answer['at'], now)} UTC (> named; {_cut(answer)}):"
        yield from table(HEAD, rows)
    if answer["stacks"]:
        yield ""
        yield from stacks.lines(answer["stacks"], now)


def _ends(answer: Json) -> Iterator[str]:
    for end in answer["ends"]:
        yield ""
        if end["unknown"]:
            yield f"the end of {safe(end['log'])} can't be shown: {safe(end['unknown'])}"
            continue
        yield f"the end of {safe(end['log'])}:"
        yield from (f"    {safe(line)}" for line in end["lines"])


def _cut(answer: Json) -> str:
    ranks, shown = answer["details"].get("heard_of"), len(answer["ranks"])
    return f"{shown} of {ranks}" if isinstance(ranks, int) and ranks > shown else "all"


def _rows(rank: Json) -> Iterator[list[str]]:
    """A line per process; one for a rank of which none is known."""
    gpus = ",".join(f"{g['index']}:{busy(g['busy'])}" for g in rank["gpus"])
    unknown = "; ".join(f"{safe(u['source'])}: {safe(u['reason'])}" for u in rank["unknown"]) or "-"
    head = [str(rank["rank"]), safe(rank["machine"])]
    for p in rank["processes"]:
        state = p["state"] if p["state_s"] is None else f"{p['state']} {span(p['state_s'])}"
        pulse = "-" if p["pulse"] is None else f"{p['pulse']:.1f}/s"
        gone = f" gone {span(p['pulse_gone_s'])}" if p["pulse_gone_s"] else ""
        yield [">" if p["named"] else "-", *head, str(p["pid"]), safe(state), span(rank["output_s"]), gpus or "-",
               pulse + gone, "-" if p["cpu"] is None else f"{p['cpu']:.1f}%", _where(p), unknown]
    if not rank["processes"]:
        yield ["-", *head, "-", safe(rank["state"]), span(rank["output_s"]), gpus or "-", "-", "-", "-", unknown]


def _where(process: Json) -> str:
    """``rpc_wait_bit_killable (read) store1:/export``"""
    wait, place = process["wait"] or {}, process["place"] or {}
    seen = wait or place
    call = f" ({seen['call']})" if seen.get("call") else ""
    return safe(f"{seen.get('channel', '')}{call} {wait.get('mount', '')}").strip() or "-"
