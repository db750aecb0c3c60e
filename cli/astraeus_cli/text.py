"""Answers as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
RAILS_MAX = 12
"""Lines of rails of which something is off."""


def safe(text: object) -> str:
    """Foreign text for a terminal: what is not printable is shown as an escape, so a job's name does nothing."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def moment(iso: str | None) -> datetime | None:
    """The API's times."""
    return None if not iso else datetime.fromisoformat(iso.replace("Z", "+00:00"))


def clock(iso: str | None, now: datetime) -> str:
    """``14:02``; with its day where it is not today's; ``-`` for none. UTC."""
    at = moment(iso)
    if at is None:
        return "-"
    return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")


def ago(iso: str | None, now: datetime) -> str:
    """``12s``, ``14m``, ``3h``, ``2d``; ``-`` for none."""
    at = moment(iso)
    if at is None:
        return "-"
    return span((now - at).total_seconds())


def span(seconds: float | None) -> str:
    """One unit, rounded down; two digits at most."""
    if seconds is None:
        return "-"
    left = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if left >= 2 * length:
            return f"{left // length}{unit}"
    return f"{left}s"


def stalls(answer: Json, now: datetime) -> Iterator[str]:
    """``STALLED  123-5 (run 123 llm, on c3) since 14:02: …``"""
    words = (("stalled", "STALLED"), ("stragglers", "STRAGGLER"), ("suspects", "SUSPECT"), ("at_risk", "AT RISK"),
             ("silent", "SILENT"))
    for field, word in words:
        for one in answer.get(field) or []:
            if "summary" in one:
                yield f"{word}  run {safe(one['run'])}: {safe(one['summary'])}"
                continue
            run = safe(f"{one['run']} {one['run_name']}").strip()
            since = clock(one["stall"]["since"], now)
            yield (f"{word}  {safe(one['worker'])} (run {run}, on {safe(one['machine'])}) since {since}: "
                   f"{safe(one['stall']['evidence'])}{_cause(one)}" + (
                       f"; incident {one['incident']}" if one.get("incident") else ""))


def _cause(one: Json) -> str:
    """``; cause: rank stopped; evidence 17``"""
    cause, number = one["stall"].get("cause"), one.get("id")
    return (f"; cause: {safe(cause)}" if cause else "") + (f"; evidence {number}" if number else "")


def incidents(answer: Json, now: datetime) -> list[str]:
    """``INCIDENT 3  since 14:02: 4 jobs wait on store1:/export: 123, 124, 2 of other users; no longer stalled: 125``"""
    lines = []
    for one in answer["incidents"]:
        over = f"-{clock(one['closed_at'], now)}, over" if one["closed_at"] else ""
        runs = [safe(job["run"]) for job in one["jobs"] if job["stalled"] or over]
        well = [safe(job["run"]) for job in one["jobs"] if not (job["stalled"] or over)]
        runs += [f"{one['others']} of other users"] if one["others"] else []
        lines.append(f"INCIDENT {one['incident']}  since {clock(one['opened_at'], now)}{over}: {safe(one['said'])}: "
                     f"{', '.join(runs)}" + (f"; no longer stalled: {', '.join(well)}" if well else ""))
    return lines


def nothing(answer: Json) -> str:
    """What is said where no line stands."""
    watched = answer.get("watched", 0)
    if answer.get("faults"):
        return "whether something is stalled can't be told"
    return f"nothing is stalled: {watched} job{'' if watched == 1 else 's'} watched"


def coverage(answer: Json) -> list[str]:
    """What the watcher says of itself: ``WATCHED  40 of 42 running GPU jobs; no monitor: 2``; ``BLIND  …``."""
    lines = [f"BLIND  {safe(fault)}" for fault in answer.get("faults", ())]
    if seen := answer.get("coverage"):
        others = "".join(f"; {safe(why)}: {number}" for why, number in seen["why"].items())
        lines.append(f"WATCHED  {seen['watched']} of {seen['running']} running GPU jobs{others}")
    return lines


