"""May a stalled job be stopped and requeued? One pure function over one frozen record of facts.

``no`` for good: the reason will not go away in this attempt. ``not_now``: it may; asked again a minute later,
declined in history meanwhile. ``wait``: only our own pace holds it back; nothing is declined.
"""

from __future__ import annotations

import re

import msgspec
from astraeus_protocol.durations import say_seconds

from ..rules.incident import tripped

PROGRESSED_S = 600.0
"""An attempt that progressed for so long, from its start to its last progress, gives the budget back."""
NO_PROGRESS_S = 30.0
"""An attempt whose last progress is within this time of its start made none: output at the start is no work."""
TIME_LEFT_S = 60.0
"""With less than this beside its grace and KillWait left of its time limit a job is at its limit."""
UNKNOWN_SHARE = 0.05
SILENT_NODES = 1

_NUMBERS = re.compile(r"\d+")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the decision looks at. Times in seconds; None is unknown."""

    act: bool
    """The partition's mode is act."""
    stalled: bool
    """The finding is still open."""
    state: str
    """Slurm's state of the job; "" when Slurm does not know it."""
    same_attempt: bool = True
    """Slurm's restart count is the finding's."""
    batch: bool = True
    requeue: bool = True
    held: bool = False
    run_time_s: float | None = None
    time_limit_s: float | None = None
    kill_wait_s: float = 30
    grace_s: float = 0
    """What it is given to save beside KillWait, where our own signal stops it."""
    spent: int = 0
    """Restarts since the budget was last given back."""
    budget: int = 10
    total: int = 0
    """Restarts of this job in all."""
    max_restarts_total: int = 50
    progressed_s: float | None = None
    """This attempt: from its start to its last progress."""
    progressed_before_s: float | None = None
    """The attempt before, where we restarted it."""
    beside: str = ""
    """A step of the job that progresses."""
    allow_beside: bool = False
    at_end: str = ""
    """What the run's own metric says of its end."""
    last_words: str = ""
    """Of the stalled step, where they say that its training is over."""
    in_d: tuple[str, ...] = ()
    """Workers with a process in uninterruptible sleep."""
    on_storage: tuple[str, ...] = ()
    """Workers with a process that waits for storage, in whatever state."""
    stores: tuple[str, ...] = ()
    """What they wait for, where it is known."""
    traced: tuple[str, ...] = ()
    """Workers under a debugger."""
    silent_nodes: tuple[str, ...] = ()
    ranks: int = 0
    ranks_unknown: int = 0
    completing_nodes: tuple[str, ...] = ()
    """Nodes of the attempt before that still complete it."""
    incident: str = ""
    """Why the open incident that it is part of forbids to stop it: a sentence."""
    stalled_jobs: int = 0
    """Jobs that became stalled within 10 min."""
    watched_jobs: int = 0
    breaker_jobs: int = 3
    breaker_share: float = 0.02
    stops_last_hour: int = 0
    max_per_hour: int = 20
    since_last_stop_s: float | None = None
    min_interval_s: float = 30


class Decision(msgspec.Struct, frozen=True):
    """``answer``: yes, no, not_now, wait. ``sentence`` follows "restart declined: "."""

    answer: str
    sentence: str = ""


def may_restart(facts: Facts) -> Decision:
    """The first reason that stands against it, the lasting ones first."""
    for answer, reasons in (("no", _lasting(facts)), ("not_now", _passing(facts)), ("wait", _pace(facts))):
        for against, sentence in reasons:
            if against:
                return Decision(answer, sentence)
    return Decision("yes")


def breaker(facts: Facts) -> bool:
    """Whether so many jobs became stalled at once that the cause must lie outside of them."""
    return tripped(facts.stalled_jobs, facts.watched_jobs, jobs=facts.breaker_jobs, share=facts.breaker_share)


def without_numbers(sentence: str) -> str:
    """The same reason with another number is not told again."""
    return _NUMBERS.sub("", sentence)


