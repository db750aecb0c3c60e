"""One round: what the rules conclude, held against the findings that are open. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from astraeus_protocol.findings import Event, Finding

from .. import rules
from ..fleet import Fleet
from ..rules.cause import surer
from ..rules.conclusion import Conclusion
from ..rules.gpus_idle import NEVER
from ..rules.limits import PULSE_BACK_S
from ..rules.nothing_runs import RULE as NOTHING_RUNS
from ..rules.picture import JobView, Picture, Policy
from ..rules.readings import gone_quiet
from . import ask_ras
from .better import better_of, waits_on
from .memory import Memory
from .progress import NO_STEP, beats, over, progressed, rank_in, ranks_of, step_of
from .straggling import KINDS, Straggling
from .words import closed, opened

NOBODY = "-"
"""Culprit of a finding's key where no rank stands out."""
CHECK_AGAIN_S = 10.0
"""Slurm is asked again for a job's facts after this, when the last asking brought none."""


class Change(msgspec.Struct, frozen=True):
    """What a round changes.

    ``kind``: ``open``, ``update`` (the guilty rank is known better), ``close``; or ``check``: a stall is
    concluded and Slurm's facts of the job are older than that: fetch them (``needs_facts``), hand them to the
    fleet, judge the job again. A check's finding is what would open.
    """

    kind: str
    finding: Finding
    event: Event | None
    why: str
    needs_facts: bool = False