def progress(answer: Json, now: datetime) -> Iterator[str]:
    """A header and a table, one line per worker."""
    name = safe(f"{answer['run']} {answer['run_name']}").strip()
    attempt = f", attempt {answer['restarts'] + 1}" if answer["restarts"] else ""
    if answer["ended"]:
        yield f"{name}: ended{attempt}"
    else:
        yield f"{name}: {safe(answer['state'])} on {safe(answer['machines'])}{attempt}; {safe(answer['reason'])}"
    for step in answer["steps"]:
        yield _step(step, now)
    for one in answer.get("findings", ()):
        since = clock(one["stall"]["since"], now)
        yield f"  {one['kind']} since {since}: {safe(one['stall']['evidence'])}{_cause(one)}"
    if answer["silent_machines"]:
        yield f"  silent: {safe(', '.join(answer['silent_machines']))}"
    yield from _rails(answer)
    rows = [_worker(worker, now) for worker in answer["workers"]]
    heads = ["WORKER", "NODE", "PID", "STATE", "OUTPUT", "GPUS", "PULSE", "STALLED IN", "UNKNOWN"]
    if any(worker["metric"] for worker in answer["workers"]):
        heads.insert(5, "METRIC")
        for row, worker in zip(rows, answer["workers"], strict=True):
            row.insert(5, _metric(worker["metric"], now))
    if rows:
        yield from table(tuple(heads), rows)
    for worker in answer["workers"]:
        if noted := list(filter(None, map(gpu_notes, worker["gpus"]))):
            yield f"  {safe(worker['worker'])}: {'; '.join(noted)}"


def _rails(answer: Json) -> Iterator[str]:
    """``c3: rail mlx5_1: is DOWN, Polling for 60 s``: only what is off, or not known."""
    off = [f"{rail['node']}: {words}" for rail in answer.get("rails", ()) for words in rail["off"]]
    off += [f"{one['node']}: rails unknown: {one['reason']}" for one in answer.get("rails_unknown", ())]
    yield from (f"  {safe(line)}" for line in off[:RAILS_MAX])
    if len(off) > RAILS_MAX:
        yield f"  and {len(off) - RAILS_MAX} rails more; --json shows all"


def _step(step: Json, now: datetime) -> str:
    what = f"stalled after {span(step['stall_after_s'])}, {step['action']}" if step["watched"] else step["reason"]
    state = "ended" if step["ended"] else f"last output {ago(step['last_output_at'], now)} ago" if (
        step["last_output_at"]) else "no output seen"
    over = f"; finished but not exited: last words \"{safe(step['finished']['line'])}\"" if (
        step.get("finished") and not step["ended"]) else ""
    heard = "" if step["ended"] else "".join(f"\n    {safe(_heard(one))}" for one in step.get("said", ())[:3])
    chatter = None if step["ended"] else step.get("chatter")
    if chatter and heard:  # steps of a training that is well repeat on a clock, too
        heard += (f"\n    repeats every {span(chatter['every_s'])}, nothing else for {span(chatter['other_s'])}: "
                  f"{safe(chatter['line'])}")
    if step.get("ras") and not step["ended"]:
        heard += f"\n    {safe(_of_ras(step['ras']))}"
    if step.get("preparing"):
        over += f"; {safe(step['preparing'])}"
    return f"  step {safe(step['step'])}: {step['tasks']} tasks, {safe(what)}; {state}{over}{heard}"


def _of_ras(ras: Json) -> str:
    """``NCCL RAS: rank 8 (node gpu-1, PID 4242) is missing: …``; ``NCCL RAS: unknown: …``"""
    if ras["unknown"]:
        return f"NCCL RAS: unknown: {ras['unknown']}"
    return ras["said"] or f"NCCL RAS: names nobody, {span(ras['age_s'])} ago; that is no proof that all is well"


def _heard(one: Json) -> str:
    """``stuck (rank 1): [E … Watchdog caught …``"""
    rank = "" if one["rank"] is None else f" (rank {one['rank']})"
    return f"{one['kind']}{rank}: {one['line']}"


