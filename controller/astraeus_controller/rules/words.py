"""A collective is stuck (docs/rules.md, "collective_said"): NCCL, PyTorch, Gloo or MLX say so in the run's own output.

GPUs, CPU and the pulse are not looked at: the operation's own timeout is over when the words are written. Who speaks
waits: only ranks that a line names as missing are guilty, and only where they are a minority.
"""

from __future__ import annotations

import re

from msgspec import structs

from . import say
from .conclusion import Conclusion
from .gang import DEAD, Gang, Member, Sign
from .guilty import culprits
from .late import signs as late
from .limits import COLLECTIVE_MAX_S, SAID_NEW_S, SAID_OVER_S
from .members import member_of
from .picture import Picture, SaidView, StepView, WorkerView
from .readings import Last, output_of_all, writes
from .shape import STALLED, for_step, unknown_of
from .suspect import RULE as SUSPECT_RULE
from .suspect import VERDICT as SUSPECT
from .suspect import quiet_s

RULE = "collective_said"
FIELD = "said"
"""Of a finding's details: the words, the proof first."""
PROOF = ("stuck", "aborted")
STACKS = {"nccl": "NCCL", "c10d": "PyTorch", "gloo": "Gloo", "mlx": "MLX", "xla": "XLA", "vllm": "vLLM"}
_MARKS = re.compile(r"^(?:\[[^\]]*\]:? ?)+")


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the step, or none."""
    proof = proof_of(step)
    if proof is None or not _may(step):
        return []
    output = output_of_all(step)
    if output is None:
        return [unknown_of(step, RULE, "the output of a rank is not known", step.workers, True)]
    if min(proof.said.s, output.age) < min(step.policy.after, COLLECTIVE_MAX_S):
        return []
    return [_conclude(picture, step, gang, proof, output, STALLED, RULE)]


def suspect(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """What has just been said, or was followed by silence: shown at once."""
    proof = proof_of(step)
    if proof is None or not _may(step):
        return []
    output = output_of_all(step) or Last(proof.said.s, proof.at)
    if proof.said.last_s > SAID_NEW_S and output.age < quiet_s(step):
        return []
    return [_conclude(picture, step, gang, proof, output, SUSPECT, SUSPECT_RULE)]


def tell(picture: Picture, step: StepView, concluded: list[Conclusion]) -> list[Conclusion]:
    """The conclusions, with the words of the run and what its output repeats as evidence."""
    more: dict[str, object] = {}
    if step.said:
        more[FIELD] = [_kept(one) for one in step.said[:32]]
    if step.chatter:
        more["chatter"] = [step.chatter.line, step.chatter.every_s, step.chatter.other_s]
    if not more:
        return concluded
    proof = proof_of(step)
    words = f"; {_said(proof, picture.now)}" if proof else ""
    return [structs.replace(c, evidence=c.evidence | more, said=c.said + ("" if c.evidence.get("by_words") else words))
            if c.verdict in (STALLED, SUSPECT) else c for c in concluded]


def proven(details: dict[str, object]) -> bool:
    """Whether a finding's or a conclusion's evidence holds words that prove it."""
    said = details.get(FIELD)
    return isinstance(said, list) and any(one.get("kind") in PROOF for one in said)


def proof_of(step: StepView) -> SaidView | None:
    """The first word that a collective is stuck. None: nobody says so, or the run went on after it.

    A communicator that was aborted counts while its process lives: once that is gone it is a failure.
    """
    found = [one for one in step.said if one.said.kind in PROOF
             and not (one.said.kind == "aborted" and _gone(step, one))]
    output = step.output_s
    if not found or (output is not None and min(one.said.last_s for one in found) > output + SAID_OVER_S):
        return None
    return min(found, key=lambda one: (PROOF.index(one.said.kind), -one.said.s, one.said.rank or 0))


def _may(step: StepView) -> bool:
    living = [worker for worker in step.workers if worker.state == "running"]
    return bool(living) and not any(
        writes(worker) or any(p.traced or p.state == "t" for p in worker.processes) for worker in step.workers)


def _gone(step: StepView, one: SaidView) -> bool:
    members = [member_of(step, one.said.rank)] if one.worker is None else [
        Member(w, p) for w in step.workers if w.rank == one.worker for p in w.processes]
    known = [member for member in members if member is not None]
    return bool(known) and all(m.worker.state != "running" or m.process.state in DEAD for m in known)


def _conclude(picture: Picture, step: StepView, gang: Gang | None, proof: SaidView, output: Last, verdict: str,
              rule: str) -> Conclusion:
    guilty: tuple[Sign, ...] = culprits(gang) if gang else ()
    if guilty and gang is not None:
        whose = say.of_gang(step, gang, guilty)
    elif not (guilty := _named(step)) and (guilty := late(step.said, step, _size(step))):
        whose = f"{say.named(guilty)}; {guilty[0].rest}"
    else:
        names = [f"{say.who(sign.member)} is missing" for sign in guilty[:say.NAMED_AT_MOST]]
        if len(guilty) > say.NAMED_AT_MOST:
            names.append(f"{len(guilty) - say.NAMED_AT_MOST} more are missing")
        whose = "; ".join(names) or say.NOBODY
    said = f"{say.no_output(output, picture.now)}; {_said(proof, picture.now)}; {whose}"
    evidence: dict[str, object] = {
        "output_s": round(output.age, 1), "ranks": [worker.rank for worker in step.workers],
        "after_s": step.policy.after, "sign_s": round(proof.said.s, 1), "by_words": True}
    found = for_step(step, gang, guilty, output, verdict=verdict, rule=rule, said=said, workers=step.workers,
                     evidence=evidence)
    return structs.replace(found, gang=True)  # who waits for a collective is tied, whatever sockets tell


def _size(step: StepView) -> int:
    return max(step.tasks, sum(len(worker.processes) for worker in step.workers))


def _named(step: StepView) -> tuple[Sign, ...]:
    """Ranks that words name as missing, where they are a minority."""
    ranks = sorted({rank for one in step.said if one.said.kind in PROOF for rank in one.said.ranks})
    of = _size(step)
    if 2 * len(ranks) >= of and (len(ranks), of) != (1, 2):
        return ()
    return tuple(Sign(member, "named", None) for rank in ranks if (member := member_of(step, rank)))


def _said(proof: SaidView, now: float) -> str:
    """``NCCL: rank 1 says "Watchdog caught collective operation timeout" at 14:04 UTC: ALLREDUCE #808 ran for 10m``"""
    said = proof.said
    text = _MARKS.sub("", said.line).partition(": WorkNCCL(")[0]
    rank = said.rank if said.rank is not None else proof.worker
    who = f"rank {rank} says " if rank is not None else ""
    what = " ".join(part for part in (said.op, f"#{said.seq}" if said.seq is not None else "") if part)
    ran = say.ran(said.ran_ms)
    parts = [what + ran if what else "", f"enqueued {said.enqueued}" if said.enqueued is not None else "",
             f"completed {said.completed}" if said.completed is not None else ""]
    details = ", ".join(part for part in parts if part)
    return (f'{STACKS.get(said.stack, said.stack)}: {who}"{say.shortened(text)}" at {say.clock(proof.at, now)}'
            + (f": {details}" if details else ""))


def _kept(one: SaidView) -> dict[str, object]:
    said = one.said
    found = {"kind": said.kind, "stack": said.stack, "rank": said.rank, "worker": one.worker, "node": one.node,
             "line": said.line, "at": round(one.at, 1), "op": said.op, "seq": said.seq, "ran_ms": said.ran_ms,
             "enqueued": said.enqueued, "completed": said.completed, "ranks": list(said.ranks)}
    return {key: value for key, value in found.items() if value not in (None, "", [])}


def speaker(step: StepView, worker: WorkerView) -> SaidView | None:
    """What is said in a worker's name: in its own file, or by its rank in the step's."""
    mine = [one for one in step.said if one.worker == worker.rank or (
        one.worker is None and (found := member_of(step, one.said.rank)) is not None and found.worker is worker)]
    return mine[0] if mine else None
