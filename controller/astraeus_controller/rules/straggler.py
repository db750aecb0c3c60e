"""Straggler (docs/rules.md, "straggler"): one worker of a running gang that holds the others back.

A picture gives signs; that they stand at two passes in a row is for ``judging.straggling``. A sign that more than half
of the gang shares names nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import straggler_gpu, straggler_link, straggler_time, straggler_weak
from .conclusion import Conclusion
from .limits import STRAGGLERS_MAX
from .picture import JobView, Picture, ProcessView, StepView, WorkerView
from .readings import gone_quiet
from .shape import unknown_of
from .straggler_cards import cards_of
from .straggler_sign import GPU, WEAK, Sign, unshared

RULE = "straggler"
AT_RISK = "at_risk"
EVIDENCE_MAX = 32
"""Signs that are kept with a finding."""
HANGS = ("T", "t", "Z", "X")
"""States of a member that keep the others waiting: what their GPUs and clocks tell then is another rule's."""


def judge(picture: Picture) -> list[Conclusion]:
    """Workers that hold their gang back, and those at risk to, the one that stands out most first.

    ``unknown`` names the workers of which it can't be told now: what was found of them stays.
    """
    job = picture.job
    if job.ended or job.suspended or job.state not in ("", "RUNNING"):
        return []
    return [found for step in job.steps if step.watched and not step.ended for found in _step(job, step)]


def _step(job: JobView, step: StepView) -> list[Conclusion]:
    workers = tuple(worker for worker in step.workers if any(process.tied for process in worker.processes))
    members = [process for worker in workers for process in worker.processes if process.tied]
    if len(members) < 2 or min(worker.began_s for worker in workers) < step.policy.warmup_s:
        return []
    why = _not_now(step, workers, members)
    if why:
        return [unknown_of(step, RULE, why, step.workers, True)]
    cards = cards_of(workers)
    signs = unshared([*straggler_time.signs(step, workers), *straggler_gpu.signs(cards),
                      *straggler_link.signs(job, workers), *straggler_weak.signs(workers, cards)], workers, len(cards))
    found = _named(step, signs)
    if blind := _blind(job, step, workers):
        found.append(unknown_of(step, RULE, "its GPUs, its rails or its time per iteration can't be read", blind, True))
    return found


def _not_now(step: StepView, workers: Sequence[WorkerView], members: Sequence[ProcessView]) -> str:
    """Why nothing can be told of the gang now; "" where it can."""
    if not step.complete:
        return "a worker has not been heard of"
    if any(worker.state == "stale" for worker in step.workers):
        return "a node has not reported"
    if any(worker.state != "running" for worker in workers):
        return "the gang is ending"
    if any(process.traced for process in members):
        return "under a debugger"
    if any(process.state in HANGS for process in members) or gone_quiet(step):
        return "the gang waits for a member"
    return ""


def _blind(job: JobView, step: StepView, workers: Sequence[WorkerView]) -> list[WorkerView]:
    name = step.policy.straggler_metric
    unread = straggler_link.unread(job)
    return [worker for worker in workers
            if worker.node in unread or any(gpu.told is None or gpu.told.busy is None for gpu in worker.gpus)
            or any(source == "gpu" for source, _ in worker.unknown)
            or (name and worker.metrics and straggler_time.readable(worker, name) is None)]


def _named(step: StepView, signs: Sequence[Sign]) -> list[Conclusion]:
    """One conclusion for each worker with signs, the strongest sign first."""
    of: dict[int, list[Sign]] = {}
    for sign in sorted(signs, key=lambda sign: sign.strength):
        of.setdefault(sign.worker.rank, []).append(sign)
    return [_conclusion(step, mine) for mine in list(of.values())[:STRAGGLERS_MAX]]


def _conclusion(step: StepView, signs: Sequence[Sign]) -> Conclusion:
    """Of its signs, sorted: the first of each class is said. That a GPU slowed down by heat is hot needs no word."""
    first, worker = signs[0], signs[0].worker
    hot = {sign.gpu for sign in signs if sign.kind == "heat"}
    signs = [sign for sign in signs if not (sign.kind == "hot" and sign.gpu in hot)]
    told: dict[str, Sign] = {}
    for sign in signs:
        told.setdefault(sign.cls, sign)
    more = len({sign.gpu for sign in signs if sign.cls == GPU}) - 1
    words = [sign.words + (f" (and {more} more of its GPUs)" if sign.cls == GPU and more > 0 else "")
             for sign in told.values()]
    verdict = AT_RISK if first.cls == WEAK else RULE
    return Conclusion(
        verdict=verdict, rule=RULE, step=step.step, worker=worker.name, rank=worker.rank, node=worker.node,
        pid=worker.processes[0].pid if len(worker.processes) == 1 else worker.pid, since_s=0.0,
        said="; ".join(words), workers=(worker.name,), gang=True,
        evidence={"class": first.cls, "kind": first.kind, "looked_at": first.at, "gpu": first.gpu,
                  "uuid": first.uuid, "signs": [sign.evidence() for sign in signs[:EVIDENCE_MAX]]})
