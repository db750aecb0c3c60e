"""The facts of a restart decision, out of the picture, Slurm's word and history; and the intent that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from astraeus_protocol.findings import Finding

from ..config import Restart, Watch
from ..history.store import Intent, Store
from ..rules.metric import ended as metric_ended
from ..rules.metric import metric_of
from ..rules.picture import Picture, StepView
from ..rules.say import shortened
from ..slurm.types import JobFacts
from . import piece
from .may_restart import PROGRESSED_S, Facts
from .way import Stop, choose

HOUR_S = 3600.0
IN_D_S = 5.0
"""A shorter sleep in state D is ordinary I/O."""
WORKS_S = 60.0
"""A step progresses beside a stalled one when a worker of it wrote or used a GPU within this time."""
BUSY = 5.0
"""Percent from which a GPU is busy."""


def progressed_s(slurm: JobFacts, finding: Finding, now: float) -> float | None:
    """From the attempt's start to its last progress. ``now``: Unix seconds."""
    if slurm.run_time_s is None:
        return None
    quiet = finding.details.get("no_progress_s")
    suspended = 0.0  # between the last progress and the verdict; Slurm's run time leaves it out, too
    if isinstance(quiet, int | float):
        suspended = max(0.0, finding.detected_at - finding.since - quiet)
    return max(0.0, slurm.run_time_s - (now - finding.since - suspended))


def attempt_progressed_s(picture: Picture) -> float:
    """The same by what the nodes report of an attempt that runs: until the last output of a watched step; 0 where
    that is not known; where output can't be seen, until the last write of anything. GPUs are not asked: a collective
    that hangs keeps them busy."""
    steps = picture.job.steps
    began = max((worker.began_s for step in steps for worker in step.workers), default=0.0)
    ages = [age for step in steps if step.watched for worker in step.workers
            if (age := worker.quiet_s if worker.output_s is None else worker.output_s) is not None]
    return max(0.0, began - min(ages)) if ages else 0.0


def spent(history: list[Intent], progressed: float | None, gave_back: int | None = None) -> int:
    """Restarts since the budget was last given back: by an attempt that progressed for long enough. That may be
    one that we stopped, this one (``progressed``), or one that ended without us (``gave_back``: its restart count)."""
    if (progressed or 0) >= PROGRESSED_S:
        return 0
    last = max([intent.restarts for intent in history if (intent.progressed_s or 0) >= PROGRESSED_S],
               default=-1)
    return sum(intent.restarts >= max(last, -1 if gave_back is None else gave_back) for intent in history)


def backoff_s(site: Restart, restarts_before: int) -> float:
    """Wait before the next attempt: doubles with each restart since the budget was given back."""
    return float(min(site.backoff_max_s, site.backoff_s * 2 ** min(restarts_before, 30)))


def beside(picture: Picture, finding: Finding, stalled_steps: set[str]) -> str:
    """A watched step of the job that progresses, "" where none does."""
    for step in picture.job.steps:
        if step.watched and not step.ended and step.step not in stalled_steps | {finding.step} and _works(step):
            return step.step
    return ""


def _component_beside(finding: Finding, others: Mapping[int, Picture | None]) -> str:
    """A step of another component that progresses. One that both share is stalled where its gang waits."""
    for one in filter(None, others.values()):
        for step in one.job.steps:
            if step.watched and not step.ended and step.step != finding.step and _works(step):
                return f"{one.job.run}.{step.step}"
    return ""


def _works(step: StepView) -> bool:
    for worker in step.workers:
        if worker.state != "running":
            continue
        if worker.output_s is not None and worker.output_s < WORKS_S:
            return True
        if any((gpu.busy or 0) >= BUSY or (gpu.idle_s is not None and gpu.idle_s < WORKS_S)
               for gpu in worker.gpus):
            return True
        if not worker.gpus and worker.cpu_idle_s is not None and worker.cpu_idle_s < WORKS_S:
            return True
    return False


def _at_end(step: StepView) -> str:
    """``step is at its last value (10000)`` where the run's metric has reached what it named; else ""."""
    name = step.policy.progress_metric or ""
    found = [m for worker in step.workers if (m := metric_of(worker, name)) and metric_ended(step, m)]
    return f"{name} is at its last value ({step.policy.progress_end:.10g})" if found else ""


