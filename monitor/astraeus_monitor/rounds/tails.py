"""Which file holds the end of a step's output, and whether it is to be read now."""

from __future__ import annotations

import msgspec
from astraeus_protocol.readings import End

from ..plain import plain
from ..probes.tail import DECODER, LINES, TailAsk, TailLook
from ..sources import last_words
from ..sources.finished import SHOWN
from ..sources.words import PATIENCE_S
from ..watch.job import JobWatch
from ..watch.step import StepWatch, integer


class Source(msgspec.Struct):
    """The file that holds a step's newest output here, and when it grew."""

    grew: float
    ask: TailAsk


def source(job: JobWatch, step: StepWatch) -> Source | None:
    """None where no file of the step is known here, or nobody can tell whose words stand at its end."""
    uid = integer(job.facts.get("uid"), -1)
    others = [other for other in job.steps.values() if other is not step and other.running and other.step != "batch"]
    if uid < 0 or not step.running or (step.step == "batch" and others):
        return None
    most = max((len(w.roster.processes) for w in step.workers.values()), default=1)
    ranks = max(1, most) * max(1, integer(step.facts.get("tasks"), 1))
    found = [Source(w.growth.last, TailAsk(uid, w.growth.path, w.tree, None, ranks))
             for w in step.workers.values() if w.running and w.has_file and w.growth.path and w.growth.grown]
    if step.shared_seen and step.growth.path and step.growth.grown:
        found.append(Source(step.growth.last, TailAsk(uid, step.growth.path, step.holders, None, ranks)))
    newest = max(found, key=lambda one: one.grew, default=None)
    if newest and any(newest.ask.path == other.growth.path for other in others):
        return None
    return newest


def ask(job: JobWatch, step: StepWatch, now: float) -> TailAsk | None:
    """What is to be read of a step now, if anything."""
    found = source(job, step)
    patience = integer(step.facts.get("stall_after") or job.facts.get("stall_after")) or PATIENCE_S
    if found is None or not step.words.due(found.grew, step.gaps.median(), now, patience):
        return None
    step.words.begin(found.grew, now)
    last_words.rows()  # here, once: not in each child
    return found.ask


def look_of(lines: list[bytes], why: str) -> TailLook:
    """What the child said, or that it did not."""
    try:
        return DECODER.decode(lines[0]) if lines else TailLook(fault=why or "no answer")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return TailLook(fault="the answer can't be read")


def end(step: StepWatch, log: str, lines: list[bytes], why: str) -> End:
    """Its last lines, for a report: another's text, whatever it says."""
    look = look_of(lines, why)
    return End(step.step, plain(log[:SHOWN * 2]), [plain(line[:SHOWN]) for line in look.lines[-LINES:]],
               plain(look.fault[:SHOWN]))


def take(step: StepWatch, lines: list[bytes], why: str) -> None:
    """Take in what the child said, or that it did not."""
    look = look_of(lines, why)
    step.words.see(look.what, look.line, look.fault)
