"""What ends a finding: progress after it, or the end of what it speaks of."""

from __future__ import annotations

from astraeus_protocol.findings import Finding
from msgspec import structs

from ..rules import collective_stuck, gpus_idle, metric, nothing_runs, silent, words
from ..rules.gang import gang_of
from ..rules.limits import PROGRESS_SLACK_S
from ..rules.picture import Picture, StepView, WorkerView

GPU_RULES = (gpus_idle.RULE, gpus_idle.NEVER)
NO_STEP = "-"


def rank_in(name: str) -> int:
    """5 of ``123-5`` and of ``123_4.0-5``."""
    return int(name.rsplit("-", 1)[1])


def ranks_of(finding: Finding) -> set[int]:
    """Ranks that the finding covers."""
    ranks = finding.details.get("ranks")
    return {int(rank) for rank in ranks} if isinstance(ranks, list) else set()


def step_of(finding: Finding, picture: Picture) -> StepView | None:
    return next((step for step in picture.job.steps if step.step == finding.step), None)


def over(finding: Finding, picture: Picture, *, all_heard: bool) -> str:
    """Why the finding's subject is no more, as words behind "No longer stalled: "; "" while it is there.

    ``all_heard``: every node of the job has reported; only then a step's absence says that it ended.
    """
    job = picture.job
    if job.restarts > finding.restarts:
        return "a new attempt began"
    if job.ended:
        return "the job ended"
    if finding.step == NO_STEP:
        return ""
    step = step_of(finding, picture)
    if step is None:
        return "the step ended" if all_heard else ""
    if step.ended:
        return "the step ended"
    if not step.watched and job.facts_s is not None:
        return "it is no longer watched"
    if not finding.details.get("gang") and finding.kind == "stalled":
        covered = ranks_of(finding)
        known = [w for w in step.workers if w.rank in covered]
        if known and all(w.state in ("exited", "gone") for w in known):
            return "its task ended"
    return ""


def progressed(finding: Finding, step: StepView, shift: float = 0.0) -> bool:
    """A sign of progress after the finding's ``since``: newer output; a GPU busy or a CPU used since, where
    the rule takes that for progress. One worker's is enough for a gang; else all that are covered need it.
    ``shift``: by how much the controller's time of day was set since the finding was opened."""
    finding = structs.replace(finding, since=finding.since + shift)
    covered = ranks_of(finding)
    workers = [w for w in step.workers if w.rank in covered]
    if finding.rule == metric.RULE:  # it alone tells: a rank that prints that it waits is no progress
        return any(one.name == finding.details.get("metric") and _newer(one.at, finding)
                   for w in workers for one in w.metrics)
    if finding.details.get("gang"):
        # A watchdog's own words after the stall, and the traces that come with them, are no progress.
        last = max((one.last_at for one in step.said if one.said.kind != "benign"), default=0.0)
        finding = structs.replace(finding, since=max(finding.since, last))
        newer = any(_printed(w, finding) for w in step.workers)
        return newer or any(_gpu_newer(w, finding) for w in workers)
    alive = [w for w in workers if w.state in ("running", "stale")]
    return bool(alive) and all(_worker(w, finding) for w in alive)


def beats(finding: Finding, step: StepView) -> bool:
    """The majority of the gang has its pulse, under a rule that looks at it."""
    if finding.rule in (*GPU_RULES, metric.RULE, words.RULE) or not finding.details.get("gang"):
        return False
    gang = gang_of(step)
    return gang is not None and gang.beats


def _worker(worker: WorkerView, finding: Finding) -> bool:
    if _printed(worker, finding) or _gpu_newer(worker, finding):
        return True
    if finding.rule == nothing_runs.RULE:  # a script that woke up and runs something
        on_gpus = any(gpu.told is not None and gpu.told.pids for gpu in worker.gpus)
        return on_gpus or (bool(finding.details.get("by_tree")) and worker.rests_s == 0)
    return finding.rule == silent.RULE and _newer(worker.cpu_at, finding)


def _printed(worker: WorkerView, finding: Finding) -> bool:
    """Output since; where that can't be seen and the finding stands on nothing having been written, anything written.
    A collective's does not: there a log of the node's temperature would end it."""
    if worker.output_s is not None or finding.rule == collective_stuck.RULE or not finding.details.get("output_to"):
        return _newer(worker.output_at, finding)
    return _newer(worker.quiet_at, finding)


def _gpu_newer(worker: WorkerView, finding: Finding) -> bool:
    return finding.rule in GPU_RULES and any(
        gpu.ever_busy and _newer(gpu.busy_at, finding) for gpu in worker.gpus)


def _newer(at: float | None, finding: Finding) -> bool:
    return at is not None and at > finding.since + PROGRESS_SLACK_S
