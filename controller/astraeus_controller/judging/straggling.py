"""Which workers hold their gang back, over two passes in a row, and which do no longer. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec
from astraeus_protocol.findings import Finding

from ..rules.conclusion import Conclusion
from ..rules.limits import LINK_SETTLES_S, PASS_APART_S, STRAGGLER_PASSES
from ..rules.picture import Picture, StepView, WorkerView
from ..rules.straggler import AT_RISK, RULE
from ..rules.straggler_sign import LINK, WEAK

KINDS = (RULE, AT_RISK)
"""Kinds of findings, as the verdicts that lead to them."""
Key = tuple[str, str]
"""(step, worker)"""


class Streak(msgspec.Struct):
    """The same of a worker, at passes in a row. ``look``: Unix time of the look that the last one rests on."""

    what: str
    """The sign's class; "" for none."""
    look: float
    passes: int = 1
    since: float = 0.0
    """Unix time of the first."""

    def again(self, look: float) -> None:
        """The same at this look, which counts where it is another one."""
        if abs(look - self.look) >= PASS_APART_S:
            self.look, self.passes = look, self.passes + 1

    @property
    def stands(self) -> bool:
        settled = self.what != LINK or self.look - self.since >= LINK_SETTLES_S
        return self.passes >= STRAGGLER_PASSES and settled


class Turn(msgspec.Struct, frozen=True):
    """``open``: of ``conclusion``; ``update``: ``finding`` by ``conclusion``; ``close``: ``finding``, ``why``."""

    kind: str
    conclusion: Conclusion | None = None
    finding: Finding | None = None
    why: str = ""


class Straggling:
    """What a pass remembers of signs between rounds. A controller that starts anew begins to count anew."""

    def __init__(self) -> None:
        self._streaks: dict[int, dict[Key, Streak]] = {}

    def pending(self, job: int) -> bool:
        """One more look decides: its nodes are to look soon."""
        return any(not streak.stands and streak.what not in ("", WEAK)
                   for streak in self._streaks.get(job, {}).values())

    def forget_others(self, jobs: Container[int]) -> None:
        """Let go of what is remembered of all but these jobs."""
        for job in [job for job in self._streaks if job not in jobs]:
            del self._streaks[job]

    def look(self, picture: Picture, concluded: Sequence[Conclusion], held: Sequence[Finding]) -> Iterator[Turn]:
        """What this round changes. ``held``: the job's open findings of these kinds."""
        mine = [one for one in concluded if one.rule == RULE]
        streaks = self._streaks.setdefault(picture.job.job, {}) if mine or held else self._streaks.get(picture.job.job)
        if streaks is None:
            return
        for step in picture.job.steps:
            of_step = [one for one in mine if one.step == step.step]
            yield from self._step(picture, step, of_step, [one for one in held if one.step == step.step], streaks)
        if not streaks:
            del self._streaks[picture.job.job]

    def _step(self, picture: Picture, step: StepView, concluded: Sequence[Conclusion],
              held: Sequence[Finding], streaks: dict[Key, Streak]) -> Iterator[Turn]:
        workers = {worker.name: worker for worker in step.workers}
        blind = {name for one in concluded if one.verdict not in KINDS for name in one.workers}
        signs = {one.worker: one for one in concluded if one.verdict in KINDS}
        named = {finding.worker: finding for finding in held}
        known = {name for of, name in streaks if of == step.step}
        still = set(named)
        for name in [*signs, *sorted((known | named.keys()) - signs.keys())]:
            if name in blind and name not in signs:
                continue  # what was found stays, and what was counted
            sign = signs.get(name)
            streak = _streak(streaks, (step.step, name), sign, _look_of(workers.get(name), picture.now))
            finding = named.get(name)
            if not streak.stands:
                continue
            if finding is not None and (sign is None or sign.verdict != finding.kind):
                still.discard(name)
                yield Turn("close", finding=finding, why=_why(finding, sign, still))
                finding = None
            if sign is None:
                del streaks[step.step, name]
            elif finding is None:
                still.add(name)
                yield Turn("open", msgspec.structs.replace(sign, since=streak.since))
            elif finding.details.get("class") != sign.evidence.get("class"):
                yield Turn("update", sign, finding)


def _streak(streaks: dict[Key, Streak], key: Key, sign: Conclusion | None, look: float) -> Streak:
    what = "" if sign is None else str(sign.evidence.get("class"))
    streak = streaks.get(key)
    if streak is None or streak.what != what:
        streak = streaks[key] = Streak(what, look, since=look)
    else:
        streak.again(look)
    return streak


def _look_of(worker: WorkerView | None, now: float) -> float:
    """Unix time of the youngest look at what tells how it works; ``now`` where nothing is looked at."""
    if worker is None:
        return now
    looks: Iterable[float] = [gpu.looked_at for gpu in worker.gpus] + [one.looked_at for one in worker.metrics]
    return max(looks, default=0.0) or now


def _why(finding: Finding, sign: Conclusion | None, still: Container[str] | set[str]) -> str:
    """Why it closes; "" where the whole gang runs evenly again."""
    if sign is not None:
        return "it is only at risk now" if finding.kind == RULE else "it holds the gang back now"
    return f"{finding.worker} keeps pace again" if still and finding.kind == RULE else ""
