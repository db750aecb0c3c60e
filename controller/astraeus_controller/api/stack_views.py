"""What the API answers of Python stacks: who is where, and everything that was read."""

from __future__ import annotations

from astraeus_protocol.names import worker_name
from astraeus_protocol.readings import Stack

from ..fleet.view import fold
from ..history.stacks import Reading
from ..rules import stacks
from .views import Json, iso

One = tuple[str, Stack]
"""(node, a process's stack)"""


def reading(of: Reading, waiting_for: list[str]) -> Json:
    """``said``: who is where, in one line; ``groups``: by the whole stack of the main thread, the biggest first."""
    found = sorted(((node, stack) for node, answer in of.answers.items() for stack in answer.taken),
                   key=lambda one: (one[1].step, one[1].rank, one[1].local))
    steps = sorted({stack.step for _, stack in found})
    return {
        "run": of.run, "job": of.job, "restarts": of.restarts, "ask": of.ask, "at": iso(of.at), "native": of.native,
        "finding": of.finding or None, "done": of.done, "machines": of.nodes, "waiting_for": waiting_for,
        "steps": [_step(step, [one for one in found if one[1].step == step]) for step in steps],
        "processes": [_process(of.run, node, stack, several=len(steps) > 1) for node, stack in found],
        "unknown": [{"machine": node, "reason": answer.unknown} for node, answer in sorted(of.answers.items())
                    if answer.unknown],
    }


def _step(step: str, found: list[One]) -> Json:
    names = stacks.names([(s.rank, s.local, s.own) for _, s in found])
    named = [((name, node, stack), tuple(stack.frames)) for name, (node, stack) in zip(names, found, strict=True)]
    places = [(group.place, [name for name, _, _ in group.members]) for group in stacks.grouped(named)]
    unknown: dict[str, list[str]] = {}
    for (name, _, stack), frames in named:
        if not frames:
            unknown.setdefault(stack.unknown or "no frames", []).append(name)
    return {
        "step": step, "said": stacks.joined(places),
        "groups": [{"ranks": stacks.fold([name for name, _, _ in group.members]), "count": len(group.members),
                    "machines": fold(sorted({node for _, node, _ in group.members})), "frames": list(group.frames)}
                   for group in stacks.by_whole_stack(named)],
        "unknown": [{"ranks": stacks.fold(there), "count": len(there), "reason": reason}
                    for reason, there in unknown.items()],
    }


def _process(run: str, node: str, stack: Stack, *, several: bool) -> Json:
    return {
        "worker": worker_name(run, stack.step, stack.rank, several_steps=several), "step": stack.step,
        "rank": stack.rank, "machine": node, "pid": stack.pid, "local": stack.local, "frames": stack.frames,
        "threads": [{"name": t.name, "count": t.count, "frames": t.frames} for t in stack.threads],
        "unknown": stack.unknown or None,
    }
