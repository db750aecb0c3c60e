"""A collective is stuck (docs/rules.md, "collective_ras"): NCCL's RAS says that a rank is missing, or that operation
counts differ and stand still. GPUs and CPU are not looked at: a hung collective spins them."""

from __future__ import annotations

from msgspec import structs

from . import say
from .conclusion import Conclusion
from .gang import Gang
from .guilty import culprits
from .limits import COLLECTIVE_MAX_S
from .picture import Picture, RasView, StepView
from .ras import Stuck, of_step
from .readings import Last, output_of_all, writes
from .shape import STALLED, for_step, unknown_of
from .suspect import RULE as SUSPECT_RULE
from .suspect import VERDICT as SUSPECT
from .suspect import quiet_s

RULE = "collective_ras"
FIELD = "ras"
"""Of a finding's details: what RAS said."""


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the step, or none."""
    stuck = of_step(step, gang) if step.ras else None
    if stuck is None or not _may(step, gang):
        return []
    output = output_of_all(step)
    if output is None:
        return [unknown_of(step, RULE, "the output of a rank is not known", step.workers, True)]
    if min(stuck.s, output.age) < min(step.policy.after, COLLECTIVE_MAX_S):
        return []
    return [_conclude(picture, step, gang, stuck, output, STALLED, RULE)]


def suspect(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """At the first look that finds a rank missing."""
    stuck = of_step(step, gang, early=True) if step.ras else None
    output = output_of_all(step)
    if stuck is None or output is None or output.age < quiet_s(step) or not _may(step, gang):
        return []
    return [_conclude(picture, step, gang, stuck, output, SUSPECT, SUSPECT_RULE)]


def tell(picture: Picture, step: StepView, concluded: list[Conclusion]) -> list[Conclusion]:
    """The conclusions, with what RAS said as evidence."""
    if not any(not view.ras.unknown for view in step.ras):
        return concluded
    stuck = of_step(step, None, early=True)
    words = f"; NCCL: {sentence(stuck)}" if stuck else ""
    more: dict[str, object] = {FIELD: [kept(view) for view in step.ras]}
    return [structs.replace(c, evidence=c.evidence | more, said=c.said + ("" if "NCCL RAS: " in c.said else words))
            if c.verdict in (STALLED, SUSPECT) else c for c in concluded]


def sentence(stuck: Stuck) -> str:
    """``NCCL RAS: rank 8 (node gpu-1, PID 4242) is missing: collective #4242 (AllReduce) in progress on the others``"""
    return say.named(stuck.signs) if stuck.signs else stuck.words


def kept(view: RasView) -> dict[str, object]:
    """What a node's RAS said, for evidence and the API."""
    ras = view.ras
    return {"node": view.node, "version": ras.version, "communicators": ras.of, "unknown": ras.unknown, "odd": [
        {"size": comm.size, "missing": [[one.rank, one.host, one.pid, one.why] for one in comm.missing[:32]],
         "counts": [[group.n, group.counts] for group in comm.groups], "states": comm.states,
         "errors": comm.errors, "still_s": round(comm.still_s, 1)} for comm in ras.comms]}


def _may(step: StepView, gang: Gang | None) -> bool:
    if gang is not None and (gang.traced or gang.beats):
        return False
    living = [worker for worker in step.workers if worker.state == "running"]
    return bool(living) and not any(
        writes(worker) or any(p.traced or p.state == "t" for p in worker.processes) for worker in step.workers)


def _conclude(picture: Picture, step: StepView, gang: Gang | None, stuck: Stuck, output: Last, verdict: str,
              rule: str) -> Conclusion:
    guilty = (culprits(gang) if gang else ()) or stuck.signs
    first = say.no_output(output, picture.now)
    if guilty and guilty[0].kind == "ras":
        said = f"{first}; NCCL: {say.of_gang(step, gang, guilty) if gang else say.named(guilty)}"
    else:
        whose = say.of_gang(step, gang, guilty) if gang and guilty else say.NOBODY
        said = f"{first}; {whose}; NCCL: {sentence(stuck)}"
    evidence: dict[str, object] = {
        "output_s": round(output.age, 1), "ranks": [worker.rank for worker in step.workers],
        "after_s": step.policy.after, "sign_s": round(stuck.s, 1)}
    found = for_step(step, gang, guilty, output, verdict=verdict, rule=rule, said=said, workers=step.workers,
                     evidence=evidence)
    return structs.replace(found, gang=True)  # who is in one communicator is tied, whatever sockets tell
