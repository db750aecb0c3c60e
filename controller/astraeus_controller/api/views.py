"""What the API answers, out of pictures and findings. Times are ISO 8601 in UTC, lengths seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from astraeus_protocol.devices import Gpu
from astraeus_protocol.findings import Event, Finding, Incident, IncidentJob

from ..judging.words import summary
from ..rules import collective_ras
from ..rules.cause import preparing
from ..rules.incident import said
from ..rules.metric import metric_of
from ..rules.picture import GpuView, JobView, Picture, ProcessView, RailClass, RailView, StepView, WorkerView
from ..rules.rails import made_for, signs_of
from ..rules.ras import of_step
from ..rules.words import speaker

Json = dict[str, Any]
STATES = {"running": "Running", "exited": "Exited", "gone": "Down", "stale": "Stale"}
"""A worker's state, as people and the API call it."""
GPU_FIELDS = ("uuid", "mig", "sm_mhz", "sm_max_mhz", "reasons", "held_s", "temp_c", "slowdown_c", "power_w", "limit_w",
              "power_usual_w", "errors", "xids", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max",
              "nvlinks_down", "pids", "unknown")
"""What a GPU's driver tells, as in docs/report.md."""


def iso(at: float | None) -> str | None:
    """``2026-11-29T14:02:05Z``"""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def finding(of: Finding) -> Json:
    """An open finding: a stall or a suspicion."""
    return {
        "run": of.run, "run_name": of.run_name, "job": of.job, "step": of.step, "worker": of.worker,
        "rank": of.rank, "machine": of.node, "pid": of.pid, "rule": of.rule, "key": of.key,
        "stall": {"since": iso(of.since), "detected_at": iso(of.detected_at), "evidence": of.said,
                  "action": of.action, "waits_on": of.details.get("waits_on") or [],
                  "cause": of.details.get("cause") or None, "cause_kind": of.details.get("cause_kind") or None,
                  "rests_on": {"by": of.details.get("by") or None, "where": of.details.get("where") or None}},
    }


def straggler(of: Finding) -> Json:
    """An open finding of a worker that holds its gang back, or is at risk to."""
    return {
        "run": of.run, "run_name": of.run_name, "job": of.job, "step": of.step, "rule": of.rule, "key": of.key,
        "summary": summary(of),
        "straggler": {
            "worker": of.worker, "rank": of.rank, "machine": of.node, "pid": of.pid, "evidence": of.said,
            "since": iso(of.since), "detected_at": iso(of.detected_at), "class": of.details.get("class"),
            "gpu": of.details.get("gpu"), "uuid": of.details.get("uuid") or None,
            "signs": of.details.get("signs") or []},
    }


def event(of: Event) -> Json:
    """A line of history."""
    return msgspec.to_builtins(of) | {"at": iso(of.at)}


def incident(of: Incident, jobs: Iterable[IncidentJob], hanging: Iterable[int]) -> Json:
    """``jobs``: those that may be shown; ``others`` counts the rest. ``stalled``: the job hangs now."""
    shown, still = list(jobs), set(hanging) if of.closed_at is None else set()
    return {
        "incident": of.id, "key": of.key, "cause": of.cause, "subject": of.subject, "said": said(of),
        "opened_at": iso(of.opened_at), "closed_at": iso(of.closed_at),
        "jobs": [{"run": one.run, "job": one.job, "joined_at": iso(one.at), "by": one.by, "stalled": one.job in still}
                 for one in shown],
        "others": len(of.jobs) - len(shown),
    }


def incident_events(of: Incident, job: int) -> list[Event]:
    """What a job's history says of it: from when on the job was part of it, and its end."""
    one = next(one for one in of.jobs if one.job == job)
    details: dict[str, object] = {"incident": {"id": of.id, "key": of.key, "cause": of.cause, "subject": of.subject}}
    events = [Event(at=one.at, run=one.run, job=job, worker=one.run, state="Running", kind="incident",
                    message=f"Part of incident {of.id}: {said(of)}", details=details)]
    if of.closed_at is not None:
        events.append(Event(at=of.closed_at, run=one.run, job=job, worker=one.run, state="Running",
                            kind="incident_over", message=f"Incident {of.id} over", details=details))
    return events


