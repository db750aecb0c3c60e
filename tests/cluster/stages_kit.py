"""Jobs whose restarts are held at their stages, side by side: one fault, or one person, then meets all stages at once.

A gate before the controller's Slurm commands (slurm_test_cluster.gate) holds each restart first where it is decided,
then where it is wanted; the stage that waits for the stop file is held by a monitor that stands still.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurm_test_cluster import wait_for

from .conftest import CONFIG, RING, Site

STAGES_CONFIG = CONFIG.replace("[slurm]\n", '[slurm]\nbin = "/opt/gate"\ntimeout_s = 120\nwrite_interval_s = 0.1\n') \
    .replace("backoff_s = 2\n", "backoff_s = 15\nstop_file_wait_s = 30\n")
BATCH_NODES, RANK_NODES = {"TERM": "c1", "USR1": "c3"}, {"TERM": "c2", "USR1": "c4"}
"""Where the batch script runs with rank 0, and rank 1, which is stopped."""
DECIDED = "decided before scontrol update"
SAVES_S = {"TERM": 4, "USR1": 20}
ASKED = {"TERM": [], "USR1": ["--stop-signal=USR1@60s"]}


@dataclass(frozen=True)
class Stage:
    """``signal``: what the job is stopped by; ``rule``: where its restart is held (Gate.hold)."""

    signal: str
    name: str
    rule: str

    @property
    def id(self) -> str:
        return f"{self.signal}-{self.name}"

    @property
    def ended(self) -> bool:
        """The job ends by itself before the requeue reaches it."""
        return self.name == "reviving"


EARLY = {"decided": DECIDED, "annotated": "annotated before squeue", "stopping": ""}
OWN = {
    "freezing": "freezing before scancel --batch", "frozen": "freezing after scancel --batch",
    "signalling": "signalling before scancel --signal=CONT", "woken": "signalling before scancel --signal=USR1",
    "signalled": "signalling after scancel --signal=USR1", "waiting": "waiting before squeue",
}
LATE = {
    "requeuing": "requeuing before scontrol requeue", "sent": "requeuing after scontrol requeue",
    "requeued": "requeued before scontrol update", "scheduled": "scheduled before squeue",
}
REVIVING = {"reviving": "reviving before scontrol requeue"}
STAGES = [Stage(signal, name, rule) for signal, names in
          (("TERM", EARLY | LATE | REVIVING), ("USR1", EARLY | OWN | LATE)) for name, rule in names.items()]
OF = {stage.id: stage for stage in STAGES}
RESTART_OVER = {"restarted", "restart_declined", "ended_during_stop"}
"""Events that end a restart."""


class Held:
    """``jobs``: job to the stage where its restart is held."""

    def __init__(self, site: Site) -> None:
        self.site, self.cluster = site, site.cluster
        self.jobs: dict[int, Stage] = {}

    def bring(self, stages: Iterable[Stage]) -> None:
        """Submit one job for each, stall it, and bring its restart there."""
        for stage in stages:
            self.jobs[self._submit(stage)] = stage
        self._stall()
        self._to_stages()

    def job(self, stage: str) -> int:
        return next(job for job, one in self.jobs.items() if one.id == stage)

    def named(self, *names: str) -> list[int]:
        return [job for job, stage in self.jobs.items() if stage.name in names]

    # ---- on the way there

    def _submit(self, stage: Stage) -> int:
        # A next attempt that has begun while others are brought to their stages is to be there when they are.
        steps = 160 if stage.name == "scheduled" else 20
        ring = f"--save-on {stage.signal} {SAVES_S[stage.signal]} --step-seconds 0.5 --short-if-restarted {steps}"
        # Patience is longer than any fault: a next attempt that a fault holds up is not to be a stall of its own.
        nodes = f"{BATCH_NODES[stage.signal]},{RANK_NODES[stage.signal]}"
        job = self.site.submit(f"srun {RING} {ring} --print-env\n", "-J", stage.id, "-w", nodes, "-N2", "-n2",
                               "--stall-after=45s", "--restart-stalled", *ASKED[stage.signal],
                               "--open-mode=append", "-o", "/home/alice/stages-%j.txt")
        self.cluster.hold({job: DECIDED})
        return job

    def _stall(self) -> None:
        """Rank 1 of each stops, once all are at work; each restart is held where it is decided."""
        for job in self.jobs:
            self.cluster.wait_state(job, "RUNNING", timeout=120)
        for job in self.jobs:
            self.site.settled(job, ranks=2, timeout=180)
        self._signal_rank_1(self.jobs, "STOP")
        self._wait_held(self.jobs, 180, lambda stage: DECIDED)

    def _signal_rank_1(self, jobs: Iterable[int], signal: str) -> None:
        pids: dict[str, list[str]] = {}
        for job in jobs:
            node = RANK_NODES[self.jobs[job].signal]
            line = rf"rank 1 starts on {node} as PID (\d+)"
            found = wait_for(lambda job=job, line=line: re.search(line, self.output(job)), 30, 0.5,
                             f"rank 1 of job {job} on {node}", lambda job=job: self.output(job)[:500])
            pids.setdefault(node, []).append(found[1])
        for node, ranks in pids.items():
            self.cluster.run(node, ["kill", f"-{signal}", *ranks], check=True)

    def _to_stages(self) -> None:
        """Those whose way is long first: where the ranks save they save while the fault comes."""
        late = [job for job, stage in self.jobs.items() if stage.name in (*LATE, *REVIVING)]
        slow, last = self.named("stopping"), self.named("scheduled")
        late = [job for job in late if job not in last]
        self._move(late, lambda stage: LATE["requeuing"] if stage.ended else stage.rule)
        self._end_themselves(self.named("reviving"))
        self._move([job for job in self.jobs if job not in (*late, *slow, *last)], lambda stage: stage.rule)
        # The next attempt of these begins soon, and it is short: it would be over before anything happens to it.
        self._move(last, lambda stage: stage.rule)
        if slow:
            self._monitors("STOP")
            self.cluster.hold(dict.fromkeys(slow, "none after none"))
            for job in slow:
                wait_for(lambda job=job: "stopping" in self.site.kinds(job), 30, 0.2, f"job {job} at its stop file")

    def _move(self, jobs: list[int], rule: Callable[[Stage], str]) -> None:
        self.cluster.hold({job: rule(self.jobs[job]) for job in jobs})
        self._wait_held(jobs, 120, rule)

    def _wait_held(self, jobs: Iterable[int], timeout: float, rule: Callable[[Stage], str]) -> None:
        wanted = {job: rule(self.jobs[job]) for job in jobs}

        def missing() -> dict[int, object]:
            held = self.cluster.held()
            return {job: (rule, self.site.kinds(job)) for job, rule in wanted.items() if held.get(job) != rule}
        wait_for(lambda: not missing(), timeout, 1, "every restart is held at its stage", missing)

    def _end_themselves(self, jobs: list[int]) -> None:
        """They lose a rank, and somebody wakes their scripts, which end; then the requeue that was held comes too
        late."""
        for job in jobs:
            self.cluster.run("ctl", ["scancel", "--batch", "--signal=CONT", str(job)], check=True)
        self._signal_rank_1(jobs, "KILL")
        for job in jobs:
            self.cluster.wait_state(job, "FAILED", timeout=60)
        self._move(jobs, lambda stage: stage.rule)

    # ---- from there

    def go_on(self) -> None:
        """Nothing is held any more."""
        self.cluster.let_go()
        self._monitors("CONT")

    def _monitors(self, signal: str) -> None:
        for node in RANK_NODES.values():
            self.cluster.kill_monitor(node, signal)

    def output(self, job: int) -> str:
        return self.cluster.logs("ctl", f"/home/alice/stages-{job}.txt")

    def shown(self, job: int, key: str) -> str:
        try:
            return self.cluster.scontrol_show_job(job).get(key, "")
        except LookupError:
            return ""

    def states(self, job: int) -> list[str]:
        """Of all attempts, as accounting has them."""
        return [row["State"].split()[0] for row in self.site.rows(job)]

    def attempts(self, job: int, stage: Stage) -> list[str]:
        """The same, where accounting may have seen the end of a job before its requeue or not."""
        states = self.states(job)
        return ["REQUEUED", *states[1:]] if stage.ended and states[:1] == ["FAILED"] else states

    def orders(self, job: int) -> list[str]:
        """Every signal and requeue that was sent for the job."""
        return [line for _, line in self.cluster.sent() if line.endswith(f" {job}")]

    def check_each(self, check: Callable[[int, Stage], None]) -> None:
        """All that is wrong, not only what is found first."""
        wrong = []
        for job, stage in self.jobs.items():
            try:
                check(job, stage)
            except AssertionError as fault:
                slurm = f"{self.shown(job, 'JobState')}, {self.states(job)}"
                events = [f"{event['kind']}: {event['message'][:160]}" for event in self.site.history(job)]
                wrong.append(f"{stage.id} (job {job}, {slurm}): {fault}\n    {events}\n    {self.orders(job)}\n"
                             f"    {self.output(job)[-400:]!r}")
        assert not wrong, "\n".join(wrong)

    def ends(self, job: int, timeout: float) -> None:
        """It is COMPLETED. One that has come to another end is not waited for: meanwhile Slurm forgets the others."""
        def ended() -> str:
            state = self.shown(job, "JobState")
            over = RESTART_OVER & set(self.site.kinds(job))
            return state if state == "COMPLETED" or (over and state in ("FAILED", "CANCELLED")) else ""
        state = wait_for(ended, timeout, 1, f"the end of job {job}", lambda: self.shown(job, "JobState"))
        assert state == "COMPLETED", f"it is {state}"

    def came_back_once(self, job: int, stage: Stage, *, cause: bool = True, comment: str = "",
                       reached: bool = True) -> None:
        """Requeued once, every rank saved, the next attempt knew why and came to its end, the Comment is its user's.
        ``reached``: Slurm could reach every node all the time."""
        self.ends(job, 240)
        self.site.wait_event(job, "restarted", timeout=60)
        kinds, out = self.site.kinds(job), self.output(job)
        # A node that is cut off for long makes Slurm itself requeue an attempt.
        lost = 0 if reached else self.states(job).count("NODE_FAIL")
        for what, seen, right in (
                ("restarts", self.shown(job, "Restarts"), str(1 + lost)),
                ("findings", kinds.count("stalled"), 1), ("intents", kinds.count("restart_intended"), 1),
                ("requeues", kinds.count("requeued"), 1), ("ends of restarts", kinds.count("restarted"), 1),
                ("ends otherwise", {"restart_declined", "ended_during_stop"} & set(kinds), set()),
                ("cause", not cause or bool(lost) or "ASTRAEUS_RESTART_CAUSE=stalled" in out, True),
                ("count", bool(lost) or "ASTRAEUS_RESTART_COUNT=1" in out, True)):
            assert seen == right, f"{what}: {seen}, not {right}"
        ends = ["REQUEUED", *["NODE_FAIL"] * lost, "COMPLETED"]
        wait_for(lambda: self.attempts(job, stage) == ends, 30, 1, "two attempts in accounting",
                 lambda: self.states(job))  # its database answers late, or not at all, once in a while
        if not stage.ended:
            self.saved(stage, out, reached)
        wait_for(lambda: self.site.rows(job, "Comment")[-1]["Comment"] == comment, 60, 1, f"Comment: {comment}",
                 lambda: self.site.rows(job, "Comment"))

    def saved(self, stage: Stage, out: str, reached: bool) -> None:
        """Both ranks were asked once, found one stop file, and have saved. One that could not be reached may have
        left before it was asked: with the other one it lost its neighbour."""
        for rank in (0, 1):
            asked = out.count(f"rank {rank} got {stage.signal}")
            assert asked == 1 or (asked == 0 and not reached), f"rank {rank} was asked {asked} times"
            # Its own word is lost where srun has left before it.
            saved = f"rank {rank} saved step" in out or f"rank {rank} found a checkpoint" in out
            assert saved or not asked, f"rank {rank} did not save"
        signals = set(re.findall(r"stop file: signal: (\w+)", out))
        findings = set(re.findall(r"stop file: finding: (.*)", out))
        if reached or signals:  # else what they said of it is lost with their srun
            assert signals == {stage.signal}, f"stop file: {signals}"
            assert len(findings) == 1, f"stop files: {findings}"

    def over(self) -> None:
        self.go_on()
        self.cluster.cancel(*self.jobs)


def lasts(seconds: float, what: str) -> None:
    """A fault is there for so long."""
    end = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() > end, seconds + 5, 0.5, what)


def controller_killed(jobs: Held) -> None:
    """Its commands that are held die with it unsent."""
    jobs.cluster.kill_controller("KILL")
    jobs.go_on()
    lasts(8, "the controller is away")
    jobs.cluster.start_controller(STAGES_CONFIG)


@contextmanager
def held(site: Site, stages: Iterable[Stage]) -> Iterator[Held]:
    """The jobs are gone at the end, whatever came of them."""
    one = Held(site)
    try:
        one.bring(stages)
        yield one
    finally:
        one.over()


@contextmanager
def gated(site: Site) -> Iterator[None]:
    """The controller asks Slurm through the gate meanwhile."""
    site.cluster.install_gate()
    site.cluster.kill_controller("TERM")
    site.cluster.start_controller(STAGES_CONFIG)
    try:
        yield
    finally:
        site.cluster.command_fault("")
        site.cluster.let_go()
        site.cluster.kill_controller("TERM")
        site.cluster.start_controller(CONFIG)
