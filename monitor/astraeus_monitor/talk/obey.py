"""What a verified reply asks for: the closed list of commands, restart causes, steps known to be tied or quiet."""

from __future__ import annotations

from collections.abc import Callable

from astraeus_protocol import report

from ..log import say, say_once
from ..rounds.looks import Looks
from ..watch.job import JobWatch
from ..watch.step import integer
from . import stopfile


def obey(reply: report.Reply, looks: Looks) -> bool:
    """Do what the reply asks; whether the controller is to hear of it at once."""
    tell, jobs = False, looks.jobs
    looks.stacks.arrived()
    for command in reply.commands:
        job = jobs.get(command.job)
        if job is None or job.nonce != command.nonce:
            continue  # another attempt's
        if isinstance(command, report.StopFile):
            tell |= _stop(job, command.lines)
        elif isinstance(command, report.TakeStacks):
            tell |= looks.stacks.ask(job, command)
        elif not job.dropped:
            say(f"job {job.job}: let go, as the controller asks: {command.reason or 'no reason given'}")
            job.dropped = tell = True
            looks.left(job)
    for name, cause in reply.causes.items():
        job = jobs.get(integer(name, -1))
        if job and job.cause != cause and _written(job, "cause", stopfile.write_cause, job.path, cause):
            job.cause = cause
    tied, closer, ras = set(reply.tied), set(reply.closer), set(reply.ras)
    for number, job in jobs.items():
        for name, step in job.steps.items():
            known = f"{number}.{name}" in tied
            # A controller that was started anew knows no ties: it hears of them at once, before it judges the
            # gang's ranks one by one.
            tell |= step.tied and not known and step.running
            step.tied = known
            step.closer_asked = f"{number}.{name}" in closer
            step.ras_asked = f"{number}.{name}" in ras
    return tell


def _stop(job: JobWatch, lines: dict[str, str]) -> bool:
    if job.stop_file and job.stop_lines == lines:
        return False
    uid = integer(job.facts.get("uid"))
    if not _written(job, "stop file", stopfile.write_stop, job.path, uid, lines):
        return False
    say(f"job {job.job}: stop file written: {lines.get('cause', '')} {lines.get('reason', '')}")
    job.stop_file, job.stop_lines = True, lines
    return True


def _written(job: JobWatch, what: str, write: Callable[..., None], *arguments: object) -> bool:
    try:
        write(*arguments)
    except (OSError, OverflowError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else f"{fault}"
        say_once(f"{what} {job.job}", f"job {job.job}: can't write its {what}: {why}")
        return False
    return True