def gather(finding: Finding, picture: Picture, slurm: JobFacts | None, store: Store, *, site: Restart,
           watch: Watch, now: float, kill_wait_s: float, stalled_steps: set[str], watched_jobs: int,
           completing_nodes: tuple[str, ...], stalled_jobs: int = 0, incident: str = "",
           others: Mapping[int, Picture | None] | None = None, term_reaches_all: bool = True) -> Facts:
    """Facts for may_restart(). ``now``: Unix seconds; ``stalled_steps``: steps with an open stalled finding;
    ``stalled_jobs``: how many became stalled lately; ``incident``: why the one that it is part of forbids it;
    ``others``: the other components of a heterogeneous job, for Slurm requeues all of them."""
    others = others or {}
    job, policy = picture.job, picture.job.policy
    whole = [picture, *filter(None, others.values())]
    steps = [step for one in whole for step in one.job.steps if step.watched and not step.ended]
    own = next((step for step in job.steps if step.step == finding.step and step.watched and not step.ended), None)
    if own is not None:
        policy = own.policy
    stop = choose(picture, finding.step, policy, kill_wait_s, term_reaches_all=term_reaches_all)
    workers = [worker for step in steps for worker in step.workers]
    known = sum(worker.state != "stale" for worker in workers)
    ranks = sum(step.tasks for step in steps)
    history = store.restarts_of(finding.job, *others)
    before = next((intent for intent in reversed(history) if intent.restarts == finding.restarts - 1), None)
    progressed = progressed_s(slurm, finding, now) if slurm else None
    stops, last_stop = store.stops_between(now - HOUR_S, now)
    # However short: a process that has lost its pulse was found there by every sample of a look.
    waits = [(worker.name, process.wait) for worker in workers for process in worker.processes
             if process.wait and process.wait.kind]
    in_d = tuple(worker.name for worker in workers if any(
        process.state == "D" and (process.state_s is None or process.state_s >= IN_D_S)
        for process in worker.processes))
    return Facts(
        act=policy.mode == "act",
        stalled=store.finding_id(finding.key) is not None,
        state=slurm.state if slurm else "",
        same_attempt=slurm is None or slurm.restarts == finding.restarts,
        batch=slurm is None or slurm.batch, requeue=slurm is None or slurm.requeue,
        held=slurm is not None and slurm.held,
        run_time_s=slurm.run_time_s if slurm else None, time_limit_s=slurm.time_limit_s if slurm else None,
        kill_wait_s=kill_wait_s, grace_s=stop.grace_s if stop.signals else 0.0,
        spent=spent(history, progressed, store.last_that_gave_back(finding.job)), budget=policy.max_restarts,
        total=len(history), max_restarts_total=site.max_restarts_total,
        progressed_s=progressed, progressed_before_s=before.progressed_s if before else None,
        beside=beside(picture, finding, stalled_steps) or _component_beside(finding, others),
        allow_beside=watch.allow_beside_progress,
        last_words=shortened(own.finished.line) if own is not None and own.finished else "",
        at_end=_at_end(own) if own is not None else "",
        in_d=in_d, on_storage=tuple(dict.fromkeys(name for name, _ in waits)),
        stores=tuple(sorted({wait.mount for _, wait in waits if wait.mount})),
        traced=tuple(worker.name for worker in workers if any(p.traced for p in worker.processes)),
        silent_nodes=tuple(node for one in whole for node in one.job.silent_nodes),
        ranks=ranks, ranks_unknown=max(0, ranks - known),
        completing_nodes=completing_nodes,
        incident=incident, stalled_jobs=stalled_jobs, watched_jobs=watched_jobs,
        breaker_jobs=site.breaker_jobs, breaker_share=site.breaker_share,
        stops_last_hour=stops, max_per_hour=site.max_per_hour,
        since_last_stop_s=None if last_stop is None else max(0.0, now - last_stop),
        min_interval_s=site.min_interval_s)


def new_intent(finding: Finding, facts: JobFacts, components: Sequence[JobFacts] = (), *, number: int, budget: int,
               backoff_s: float, progressed_s: float | None, stop: Stop, now: float, avoid: bool = False) -> Intent:
    """The intent to restart; ``components``: of a heterogeneous job, its leader first, which is what Slurm is asked
    about later on; ``now``: Unix seconds."""
    facts = components[0] if components else facts
    return Intent(
        finding_key=finding.key, job=finding.job, target=facts.job,
        others=tuple(one.job for one in components if one.job != finding.job), run=finding.run,
        worker=finding.worker, restarts=facts.restarts, start_time=facts.start_time, nodelist=facts.nodelist,
        number=number, budget=budget, since=finding.since, finding=finding, backoff_s=backoff_s,
        progressed_s=progressed_s, stopped_at=now, partition=facts.partition,
        signal=stop.signal, grace_s=stop.grace_s, way=stop.way, avoid=avoid, nodes=facts.nodes,
        stop_lines={"cause": "stalled", "reason": piece.piece(finding.said)[len(piece.START):-1],
                    "signal": stop.signal, "grace_seconds": f"{stop.grace_s:.0f}",
                    "at": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "finding": finding.key})