def _metric(metric: Json | None, now: datetime) -> str:
    """``step=4321 12s``: its value and how long ago it changed."""
    if metric is None or metric["value"] is None:
        return "-"
    changed = f" {ago(metric['last_change_at'], now)}" if metric["last_change_at"] else " ?"
    return safe(f"{metric['name']}={metric['value']:.10g}") + changed


def _worker(worker: Json, now: datetime) -> list[str]:
    state = worker["finding"] or worker["state"]
    odd = sorted({p["state"] for p in worker["processes"]} & set("TtZDX"))
    odd += ["storage"] if any((p.get("wait") or {}).get("storage") for p in worker["processes"]) else []
    gpus = ",".join(f"{g['index']}:{busy(g['busy'])}" for g in worker["gpus"])
    return [safe(worker["worker"]), safe(worker["node"]), str(worker["pid"] or "-"),
            safe(state) + (f" ({','.join(odd)})" if odd else ""), ago(worker["last_output_at"], now), gpus or "-",
            "-" if worker["pulse"] is None else f"{worker['pulse']['per_s']:.1f}/s", span(worker["stalled_in_s"]),
            "; ".join(f"{safe(u['source'])}: {safe(u['reason'])}" for u in worker["unknown"]) or "-"]


HOT_C = 3
"""So near to the temperature at which it slows down, a GPU is worth a word."""
HELD = {0x8: "by the hardware", 0x20: "by heat", 0x40: "by heat (hardware)", 0x80: "by the power supply"}
"""Reasons for a held clock that no healthy GPU has: NVML's bits."""


def gpu_notes(gpu: Json) -> str:
    """What is odd about a GPU: ``GPU 3: 1386 of 1980 MHz, held by heat, 92 C; Xid 63``; "" where nothing is."""
    told = gpu.get
    held = [words for bit, words in HELD.items() if (told("reasons") or 0) & bit]
    hot = told("temp_c") is not None and told("slowdown_c") and told("temp_c") >= told("slowdown_c") - HOT_C
    found = []
    if held or hot:
        if told("sm_mhz") is not None:
            found.append(f"{told('sm_mhz'):.0f} of {told('sm_max_mhz') or 0:.0f} MHz")
        found += ["held " + " and ".join(held)] if held else []
        found += [f"{told('temp_c'):.0f} C"] if told("temp_c") is not None else []
    found += [f"{name.replace('_', ' ')} {count}" for name, count in (told("errors") or {}).items()]
    found += ["Xid " + ",".join(map(str, told("xids")))] if told("xids") else []
    found += ["NVLink " + ",".join(map(str, told("nvlinks_down"))) + " down"] if told("nvlinks_down") else []
    for what, unit in (("pcie_width", "x"), ("pcie_gen", "gen ")):
        now, most = told(what), told(f"{what}_max")
        # An idle GPU lets its link fall to the first generation.
        if now and most and now < most and (what == "pcie_width" or (told("busy") or 0) >= BUSY_PERCENT):
            found.append(f"PCIe {unit}{now} of {unit}{most}")
    return safe(f"GPU {gpu['index']}: {', '.join(found)}") if found else ""


BUSY_PERCENT = 50


def busy(percent: float | None) -> str:
    """``99%``, ``?``"""
    return "?" if percent is None else f"{percent:.0f}%"


def history(answer: Json) -> Iterator[str]:
    """``2026-11-29 14:14:05  123-5  Stalled: …``"""
    for event in answer["events"]:
        at = moment(event["at"])
        when = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "-"
        stall = event.get("details", {}).get(event.get("kind", "").replace("stalled", "stall"))
        cause = f"; cause: {safe(stall['cause'])}" if isinstance(stall, dict) and stall.get("cause") else ""
        yield f"{when}  {safe(event['worker'] or event['run'])}  {safe(event['message'])}{cause}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell; one that says nothing in any row is left out."""
    kept = [at for at in range(len(head)) if any(row[at] != "-" for row in rows)]
    widths = {at: max(len(head[at]), *(len(row[at]) for row in rows)) for at in kept}
    for row in (head, *rows):
        yield "  ".join(row[at].ljust(widths[at]) for at in kept).rstrip()