def _lasting(facts: Facts) -> list[tuple[bool, str]]:
    nothing = (facts.progressed_s is not None and facts.progressed_s < NO_PROGRESS_S
               and facts.progressed_before_s is not None and facts.progressed_before_s < NO_PROGRESS_S)
    return [
        (not facts.act, "the partition is in observe mode, where nothing is stopped"),
        (not facts.stalled, "it is no longer stalled"),
        (not facts.state, "Slurm no longer knows the job"),
        (not facts.same_attempt, "the job was requeued meanwhile"),
        (not facts.batch, "it is interactive: Slurm requeues only batch jobs"),
        (not facts.requeue, "it is not requeueable (--no-requeue, or JobRequeue=0)"),
        (facts.budget == 0, "its restart budget is 0 (--max-restarts=0)"),
        (facts.spent >= facts.budget, f"its restart budget is spent ({facts.spent} of {facts.budget})"),
        (facts.total >= facts.max_restarts_total,
         f"the site's bound on restarts of one job is reached ({facts.total} of {facts.max_restarts_total})"),
        (bool(facts.at_end), f"the training is over ({facts.at_end}); another attempt would do it all again"),
        (bool(facts.last_words),
         f"the training is over (its last words: {facts.last_words}); another attempt would do it all again"),
        (nothing, "two attempts running made no progress; another would hang in the same place"),
    ]


def _passing(facts: Facts) -> list[tuple[bool, str]]:
    left = None
    if facts.time_limit_s is not None and facts.run_time_s is not None:
        left = facts.time_limit_s - facts.run_time_s
    unknown = facts.ranks > 0 and facts.ranks_unknown > UNKNOWN_SHARE * facts.ranks
    return [
        (bool(facts.incident), facts.incident),
        (breaker(facts), f"{facts.stalled_jobs} jobs stalled within 10 min: the cause lies outside of them, "
                         "so nothing is stopped"),
        (facts.state == "SUSPENDED", "the job is suspended"),
        (facts.state == "STOPPED", "the job is stopped by its user"),
        (facts.state == "COMPLETING", "the job is completing"),
        (facts.state != "RUNNING", f"the job is {facts.state}"),
        (facts.held, "the job is held: once requeued it would stay so"),
        (left is not None and left < facts.grace_s + facts.kill_wait_s + TIME_LEFT_S,
         f"it is at its time limit ({say_seconds(left or 0)} left)"),
        (bool(facts.beside) and not facts.allow_beside,
         f"step {facts.beside} progresses beside the stalled one, and Slurm requeues whole jobs"),
        (bool(facts.on_storage), f"{_waits(facts)}: a kill may not end it, and Slurm would drain its node"),
        (bool(facts.in_d), f"{_some(facts.in_d)} is in uninterruptible sleep (state D): a kill would not end it "
                           "and Slurm would drain its node"),
        (bool(facts.traced), f"{_some(facts.traced)} is under a debugger"),
        (len(facts.silent_nodes) > SILENT_NODES,
         f"{len(facts.silent_nodes)} of its nodes are silent ({_some(facts.silent_nodes)})"),
        (unknown, f"{facts.ranks_unknown} of its {facts.ranks} ranks are unknown"),
        (bool(facts.completing_nodes),
         f"nodes of its last attempt are still completing ({_some(facts.completing_nodes)})"),
        (facts.stops_last_hour >= facts.max_per_hour,
         f"the site's bound of {facts.max_per_hour} stops an hour is reached"),
    ]


def _pace(facts: Facts) -> list[tuple[bool, str]]:
    return [
        (facts.since_last_stop_s is not None and facts.since_last_stop_s < facts.min_interval_s,
         f"another job was stopped {say_seconds(facts.since_last_stop_s or 0)} ago"),
    ]


def _waits(facts: Facts) -> str:
    """``123-5 and 7 more wait for storage (store1:/export)``"""
    verb = "waits" if len(facts.on_storage) == 1 else "wait"
    stores = f" ({_some(facts.stores)})" if facts.stores else ""
    return f"{_some(facts.on_storage)} {verb} for storage{stores}"


def _some(names: tuple[str, ...]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{names[0]} and {len(names) - 1} more"