def progress(picture: Picture, findings: Iterable[Finding], step: str = "") -> Json:
    """A job's workers and what counts as their progress; ``step`` narrows it to one."""
    job = picture.job
    named = {(f.step, f.rank): f for f in findings if f.kind in ("straggler", "at_risk")}
    named |= {(f.step, f.rank): f for f in findings if f.kind in ("suspect", "stalled")}
    steps = [s for s in job.steps if not step or s.step == step]
    return {
        "run": job.run, "run_name": job.name, "job": job.job, "user": job.user, "partition": job.partition,
        "state": job.state or "unknown", "restarts": job.restarts, "machines": job.nodelist,
        "silent_machines": list(job.silent_nodes), "suspended": job.suspended, "ended": job.ended,
        "steps": [_step(s, picture.now) for s in steps],
        "workers": [_worker(picture, s, w, named) for s in steps if _has_workers(s, job.steps) for w in s.workers],
        "rails": [_rail(view, job) for view in job.rails],
        "rails_unknown": [{"node": node, "reason": reason} for node, reason in job.rails_unknown],
    }


def _rail(view: RailView, job: JobView) -> Json:
    """An RDMA port; ``off`` says in sentences what is wrong with it."""
    rail = view.rail
    made = made_for(rail, job.rail_classes.get(rail.kind, RailClass()))
    return {
        "node": view.node, "device": rail.device, "port": rail.port, "class": rail.kind, "layer": rail.layer,
        "compute": rail.compute, "rate_gb": rail.rate_gb, "width": rail.width, "speed": rail.speed,
        "state": rail.state or None, "phys_state": rail.phys_state or None, "made_for_gb": made.gb if made else None,
        "errors": rail.errors, "flaps": rail.flaps, "down_s": rail.down_s, "looked_s": rail.looked_s,
        "peer": rail.peer or None, "peer_wanted": rail.peer_wanted or None,
        "off": [sign.words for sign in signs_of(view, job)],
    }


def _has_workers(step: StepView, steps: Iterable[StepView]) -> bool:
    """The batch step's task is a worker only while the job has no other step."""
    return step.step != "batch" or step.watched or all(other is step or other.ended for other in steps)


def _step(step: StepView, now: float) -> Json:
    policy = step.policy
    return {
        "step": step.step, "name": step.name, "tasks": step.tasks, "watched": step.watched,
        "reason": step.watch_reason, "ended": step.ended, "complete": step.complete, "log": step.log,
        "stall_after_s": policy.after, "action": policy.action, "mode": policy.mode,
        "max_restarts": policy.max_restarts, "last_output_at": iso(step.output_at),
        "said": [{"kind": one.said.kind, "rank": one.said.rank, "line": one.said.line, "since": iso(one.at)}
                 for one in step.said],
        "ras": _ras(step),
        "chatter": {"line": step.chatter.line, "every_s": step.chatter.every_s, "other_s": step.chatter.other_s}
        if step.chatter else None,
        "finished": {"line": step.finished.line, "since": iso(now - step.finished.s)} if step.finished else None,
        "preparing": (preparing(step) or None) if step.watched and not step.ended else None,
    }


def _ras(step: StepView) -> Json | None:
    """What NCCL's RAS says of it: a sentence, or why nothing is known; None while nobody asks."""
    if not step.ras:
        return None
    stuck = of_step(step, None, early=True)
    known = [view for view in step.ras if not view.ras.unknown]
    return {"said": collective_ras.sentence(stuck) if stuck else "", "stuck": of_step(step, None) is not None,
            "age_s": round(min(view.ras.s for view in known or step.ras), 1),
            "unknown": "" if known else step.ras[0].ras.unknown,
            "nodes": [collective_ras.kept(view) for view in step.ras]}


def _nccl(step: StepView, worker: WorkerView) -> Json | None:
    one = speaker(step, worker)
    return {"kind": one.said.kind, "line": one.said.line, "since": iso(one.at)} if one else None


