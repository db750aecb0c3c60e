"""The gang of a step: who belongs to it, who of it is in an odd state, who waits."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import msgspec
from astraeus_protocol.readings import Wait

from .limits import D_STATE_S, DEATH_SETTLES_S, TERM_SETTLES_S
from .picture import ProcessView, RasView, SaidView, StepView, WorkerView
from .storage import storage_wait

DEAD = ("X", "Z")


class Member(msgspec.Struct, frozen=True, gc=False):
    """One tied worker process and the worker that it belongs to."""

    worker: WorkerView
    process: ProcessView


class Sign(msgspec.Struct, frozen=True, gc=False):
    """A member's state that keeps the others waiting. ``kind``: T, Z, gone, D. ``age`` None: not known.

    Who waits for storage counts as D whatever its state: of a FUSE file system it waits in S. Who stands out by what
    a closer look or a stack told (``rules.places``, ``rules.edges``, ``rules.stacks``) has a sign of the kind place,
    idle, edges or stack; whom NCCL's RAS names (``rules.ras``), of the kind ras; by its numbers (``rules.late``) late;
    by others' words named.
    """

    member: Member
    kind: str
    age: float | None
    wait: Wait | None = None
    """The storage that a member in D waits for, where that is known."""
    words: str = ""
    """What it was seen doing, where that names it: ``sleeps in hrtimer_nanosleep (clock_nanosleep)``."""
    source: str = ""
    """What is said before its name, where somebody else names it: ``NCCL RAS: ``."""
    rest: str = ""
    """What the others were seen doing: ``3 of 3 other ranks wait in futex_do_wait (futex)``."""


class Gang(msgspec.Struct, frozen=True):
    """A tied gang as it stands.

    ``members`` leaves out who exited 0: that is the evidence of nothing. ``others`` are the members without a
    sign; ``waiting`` those of them whose pulse is known to be gone.
    """

    members: tuple[Member, ...]
    signs: tuple[Sign, ...]
    others: tuple[Member, ...]
    waiting: tuple[Member, ...]
    beating: tuple[Member, ...]
    traced: bool
    ras: tuple[RasView, ...] = ()
    tasks: int = 0
    done: frozenset[int] = frozenset()
    """PIDs of those that exited 0, as they saw themselves."""
    step: StepView | None = None
    """What it is the gang of: its words tell of ranks, too."""

    @property
    def said(self) -> tuple[SaidView, ...]:
        """What is said of a collective in its output."""
        return self.step.said if self.step else ()

    @property
    def quiet(self) -> tuple[Member, ...]:
        """Who has to wait for a stall to be one: the others whose pulse is gone. Where there are none, for all are
        in an odd state, those in D whose own pulse is gone: a store that hangs may take the whole gang."""
        if self.others:
            return self.waiting
        return tuple(sign.member for sign in self.signs if sign.kind == "D" and _pulse(sign.member) == "gone")

    def most(self, some: Sequence[Member]) -> bool:
        """More than half of those of whom ``quiet`` tells."""
        return 2 * len(some) > len(self.others or self.members)

    @property
    def waits(self) -> bool:
        """The pulse of more than half of the others is gone; unknown counts as not gone."""
        return self.most(self.quiet)

    @property
    def waits_s(self) -> float:
        """For how long the pulse of more than half of the others has been gone, seconds; 0: it is not."""
        ages = sorted((member.process.pulse_gone_s or 0.0 for member in self.quiet), reverse=True)
        needed = len(self.others or self.members) // 2  # one more than so many are more than half
        return ages[needed] if len(ages) > needed else 0.0

    @property
    def beats(self) -> bool:
        """The pulse of more than half of the members is known and present."""
        return 2 * len(self.beating) > len(self.members)


def others_of(gang: Gang, found: Sequence[Member]) -> tuple[list[Member], str]:
    """The members beside these, and what they are called: ranks, or processes where a rank has several."""
    named = {id(member) for member in found}
    several = any(len(member.worker.processes) > 1 for member in gang.members)
    return [member for member in gang.members if id(member) not in named], "processes" if several else "ranks"


def gang_of(step: StepView) -> Gang | None:
    """The step's gang; None unless two tied worker processes or more are left of it."""
    members = tuple([Member(worker, process) for worker in step.workers for process in worker.processes
                     if process.tied and not _finished(process)])
    if len(members) < 2:
        return None
    signs = _signs(members)
    odd = {id(sign.member) for sign in signs}
    others = tuple([member for member in members if id(member) not in odd]) if odd else members
    pulses = [(member, _pulse(member)) for member in members]
    return Gang(
        members=members,
        signs=signs,
        others=others,
        waiting=tuple([member for member, pulse in pulses if pulse == "gone" and id(member) not in odd]),
        beating=tuple([member for member, pulse in pulses if pulse == "present"]),
        traced=any(m.process.traced or m.process.state == "t" for m in members),
        ras=step.ras, tasks=step.tasks, done=done_of(step), step=step,
    )


