"""Sentences: what the findings say, in the words of docs/rules.md."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from astraeus_protocol.durations import say_seconds
from astraeus_protocol.readings import Wait

from . import stacks
from .gang import Gang, Member, Sign
from .picture import GpuView, StepView, WorkerView
from .readings import Last
from .storage import storage_waits

NOBODY = "no rank stands out"
NAMED_AT_MOST = 3
WORDS_AT_MOST = 80
"""Characters of a run's own words in a sentence."""


def clock(at: float, now: float) -> str:
    """``14:02 UTC``; with the date when it is not today's."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return then.strftime("%H:%M UTC" if then.date() == today.date() else "%Y-%m-%d %H:%M UTC")


PLACES = {"null": "its output goes to /dev/null", "nothing": "its output is closed",
          "pty": "its output goes to a terminal", "fifo": "its output goes to a FIFO"}


def no_output(last: Last, now: float) -> str:
    """``no output since 14:02 UTC``, or how silence is known of output that can't be seen."""
    if not last.unseen:
        return f"no output since {clock(last.at, now)}"
    return f"nothing written since {clock(last.at, now)} ({where(last)})"


def where(last: Last) -> str:
    """``its output goes to /dev/null``"""
    return PLACES.get(last.unseen, "its output can't be seen")


def last_words(line: str, at: float, now: float) -> str:
    """``finished but not exited: last words "Training completed" at 14:02 UTC``"""
    return f'finished but not exited: last words "{shortened(line)}" at {clock(at, now)}'


def shortened(line: str) -> str:
    """A line of a run's output, for a sentence."""
    return line if len(line) <= WORDS_AT_MOST else f"{line[:WORDS_AT_MOST - 1]}…"


def ran(ms: int | None) -> str:
    """`` ran for 10m``; "" where it is not known."""
    return f" ran for {say_seconds(ms / 1000)}" if ms else ""


def who(member: Member) -> str:
    """``rank 5 (node c3, PID 4242)``; ``rank 0 · local process 2 (RANK=2, PID 4242) on c1``."""
    worker, process = member.worker, member.process
    if len(worker.processes) < 2:
        return f"rank {worker.rank} (node {worker.node}, PID {process.pid})"
    rank = f"RANK={process.rank}, " if process.rank else ""
    return f"rank {worker.rank} · local process {process.local} ({rank}PID {process.pid}) on {worker.node}"


def state(sign: Sign) -> str:
    """``is stopped (state T) for 40s``, ``is gone: killed by signal 9 (KILL)``."""
    if sign.words:
        return sign.words
    lasts = "" if sign.age is None else f" for {say_seconds(sign.age)}"
    match sign.kind:
        case "T":
            return f"is stopped (state T){lasts}"
        case "Z":
            return f"is a zombie (state Z){lasts}"
        case "D" if sign.wait is not None:
            helper = f" in its process {sign.wait.helper}" if sign.wait.helper else ""
            return f"waits{helper} {for_storage(sign.wait)}{lasts}"
        case "D":
            wait = sign.member.process.wait
            where = f" in {wait.channel} ({wait.call})" if wait else ""
            return f"is in uninterruptible sleep (state D){where}{lasts}"
        case _:
            return f"is gone: {ending(sign.member.process.exit_status)}"


def ending(status: int | None) -> str:
    """A wait status in words: ``killed by signal 9 (KILL)``, ``exited with code 3``."""
    if status is None:
        return "nobody saw how it ended"
    number = status & 0x7F
    if not number:
        return f"exited with code {status >> 8}"
    try:
        return f"killed by signal {number} ({signal.Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return f"killed by signal {number}"


def named(culprits: Sequence[Sign]) -> str:
    """Who is guilty and why; ``no rank stands out`` where nobody is."""
    if not culprits:
        return NOBODY
    parts = [f"{sign.source}{who(sign.member)} {state(sign)}" for sign in culprits[:NAMED_AT_MOST]]
    if len(culprits) > NAMED_AT_MOST:
        parts.append(f"{len(culprits) - NAMED_AT_MOST} more are in such a state")
    return "; ".join(parts)