def _worker(picture: Picture, step: StepView, worker: WorkerView,
            named: dict[tuple[str, int | None], Finding]) -> Json:
    found = named.get((step.step, worker.rank))
    return {
        "worker": worker.name, "step": step.step, "rank": worker.rank, "node": worker.node, "pid": worker.pid,
        "state": STATES.get(worker.state, worker.state), "finding": found.kind if found else None,
        "last_output_at": iso(worker.output_at), "output_to": worker.output_to, "last_write_at": iso(worker.quiet_at),
        "gpus": [_gpu(gpu) for gpu in worker.gpus],
        "metric": _metric(step.policy.progress_metric, worker),
        "straggler_metric": _metric(step.policy.straggler_metric, worker),
        "pulse": _pulse(worker), "nccl": _nccl(step, worker),
        "processes": [{"pid": p.pid, "local": p.local, "rank": p.rank, "state": p.state, "state_s": p.state_s,
                       "pulse": p.pulse, "pulse_base": p.pulse_base, "pulse_gone_s": p.pulse_gone_s,
                       "traced": p.traced, "tied": p.tied, "wait": _wait(p),
                       "place": _place(p)} for p in worker.processes],
        "unknown": [{"source": source, "reason": reason} for source, reason in worker.unknown],
        "stalled_in_s": _stalled_in(picture, step, worker),
    }


def _gpu(gpu: GpuView) -> Json:
    """What its driver tells; what it does not tell is None, and ``unknown`` says why."""
    told = gpu.told or Gpu(index=gpu.index)
    fields = {name: getattr(told, name) for name in GPU_FIELDS}
    return {"index": gpu.index, "busy": gpu.busy,
            "last_busy_at": iso(gpu.busy_at) if gpu.ever_busy else None} | fields


def _wait(process: ProcessView) -> Json | None:
    """What it waits for in the kernel, where it has gone quiet."""
    wait = process.wait
    return None if wait is None else {
        "channel": wait.channel, "call": wait.call, "for_s": round(wait.s, 1), "storage": wait.kind,
        "mount": wait.mount, "at": wait.at, "helper": wait.helper}


def _place(process: ProcessView) -> Json | None:
    """Where a closer look found its main thread."""
    place = process.place
    return None if place is None else {
        "channel": place.channel, "call": place.call, "share": place.share, "samples": place.samples,
        "user": place.user, "system": place.system, "threads": place.threads}


def _metric(name: str | None, worker: WorkerView) -> Json | None:
    """A metric that the run names; ``last_change_at`` is None while it can't be read."""
    found = metric_of(worker, name) if name else None
    return {"name": found.name, "value": found.value, "last_change_at": iso(found.at)} if found else None


def _pulse(worker: WorkerView) -> Json | None:
    """Of the worker process that switches least: per second, its own base, for how long it is gone (0: it is
    there; None: not known yet)."""
    known = [p for p in worker.processes if p.pulse is not None]
    if not known:
        return None
    least = min(known, key=lambda p: p.pulse or 0)
    return {"per_s": least.pulse, "base": least.pulse_base, "gone_s": least.pulse_gone_s}


def _stalled_in(picture: Picture, step: StepView, worker: WorkerView) -> float | None:
    """Seconds until patience is over if nothing moves any more; 0 once it is; None where it can't be said."""
    if not step.watched or picture.job.suspended or worker.state != "running":
        return None
    if step.policy.progress_metric:
        metric = metric_of(worker, step.policy.progress_metric)
        return None if metric is None or metric.unchanged_s is None else round(
            max(0.0, step.policy.after - metric.unchanged_s), 1)
    silent = worker.quiet_s if worker.output_s is None else worker.output_s
    if silent is None:
        return None
    still = [silent]
    if worker.gpus:
        idle = [gpu.idle_s for gpu in worker.gpus]
        if None in idle:
            return None
        still.append(min(age for age in idle if age is not None))
    return round(max(0.0, step.policy.after - min(still)), 1)