def done_of(step: StepView) -> frozenset[int]:
    """PIDs of those that exited 0, as they saw themselves: nobody misses them."""
    return frozenset([*(p.inner or p.pid for w in step.workers for p in w.processes if _finished(p)),
                      *(w.pid for w in step.workers if w.state == "exited" and w.exit_status == 0)])


def others_wait(gang: Gang, found: Sequence[Member]) -> str:
    """``3 of 3 other ranks wait``, beside these."""
    others, noun = others_of(gang, found)
    waiting = {id(member) for member in gang.waiting}
    return f"{sum(id(member) in waiting for member in others)} of {len(others)} other {noun} wait"


def by_rank(member: Member) -> tuple[int, int]:
    """The order in which members are told."""
    return member.worker.rank, member.process.local


def sign_of(worker: WorkerView, process: ProcessView) -> Sign | None:
    """The state of a worker process that keeps others waiting, if it is in one."""
    if worker.state == "stale" or process.traced or _finished(process) or _just_ended(process):
        return None
    member = Member(worker, process)
    match process.state:
        case "T":
            return Sign(member, "T", process.state_s)
        case "Z":
            return Sign(member, "Z", process.state_s)
        case "X":
            return Sign(member, "gone", process.state_s)
    wait = storage_wait(worker, process)
    in_d = process.state_s if process.state == "D" and (process.state_s or 0.0) >= D_STATE_S else None
    if wait is None and in_d is None:
        return None
    return Sign(member, "D", max(in_d or 0.0, wait.s if wait else 0.0), wait)


def _signs(members: tuple[Member, ...]) -> tuple[Sign, ...]:
    """Signs of all members. Deaths whose status nobody saw count only while they are a minority: a launcher's
    processes that finish one after the other leave no status behind, and all but the last would look dead."""
    signs = [sign for m in members if (sign := sign_of(m.worker, m.process))]
    unseen = [s for s in signs if s.kind in ("Z", "gone") and s.member.process.exit_status is None]
    if 2 * len(unseen) >= len(members):
        signs = [sign for sign in signs if sign not in unseen]
    # The same member objects as in the gang, so that they can be told from the others.
    by_process = {id(m.process): m for m in members}
    return tuple(Sign(by_process[id(s.member.process)], s.kind, s.age, s.wait) for s in signs)


def _just_ended(process: ProcessView) -> bool:
    """Its whole job may be ending: the others' ends are not reported yet, or they handle the signal."""
    if process.state not in DEAD or process.state_s is None:
        return False
    by_term = process.exit_status is not None and process.exit_status & 127 == signal.SIGTERM
    return process.state_s < (TERM_SETTLES_S if by_term else DEATH_SETTLES_S)


def _finished(process: ProcessView) -> bool:
    return process.state in DEAD and process.exit_status == 0


def _pulse(member: Member) -> str:
    """``gone``, ``present``, or ``unknown``."""
    gone = member.process.pulse_gone_s
    if gone is None or member.worker.state != "running" or member.process.state in DEAD:
        return "unknown"
    return "gone" if gone > 0 else "present"