def of_gang(step: StepView, gang: Gang, guilty: Sequence[Sign]) -> str:
    """Who is guilty, who waits for storage beside them, and how many of the others wait."""
    rest = guilty[0].rest if guilty else ""
    parts = [many_on_storage(step, guilty), named(guilty), rest or (waiting(gang) if gang.others else ""),
             stacks.seen(gang, guilty), killed(step)]
    return "; ".join(part for part in parts if part)


def killed(step: StepView) -> str:
    """``a process of rank 2 on c3 was killed for lack of memory at 14:02 UTC``; "" where none was. A rank whose data
    loader went so may wait for it for ever."""
    found = [worker for worker in step.workers if worker.oom is not None and worker.oom_at is not None]
    parts = [f"a process of rank {worker.rank} on {worker.node} was killed for lack of memory at "
             f"{clock(worker.oom_at or 0.0, worker.oom_at or 0.0)}" for worker in found[:NAMED_AT_MOST]]
    if len(found) > NAMED_AT_MOST:
        parts.append(f"processes of {len(found) - NAMED_AT_MOST} more ranks, too")
    return "; ".join(parts)


def size(count: int) -> str:
    """``9.0 MB``, ``430 kB``."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB" if count >= 1e3 else f"{count} bytes"


def for_storage(wait: Wait) -> str:
    """``for storage: store1:/export (mounted at /data, nfs4)``; ``for storage: nfs`` where the mount is not known."""
    return f"for storage: {store(wait)}"


def store(wait: Wait) -> str:
    return f"{wait.mount} (mounted at {wait.at}, {wait.kind})" if wait.mount else wait.kind


def many_on_storage(step: StepView, guilty: Sequence[Sign]) -> str:
    """``8 of 8 ranks wait for storage: …``; "" where nobody does but those that are named with it."""
    told = {id(sign.member.process) for sign in guilty[:NAMED_AT_MOST] if sign.wait}
    waits = storage_waits(step.workers)
    if all(id(process) in told for _, process, _ in waits):
        return ""
    stores = list(dict.fromkeys(store(wait) for _, _, wait in waits))
    if len(stores) > NAMED_AT_MOST:
        stores[NAMED_AT_MOST:] = [f"{len(stores) - NAMED_AT_MOST} more"]
    count, of, noun = len({worker.rank for worker, _, _ in waits}), len(step.workers), "ranks"
    if several(step.workers):
        count, of, noun = len(waits), sum(len(worker.processes) for worker in step.workers), "processes"
    return f"{count} of {of} {noun} {'waits' if count == 1 else 'wait'} for storage: {', '.join(stores)}"


def several(workers: Iterable[WorkerView]) -> bool:
    """Some worker has several processes, so that ranks are not what is counted."""
    return any(len(worker.processes) > 1 for worker in workers)


def waiting(gang: Gang) -> str:
    """``7 of 7 other ranks wait``."""
    noun = "processes" if several(member.worker for member in gang.members) else "ranks"
    return f"{len(gang.waiting)} of {len(gang.others)} other {noun} wait"


def its_gpus(found: Sequence[GpuView], now: float) -> str:
    """``its 2 GPUs idle since 14:01 UTC``, ``its GPU was never busy``."""
    noun = "its GPU" if len(found) == 1 else f"its {len(found)} GPUs"
    return f"{noun} {idle(found, now, one=len(found) == 1)}"


def idle(found: Sequence[GpuView], now: float, *, one: bool = False) -> str:
    """``idle since 14:01 UTC``, ``were never busy``."""
    if not any(gpu.ever_busy for gpu in found):
        return f"{'was' if one else 'were'} never busy"
    at = max((gpu.busy_at for gpu in found if gpu.busy_at is not None), default=None)
    return "idle" if at is None else f"idle since {clock(at, now)}"
