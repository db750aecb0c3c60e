"""The facts of a restart decision, out of the picture, Slurm's word and history; and the intent that follows."""

from __future__ import annotations

from datetime import UTC, datetime

from astraeus_protocol.findings import Finding

from ..config import Restart, Watch
from ..rules.picture import Picture, StepView
from ..rules.say import shortened
from ..slurm.types import JobFacts
from ..store import Intent, Store
from . import piece
from .may_restart import PROGRESSED_S, Facts
from .way import Stop, choose

BREAKER_WINDOW_S = 600.0
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


def spent(history: list[Intent], progressed: float | None) -> int:
    """Restarts since the budget was last given back: by an attempt that progressed for long enough."""
    count = 0
    for intent in history:
        if (intent.progressed_s or 0) >= PROGRESSED_S:
            count = 0
        count += 1
    return 0 if (progressed or 0) >= PROGRESSED_S else count


def backoff_s(site: Restart, restarts_before: int) -> float:
    """Wait before the next attempt: doubles with each restart since the budget was given back."""
    return float(min(site.backoff_max_s, site.backoff_s * 2 ** min(restarts_before, 30)))


def beside(picture: Picture, finding: Finding, stalled_steps: set[str]) -> str:
    """A watched step of the job that progresses, "" where none does."""
    for step in picture.job.steps:
        if step.watched and not step.ended and step.step not in stalled_steps | {finding.step} and _works(step):
            return step.step
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


def gather(finding: Finding, picture: Picture, slurm: JobFacts | None, store: Store, *, site: Restart,
           watch: Watch, now: float, kill_wait_s: float, stalled_steps: set[str], watched_jobs: int,
           completing_nodes: tuple[str, ...], term_reaches_all: bool = True) -> Facts:
    """Facts for may_restart(). ``now``: Unix seconds; ``stalled_steps``: steps with an open stalled finding."""
    job, policy = picture.job, picture.job.policy
    steps = [step for step in job.steps if step.watched and not step.ended]
    own = next((step for step in steps if step.step == finding.step), None)
    if own is not None:
        policy = own.policy
    stop = choose(picture, finding.step, policy, kill_wait_s, term_reaches_all=term_reaches_all)
    workers = [worker for step in steps for worker in step.workers]
    known = sum(worker.state != "stale" for worker in workers)
    ranks = sum(step.tasks for step in steps)
    history = store.restarts_of(finding.job)
    before = next((intent for intent in reversed(history) if intent.restarts == finding.restarts - 1), None)
    progressed = progressed_s(slurm, finding, now) if slurm else None
    stops, last_stop = store.stops_between(now - HOUR_S, now)
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
        kill_wait_s=kill_wait_s, grace_s=stop.grace_s if stop.way else 0.0,
        spent=spent(history, progressed), budget=policy.max_restarts,
        total=len(history), max_total=site.max_total,
        progressed_s=progressed, progressed_before_s=before.progressed_s if before else None,
        beside=beside(picture, finding, stalled_steps), allow_beside=watch.allow_beside_progress,
        last_words=shortened(own.finished.line) if own is not None and own.finished else "",
        in_d=in_d,
        traced=tuple(worker.name for worker in workers if any(p.traced for p in worker.processes)),
        silent_nodes=job.silent_nodes, ranks=ranks, ranks_unknown=max(0, ranks - known),
        completing_nodes=completing_nodes,
        stalled_jobs=store.stalled_jobs_since(now - BREAKER_WINDOW_S), watched_jobs=watched_jobs,
        breaker_jobs=site.breaker_jobs, breaker_share=site.breaker_share,
        stops_last_hour=stops, max_per_hour=site.max_per_hour,
        since_last_stop_s=None if last_stop is None else max(0.0, now - last_stop),
        min_interval_s=site.min_interval_s)


def new_intent(finding: Finding, facts: JobFacts, *, number: int, budget: int, backoff_s: float,
               progressed_s: float | None, stop: Stop, now: float, avoid: bool = False) -> Intent:
    """The intent to restart; ``now``: Unix seconds."""
    return Intent(
        finding_key=finding.key, job=finding.job, target=facts.leader or facts.job, run=finding.run,
        worker=finding.worker, restarts=facts.restarts, start_time=facts.start_time, nodelist=facts.nodelist,
        number=number, budget=budget, since=finding.since, finding=finding, backoff_s=backoff_s,
        progressed_s=progressed_s, stopped_at=now, partition=facts.partition,
        signal=stop.signal, grace_s=stop.grace_s, way=stop.way, avoid=avoid, nodes=facts.nodes,
        stop_lines={"cause": "stalled", "reason": piece.piece(finding.said)[len(piece.START):-1],
                    "signal": stop.signal, "grace_seconds": f"{stop.grace_s:.0f}",
                    "at": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "finding": finding.key})
