"""Who is watched (docs/rules.md, "Who is watched"), with the sentence that says why."""

from __future__ import annotations

import msgspec
from astraeus_protocol.settings import BY_KEY, Settings

from ..config import Config
from ..slurm.types import JobFacts
from .state import BATCH_STEPS, NEVER_STEPS


class Facts(msgspec.Struct, frozen=True):
    """What decides whether a step is watched."""

    step: str
    others_run: bool
    """Another step of the job, neither batch nor extern, runs."""
    gpus: bool
    """The job has GPUs."""
    step_gpus: bool
    """The step's tasks have GPUs, or it is not known whether they do."""
    own: Settings
    """The step's own options."""
    own_raw: dict[str, str]
    job: Settings
    job_raw: dict[str, str]


def watched(of: Facts, facts: JobFacts | None, config: Config) -> tuple[bool, str]:
    """Whether a step is watched, and why, as a sentence."""
    if of.step in NEVER_STEPS:
        return False, "not watched: the extern step runs nothing of the job's own"
    if of.step in BATCH_STEPS and of.others_run:
        return False, "not watched: the batch step is a worker only while no other step of the job runs"
    if of.own.no_stall_watch or (of.job.no_stall_watch and not of.own.asked):
        return False, "not watched: --no-stall-watch"
    asked = of.own.asked or of.job.asked
    if of.gpus and not of.step_gpus and of.step not in BATCH_STEPS:
        if asks_itself(of.own_raw, of.job_raw):
            return True, "watched: the step asks for it"
        return False, ("not watched: a step without GPUs in a job that has some; "
                       "to have it watched, give it --stall-after of its own")
    if asked:
        return True, "watched: the run asks for it"
    if facts is None:
        return False, "not watched yet: Slurm has not said what kind of job it is"
    if not facts.batch:
        return False, "not watched: a job without a batch script; to have it watched, give --stall-after"
    if not of.gpus:
        return False, "not watched: a job without GPUs; to have it watched, give --stall-after"
    glob = config.unwatched_by(partition=facts.partition, qos=facts.qos, account=facts.account,
                               job_name=facts.name)
    if glob:
        return False, f"not watched: the site leaves out {glob}; to have it watched, give --stall-after"
    return True, "watched: a batch job with GPUs"


def asks_itself(own: dict[str, str], job: dict[str, str]) -> bool:
    """The step's options ask by themselves: srun hands a job's options on to its steps, and what is the same
    as the job's is the job's."""
    return any(key in BY_KEY and BY_KEY[key].asks and job.get(key) != value for key, value in own.items())
