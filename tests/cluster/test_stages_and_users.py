"""Its user, or an administrator, does something of his own at every stage of a restart: that stands.

What a person does between our last look at a job and the command that follows it can't be seen: a suspension in
that moment ends with our requeue, a Comment is overwritten. Those moments are left out (SPARED), as is a Comment for a
job that has ended: Slurm takes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site
from .stages_kit import OF, STAGES, Held, Stage, controller_killed, gated, held

pytestmark = pytest.mark.alone
WORDS = "words-of-its-user"
AFTER = {"sent", "requeued", "scheduled"}
"""Stages at which the requeue has happened."""
SPARED = {
    "cancel": {"reviving"}, "hold": {"reviving", "scheduled"}, "suspend": {"reviving", "requeuing"} | AFTER,
    "requeue": {"scheduled"}, "comment": {"decided", "requeued", "reviving"},
}
COMMANDS = {
    "cancel": ("alice", "scancel {job}"), "hold": ("alice", "scontrol hold {job}"),
    "suspend": ("root", "scontrol suspend {job}"), "requeue": ("alice", "scontrol requeue {job}"),
    "comment": ("alice", f"scontrol update jobid={{job}} Comment={WORDS}"), "nothing": ("alice", "true"),
}
OVER = {"restart_declined", "ended_during_stop", "requeued", "restarted", "stalled_over", "progress"}
"""Events that tell that a restart, or before its stop the finding, has come to an end."""
Pairs = list[tuple[Stage, str]]
SAMPLE: Pairs = [(OF[stage], action) for stage, action in (
    *((stage, "nothing") for stage in ("TERM-annotated", "TERM-stopping", "TERM-requeuing", "TERM-sent",
                                       "TERM-requeued", "USR1-frozen", "USR1-woken", "USR1-waiting", "USR1-requeuing")),
    ("TERM-annotated", "cancel"), ("USR1-woken", "cancel"), ("USR1-requeuing", "cancel"), ("TERM-requeued", "cancel"),
    ("USR1-waiting", "hold"), ("USR1-frozen", "suspend"), ("TERM-requeuing", "requeue"), ("USR1-signalling", "requeue"),
    ("TERM-sent", "comment"), ("USR1-waiting", "comment"))]


@pytest.fixture(scope="module", autouse=True)
def _gate(site: Site) -> Iterator[None]:
    with gated(site):
        yield


class Acted:
    """Jobs at their stages, and what was done to each."""

    def __init__(self, jobs: Held, pairs: Pairs, fault: Callable[[Held], None]) -> None:
        self.jobs, self.site, self.cluster = jobs, jobs.site, jobs.cluster
        self.by = dict(zip(jobs.jobs, (action for _, action in pairs), strict=True))
        for job, action in self.by.items():
            user, command = COMMANDS[action]
            done = self.cluster.run("ctl", command.format(job=job), user=user)
            refused = action == "requeue" and jobs.jobs[job].name in AFTER
            assert done.ok or refused, f"{jobs.jobs[job].id}, {action}: {done.err}"
        fault(jobs)

    def of(self, action: str) -> list[int]:
        return [job for job, one in self.by.items() if one == action]

    def restarts(self, job: int) -> str:
        return self.jobs.shown(job, "Restarts")

    def held(self, job: int) -> bool:
        return (self.jobs.shown(job, "JobState"), self.jobs.shown(job, "Priority")) == ("PENDING", "0")

    def let_on(self) -> None:
        """Suspended and held jobs stay so for a while; then they are let on, as those are that their users requeued."""
        for job in self.of("hold"):
            wait_for(lambda job=job: self.held(job), 150, 0.5, f"held and PENDING: {self.jobs.jobs[job].id}",
                     lambda job=job: self.site.history(job))
        end = time.monotonic() + 20
        while time.monotonic() < end:
            assert all(map(self.held, self.of("hold"))), "a held job started"
            assert {self.restarts(job) for job in self.of("suspend")} <= {"0"}, "a suspended job was requeued"
            time.sleep(2)
        for job in self.of("suspend"):
            self.cluster.run("ctl", ["scontrol", "resume", str(job)], check=True)
        for job in self.of("hold"):
            self.cluster.run("ctl", f"scontrol release {job}; scontrol update jobid={job} StartTime=now+3", check=True)
        for job in self.of("requeue"):
            wait_for(lambda job=job: self.jobs.shown(job, "JobState") not in ("COMPLETING", "FAILED")
                     and OVER & set(self.site.kinds(job)), 150, 0.5,
                     f"requeued and seen: {self.jobs.jobs[job].id}", lambda job=job: self.site.kinds(job))
            # Slurm's own begin time is two minutes ahead; where ours has been set the job may run by now.
            self.cluster.run("ctl", f"scontrol update jobid={job} StartTime=now+3")

    def check(self, job: int, stage: Stage) -> None:
        match self.by[job]:
            case "cancel":
                self.cancelled(job, stage)
            case "suspend" if stage.name in ("decided", "annotated"):
                self.healed(job)
            case "requeue" if stage.name not in AFTER:
                self.requeued_by_its_user(job, stage)
            case "comment":
                self.jobs.came_back_once(job, stage, comment=WORDS, cause=stage.name != "scheduled")
            case _:
                self.jobs.came_back_once(job, stage)

    def cancelled(self, job: int, stage: Stage) -> None:
        wait_for(lambda: OVER & set(self.site.kinds(job)), 90, 1, "the restart is over", lambda: self.site.history(job))
        self.cluster.wait_state(job, "CANCELLED", timeout=60)
        assert self.restarts(job) == ("1" if stage.name in AFTER else "0"), f"restarts: {self.restarts(job)}"
        states = wait_for(lambda: self.jobs.states(job), 30, 1, "an attempt in accounting")
        assert states == ["REQUEUED"] * (len(states) - 1) + ["CANCELLED"], states

    def healed(self, job: int) -> None:
        """Before the stop: the resume wakes the rank that had been stopped, too, and that is progress."""
        self.site.wait_event(job, "progress", timeout=90)
        seen = (self.restarts(job), self.jobs.shown(job, "JobState"), "stopping" in self.site.kinds(job))
        assert seen == ("0", "RUNNING", False), f"restarts, state, stopping: {seen}"

    def requeued_by_its_user(self, job: int, stage: Stage) -> None:
        self.cluster.wait_state(job, "COMPLETED", timeout=240)
        assert self.restarts(job) == "1", f"restarts: {self.restarts(job)}"
        wait_for(lambda: self.jobs.attempts(job, stage) == ["REQUEUED", "COMPLETED"], 30, 1, "two attempts",
                 lambda: self.jobs.states(job))
        wait_for(lambda: "[astraeus" not in self.site.rows(job, "Comment")[-1]["Comment"], 60, 1, "a clean Comment")


def stands(site: Site, pairs: Pairs, fault: Callable[[Held], None] = Held.go_on) -> None:
    with held(site, [stage for stage, _ in pairs]) as jobs:
        acted = Acted(jobs, pairs, fault)
        acted.let_on()
        jobs.check_each(acted.check)


def test_a_sample_of_stages_where_the_controller_is_killed_as_well(site: Site) -> None:
    stands(site, SAMPLE, controller_killed)


@pytest.mark.full
@pytest.mark.parametrize("action", SPARED)
def test_what_its_user_does_at_every_stage(site: Site, action: str) -> None:
    stands(site, [(stage, action) for stage in STAGES if stage.name not in SPARED[action]])