class Pass(Memory):
    """Compares conclusions with open findings. ``memory``, ``offsets``: what the store holds of them at start."""

    def __init__(self, fleet: Fleet, cluster: str, memory: Iterable[Finding] = (),
                 offsets: dict[str, float] | None = None) -> None:
        super().__init__(memory, offsets)
        self.fleet = fleet
        self.cluster = cluster
        self._first: dict[tuple[int, str], float] = {}
        self._asked: dict[int, float] = {}
        self.straggling = Straggling()
        self._quiet: dict[int, list[str]] = {}
        """Job to its steps that have gone quiet."""
        self._ras: dict[int, dict[str, tuple[str, ...]]] = {}  # job to steps whose NCCL RAS is asked, and where
        self.being_stopped: Callable[[int, int], bool] = lambda job, restarts: False
        """Whether an attempt's stop has begun: from its stop file to its requeue nothing is concluded of it."""

    def suspect_jobs(self) -> set[int]:
        """Jobs with an open suspect or stalled finding, whose nodes are to report often. A script that sleeps may do so
        for days."""
        return {f.job for f in self._open.values() if f.kind in ("suspect", "stalled") and f.rule != NOTHING_RUNS}

    def quiet_steps(self, jobs: Iterable[int]) -> list[str]:
        """``JOB.STEP`` of these jobs' steps most of whose processes have lost their pulse: all of their processes are
        worth a closer look, on every node."""
        return [f"{job}.{step}" for job in jobs for step in self._quiet.get(job, ())]

    def ras_steps(self, node: str, jobs: Iterable[int]) -> list[str]:
        """``JOB.STEP`` of these jobs' steps whose NCCL RAS this node is to ask."""
        return [f"{job}.{step}" for job in jobs for step, nodes in self._ras.get(job, {}).items() if node in nodes]

    def judge(self, picture: Picture, now: float) -> list[Change]:
        """What changes for this job. ``now``: the fleet's time."""
        self._quiet.pop(picture.job.job, None)
        stands = picture.job.suspended or picture.job.ended
        if quiet := [s.step for s in picture.job.steps if s.watched and not (s.ended or stands) and gone_quiet(s)]:
            self._quiet[picture.job.job] = quiet
        self._ras.pop(picture.job.job, None)
        if (ask := ask_ras.asked(picture)) and not self.being_stopped(picture.job.job, picture.job.restarts):
            self._ras[picture.job.job] = ask
        changes = self._ends(picture)
        if picture.job.suspended or picture.job.ended:
            for finding in self._of(picture.job):
                self._beats.pop(finding.key, None)
            self._keep_first(picture.job.job, set())
            return changes
        if self.being_stopped(picture.job.job, picture.job.restarts):
            # What a stop brings about (ranks that say that they save, a rank that is woken) is no progress, and
            # ranks that end one by one are no suspects: a history once read "Progress again" after "Requeued". Nor
            # is a frozen batch script stalled whose step has ended, and with it the finding.
            return changes
        concluded = rules.judge(picture)
        changes += self._progress(picture, now)
        changes += self._stalled(picture, concluded, now)
        changes += self._suspects(picture, concluded)
        changes += self._nodes(picture, concluded)
        changes += self._stragglers(picture)
        return changes

    def forget(self) -> None:
        """Let go of what is remembered of jobs that the fleet no longer holds."""
        self.forget_others(self.fleet.jobs)
        self.straggling.forget_others(self.fleet.jobs)
        for job in self._asked.keys() - self.fleet.jobs.keys():
            del self._asked[job]
        for kept in (self._quiet, self._ras):
            for job in kept.keys() - self.fleet.jobs.keys():
                del kept[job]
        for key in [key for key in self._first if key[0] not in self.fleet.jobs]:
            del self._first[key]

    def orphans(self, now: float) -> list[Change]:
        """Closes findings of attempts that are surely over and of which no picture will speak."""
        pictured = {n for n, job in self.fleet.jobs.items() if job.parts}
        return [self._close(f, self.fleet.wall(now), "the job ended") for f in self.memory
                if f.job not in pictured and self.fleet.gone(f.job, f.restarts)]

    # What ends

    def _of(self, job: JobView) -> list[Finding]:
        return self._of_job(job.job)

    def _ends(self, picture: Picture) -> list[Change]:
        heard = self.fleet.all_heard(picture.job.job)
        return [self._close(f, picture.now, why) for f in self._of(picture.job)
                if (why := over(f, picture, all_heard=heard))]

    def _progress(self, picture: Picture, now: float) -> list[Change]:
        changes = []
        for finding in self._of(picture.job):
            step = step_of(finding, picture)
            if finding.kind != "stalled" or step is None:
                continue
            if beats(finding, step):
                back = now - self._beats.setdefault(finding.key, now) >= PULSE_BACK_S
            else:
                self._beats.pop(finding.key, None)
                back = False
            offset = picture.now - now
            shift = offset - self._offsets.setdefault(finding.key, offset)
            if back or progressed(finding, step, shift):
                changes.append(self._close(finding, picture.now, "progress"))
        return changes

    def _close(self, finding: Finding, at: float, why: str) -> Change:
        self._drop(finding.key)
        return Change("close", finding, closed(finding, at, why), why or "over")

    # Stalled

    def _stalled(self, picture: Picture, concluded: list[Conclusion], now: float) -> list[Change]:
        changes: list[Change] = []
        waiting: set[str] = set()
        for conclusion in concluded:
            if conclusion.verdict != "stalled":
                continue
            beside = [f for f in self._of(picture.job) if f.kind == "stalled" and f.step == conclusion.step]
            if conclusion.gang and beside:
                changes += self._refine(beside[0], conclusion, picture)
                continue
            covered = set().union(*(ranks_of(f) for f in beside))
            new = [name for name in conclusion.workers if rank_in(name) not in covered]
            if not new:
                for finding in [f for f in beside if f.worker == conclusion.worker]:
                    if not waits_on(conclusion.evidence) <= waits_on(finding.details) or surer(
                            conclusion.evidence.get("cause_kind"), finding.details.get("cause_kind")):
                        changes += self._refine(finding, conclusion, picture)
                continue
            finding = self._finding(picture, conclusion, "stalled", new)
            waiting.add(finding.key)
            changes += self._open_stalled(finding, picture, now)
        self._keep_first(picture.job.job, waiting)
        return changes

    def _open_stalled(self, finding: Finding, picture: Picture, now: float) -> list[Change]:
        """Opens it once Slurm's word on the job is younger than what first led to the verdict."""
        job = picture.job
        if not job.settled:
            return []
        first = self._first.setdefault((job.job, finding.key), now - job.report_s)
        if job.facts_s is None or now - job.facts_s < first:
            asked = self._asked.get(job.job)
            if asked is not None and now - asked < CHECK_AGAIN_S:
                return []
            self._asked[job.job] = now
            return [Change("check", finding, None, "Slurm's word on the job is older than the verdict", True)]
        if job.state != "RUNNING":
            return []
        self._asked.pop(job.job, None)
        self._offsets[finding.key] = picture.now - now
        return [self._opened(finding, picture, finding.said)]

    def _keep_first(self, job: int, keys: set[str]) -> None:
        for key in [k for k in self._first if k[0] == job and k[1] not in keys]:
            del self._first[key]

    # Suspects and nodes

    def _suspects(self, picture: Picture, concluded: list[Conclusion]) -> list[Change]:
        changes = []
        stalled = {f.step for f in self._of(picture.job) if f.kind == "stalled"}
        now = {c.step: c for c in concluded if c.verdict == "suspect"}
        unknown = {c.step for c in concluded if c.verdict == "unknown" and c.rule == "suspect"}
        for finding in [f for f in self._of(picture.job) if f.kind == "suspect"]:
            conclusion = now.pop(finding.step, None)
            if finding.step in stalled:
                changes.append(self._close(finding, picture.now, "it is stalled"))
            elif conclusion is not None:
                changes += self._refine(finding, conclusion, picture)
            elif finding.step not in unknown:
                changes.append(self._close(finding, picture.now, ""))
        for conclusion in now.values():
            if conclusion.step not in stalled:
                finding = self._finding(picture, conclusion, "suspect", conclusion.workers)
                changes.append(self._opened(finding, picture, conclusion.said))
        return changes

    def _nodes(self, picture: Picture, concluded: list[Conclusion]) -> list[Change]:
        changes = []
        now = {c.node: c for c in concluded if c.verdict == "node_silent"}
        for finding in [f for f in self._of(picture.job) if f.kind == "node_silent"]:
            if now.pop(finding.node, None) is None:
                changes.append(self._close(finding, picture.now, ""))
        for conclusion in now.values():
            finding = self._finding(picture, conclusion, "node_silent", conclusion.workers)
            changes.append(self._opened(finding, picture, conclusion.said))
        return changes

    def _stragglers(self, picture: Picture) -> list[Change]:
        changes = []
        held = [f for f in self._of(picture.job) if f.kind in KINDS]
        for turn in self.straggling.look(picture, rules.stragglers(picture), held):
            if turn.kind == "close" and turn.finding:
                changes.append(self._close(turn.finding, picture.now, turn.why))
            elif turn.conclusion and turn.finding:
                better = msgspec.structs.replace(turn.finding, said=turn.conclusion.said,
                                                 details=turn.finding.details | turn.conclusion.evidence)
                self._put(better)
                changes.append(Change("update", better, opened(better, picture.now), better.said))
            elif turn.conclusion:
                finding = self._finding(picture, turn.conclusion, turn.conclusion.verdict, turn.conclusion.workers)
                changes.append(self._opened(finding, picture, finding.said))
        return changes

    # Findings and events

    def _opened(self, finding: Finding, picture: Picture, why: str) -> Change:
        self._keep(finding)
        return Change("open", finding, opened(finding, picture.now), why)

    def _refine(self, finding: Finding, conclusion: Conclusion, picture: Picture) -> list[Change]:
        """The guilty rank became known, or is another one; or what is told of it is (``judging.better``). The key
        stays: alerts resolve by it."""
        better = better_of(finding, conclusion)
        if better is None:
            return []
        new, tell = better
        if finding.action == "list" and new.rule != finding.rule and new.rule != NEVER:
            # It is more than a run that never began: by policy again.
            new = msgspec.structs.replace(new, action=_policy(picture.job, conclusion.step).action)
        self._put(new)
        return [Change("update", new, opened(new, picture.now) if tell else None, new.said)]

    def _finding(self, picture: Picture, conclusion: Conclusion, kind: str,
                 workers: Iterable[str]) -> Finding:
        job = picture.job
        policy = _policy(job, conclusion.step)
        if kind == "node_silent":
            culprit = conclusion.node
        else:
            culprit = conclusion.worker if conclusion.rank is not None else NOBODY
        base = f"{self.cluster}/{job.job}/{job.restarts}/{conclusion.step}/{kind}/{culprit}"
        action = policy.action if kind == "stalled" else "none"
        listed = policy.never_began == "list" and not policy.asked
        if action != "none" and conclusion.rule == NEVER and listed:
            action = "list"
        details = conclusion.evidence | {"ranks": sorted(rank_in(name) for name in workers),
                                         "gang": conclusion.gang,
                                         "no_progress_s": round(conclusion.since_s, 1)}
        return Finding(
            key=self._next_key(job.job, base), kind=kind, rule=conclusion.rule, run=job.run,
            run_name=job.name, job=job.job, restarts=job.restarts, step=conclusion.step,
            worker=conclusion.worker, rank=conclusion.rank, node=conclusion.node, pid=conclusion.pid,
            since=conclusion.since, detected_at=picture.now, said=conclusion.said, action=action,
            details=details)


def _policy(job: JobView, step: str) -> Policy:
    return job.policy if step == NO_STEP else next(
        (s.policy for s in job.steps if s.step == step), job.policy)
