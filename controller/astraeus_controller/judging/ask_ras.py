"""Of which steps NCCL's RAS is asked, and on which nodes. Pure.

Never of a run that is well: some releases crash or lie when they are asked while communicators are made, so it must
have progressed in this attempt, and gone quiet.
"""

from __future__ import annotations

from ..rules.limits import COLLECTIVE_MAX_S
from ..rules.picture import Picture, StepView
from ..rules.readings import gone_quiet, output_of_all, running
from ..rules.suspect import quiet_s

NODES = 2
"""So many nodes of a step are asked: one tells of the whole gang, a second contradicts one that was stopped."""
YOUNG_S = 60.0
"""Before this a worker has not come past its first collective."""


def asked(picture: Picture) -> dict[str, tuple[str, ...]]:
    """Step to the nodes that are to ask, of this job."""
    job = picture.job
    if job.ended or job.suspended:
        return {}
    return {step.step: nodes for step in job.steps
            if step.watched and not step.ended and _due(step) and (nodes := _nodes(step))}


def _nodes(step: StepView) -> tuple[str, ...]:
    """First those where nobody stopped or died: their processes answer."""
    ill = {w.node for w in step.workers if any(p.state in "TtZDX" for p in w.processes)}
    living = {worker.node for worker in step.workers if worker.state == "running"}
    return tuple(sorted(living, key=lambda node: (node in ill, node))[:NODES])


def _due(step: StepView) -> bool:
    processes = [process for worker in step.workers for process in worker.processes]
    output = output_of_all(step)
    if len(processes) < 2 or output is None or not _progressed(step):
        return False
    if gone_quiet(step):
        return True
    # Where the pulse tells nothing (a main thread that spins never has one), only late: to print seldom is no sign.
    known = [p for p in processes if p.pulse_gone_s is not None]
    late = max(quiet_s(step), min(step.policy.after, COLLECTIVE_MAX_S) / 2)
    return 2 * len(known) <= len(processes) and output.age >= late


def _progressed(step: StepView) -> bool:
    """It worked in this attempt: its GPUs were busy, or it had a pulse or printed after its start."""
    alive = running(step)
    if not alive or max(worker.began_s for worker in alive) < YOUNG_S:
        return False
    gpus = [gpu for worker in alive for gpu in worker.gpus]
    if gpus:
        return any(gpu.ever_busy for gpu in gpus)
    printed = any(w.output_s is not None and w.output_s < w.began_s - 1 for w in alive)
    return printed or any(p.pulse_gone_s is not None for w in alive for p in w.processes)
