"""From what holds for single workers to conclusions: one for a gang, or one for each worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from . import say, stacks, storage
from .conclusion import Conclusion
from .gang import Gang, Sign, sign_of
from .guilty import culprits
from .picture import StepView, WorkerView
from .readings import Last, running

WELL, STALLED, UNKNOWN = "well", "stalled", "unknown"


class Judged(msgspec.Struct, frozen=True, gc=False):
    """One worker's verdict by one rule: ``well``, ``stalled``, ``unknown``; ``reason`` why it is unknown."""

    worker: WorkerView
    verdict: str
    progress: Last | None = None
    output: Last | None = None
    reason: str = ""


def conclude(step: StepView, gang: Gang | None, judged: Sequence[Judged], now: float, *, rule: str,
             one: Callable[[WorkerView], str], many: Callable[[Sequence[WorkerView], int], str],
             ) -> list[Conclusion]:
    """Conclusions of a rule that judges workers one by one.

    ``one(worker)`` says what its progress looks like, ``many(workers, of)`` that of several. A tied gang, and
    several workers that are all stalled, make one conclusion for the step.
    """
    stalled = [j for j in judged if j.verdict == STALLED]
    unknown = [j for j in judged if j.verdict == UNKNOWN]
    found: list[Conclusion] = []
    alive = running(step)
    if stalled and (gang is not None or (len(stalled) == len(alive) and len(alive) > 1)):
        found.append(_whole(step, gang, stalled, now, rule, many([j.worker for j in stalled], len(alive))))
    else:
        found += [_single(step, j, now, rule, one(j.worker)) for j in stalled]
    if unknown and not (gang is not None and stalled):
        found.append(unknown_of(step, rule, unknown[0].reason, [j.worker for j in unknown], gang is not None))
    return found


def unknown_of(step: StepView, rule: str, reason: str, workers: Sequence[WorkerView],
               gang: bool) -> Conclusion:
    """The rule can't be judged now, and why."""
    return Conclusion(
        verdict=UNKNOWN, rule=rule, step=step.step, worker=step.name, rank=None, node=step.nodelist, pid=None,
        since_s=0.0, said=reason, workers=tuple(w.name for w in workers), evidence={}, gang=gang)


def for_step(step: StepView, gang: Gang | None, guilty: Sequence[Sign], progress: Last, *, verdict: str,
             rule: str, said: str, workers: Sequence[WorkerView], evidence: dict[str, object]) -> Conclusion:
    """One conclusion that stands for the step, with the guilty worker where there is one."""
    first = guilty[0].member if guilty else None
    return Conclusion(
        verdict=verdict, rule=rule, step=step.step,
        worker=first.worker.name if first else step.name,
        rank=first.worker.rank if first else None,
        node=first.worker.node if first else step.nodelist,
        pid=first.process.pid if first else None,
        since_s=progress.age, since=progress.at, said=said,
        workers=tuple(w.name for w in workers), gang=gang is not None,
        evidence=evidence | _of_gang(step, gang) | rests_on(gang, guilty) | {
            "guilty_nodes": sorted({sign.member.worker.node for sign in guilty})})


def _whole(step: StepView, gang: Gang | None, stalled: Sequence[Judged], now: float, rule: str,
           looks: str) -> Conclusion:
    progress = min((j.progress for j in stalled if j.progress), key=lambda last: last.age)
    output = min((j.output for j in stalled if j.output), key=lambda last: last.age)
    guilty = culprits(gang) if gang else ()
    if gang is not None and gang.waits and (gang.signs or guilty):
        said = f"{say.no_output(output, now)}; {say.of_gang(step, gang, guilty)}"
    else:
        parts = [say.no_output(output, now), looks, say.many_on_storage(step, guilty), say.named(guilty),
                 stacks.seen(gang, guilty) if gang else "", say.killed(step)]
        said = "; ".join(part for part in parts if part)
    return for_step(step, gang, guilty, progress, verdict=STALLED, rule=rule, said=said,
                    workers=[j.worker for j in stalled], evidence=_evidence(step, output, [
                        j.worker for j in stalled]))


def _single(step: StepView, judged: Judged, now: float, rule: str, looks: str) -> Conclusion:
    worker, progress, output = judged.worker, judged.progress, judged.output
    assert progress is not None, "a stalled worker has a last progress"
    assert output is not None, "a stalled worker has a last output"
    only = worker.processes[0] if len(worker.processes) == 1 else None
    signs = [sign for p in worker.processes if (sign := sign_of(worker, p))]
    said = f"{say.no_output(output, now)}; {looks}"
    if signs:
        said += f"; {say.named(signs)}"
    pid = signs[0].member.process.pid if signs else only.pid if only else worker.pid
    return Conclusion(
        verdict=STALLED, rule=rule, step=step.step, worker=worker.name, rank=worker.rank, node=worker.node,
        pid=pid, since_s=progress.age, since=progress.at, said=said, workers=(worker.name,),
        evidence=_evidence(step, output, [worker]) | _of_gang(step, None) | rests_on(None, signs) | {
            "waits_on": storage.stores([worker])})


def rests_on(gang: Gang | None, guilty: Sequence[Sign]) -> dict[str, object]:
    """``by``: the kind of evidence that names the guilty rank, "" where nobody stands out; ``where``: who is where in
    Python, where the stacks were read."""
    return {"by": guilty[0].kind if guilty else "", "where": stacks.where(gang) if gang else ""}


def _evidence(step: StepView, output: Last, workers: Sequence[WorkerView]) -> dict[str, object]:
    return {
        "output_s": round(output.age, 1), "output_to": output.unseen,
        "ranks": [worker.rank for worker in workers],
        "gpus": [[w.rank, gpu.index, gpu.busy, gpu.idle_s and round(gpu.idle_s, 1)]
                 for w in workers for gpu in w.gpus][:64],
        "after_s": step.policy.after,
    }


def _of_gang(step: StepView, gang: Gang | None) -> dict[str, object]:
    """What decides whether a restart is allowed, beside the verdict itself."""
    processes = [(w, p) for w in step.workers for p in w.processes]
    found: dict[str, object] = {
        "in_d": [w.rank for w, p in processes if p.state == "D"],
        "traced": [w.rank for w, p in processes if p.traced or p.state == "t"],
        "stale": [w.rank for w in step.workers if w.state == "stale"],
        "waits_on": storage.stores(step.workers),
        "on_storage": [[worker.rank, process.pid, wait.mount, wait.at, wait.kind, wait.call, round(wait.s, 1)]
                       for worker, process, wait in storage.storage_waits(step.workers)][:32],
        "places": [[w.rank, p.pid, p.place.channel, p.place.call, p.place.share, p.place.samples]
                   for w, p in processes if p.place][:32],
        "killed": [[w.rank, w.node, w.oom.kills] for w in step.workers if w.oom][:32],
        "tasks": step.tasks,
        "heard_of": len(step.workers),
    }
    if gang is not None:
        found |= {
            "members": len(gang.members), "others": len(gang.others), "waiting": len(gang.waiting),
            "odd": [{"rank": s.member.worker.rank, "node": s.member.worker.node,
                     "pid": s.member.process.pid, "kind": s.kind, "for_s": s.age and round(s.age, 1)}
                    for s in gang.signs][:32],
        }
        found |= stacks.evidence(gang)
    return found
