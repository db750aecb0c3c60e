"""Real trainings for scenarios: how each launcher starts train.py, what each fault leads to, and the proof of it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from scorecard.score import CAN_TELL
from slurm_test_cluster import wait_for
from slurm_test_cluster.frameworks import NoSuchVersion, NotToBeHad
from slurm_test_cluster.ranks import RankProcess

from .conftest import Site

TRAIN = "/opt/workloads/train.py"
GUILTY = 2
PATIENCE_S = 30


@dataclass(frozen=True)
class Fault:
    """What a fault on one rank of PyTorch gloo leads to. ``by``: the earliest evidence that tells whose it is."""

    name: str
    expect: str
    """stalled, nothing, ended"""
    by: str = ""
    seen: str = ""
    """State, wait channel and system call of the guilty rank's main thread; the survivors are in futex."""
    evidence: str = ""
    cause: str = ""
    """How the stall's cause begins."""


# Each row was seen on real ranks; what lies in a futex as the survivors do is told by frames alone.
GLOO = (
    Fault("sigstop", "stalled", "state", "T", "is stopped (state T)", "rank stopped"),
    Fault("sleep", "stalled", "wait", "S hrtimer_nanosleep clock_nanosleep"),
    Fault("gilhold", "stalled", "wait", "S hrtimer_nanosleep clock_nanosleep"),
    Fault("fifo", "stalled", "wait", "S wait_for_partner openat"),
    Fault("flock", "stalled", "wait", "S locks_lock_inode_wait flock"),
    Fault("http", "stalled", "wait", "S wait_woken recvfrom"),
    Fault("input", "stalled", "wait", "S anon_pipe_read read"),
    Fault("pdb", "stalled", "wait", "S anon_pipe_read read"),
    Fault("subproc", "stalled", "wait", "S do_wait wait4"),
    Fault("dl_stop", "stalled", "wait", "S unix_stream_read_generic read; its DataLoader worker T", "",
          "waiting for its data loader: rank 2"),
    Fault("dl_deadlock", "stalled", "wait", "S poll_schedule_timeout poll", "",
          "waiting for its data loader: rank 2"),
    Fault("spin", "stalled", "wait", "R running, 99 % of a core"),
    Fault("matmul", "stalled", "wait", "R running, 94 % of a core"),
    Fault("lock", "stalled", "frames", "S futex_do_wait futex", "", "deadlock in Python: rank 2"),
    Fault("emptyq", "stalled", "frames", "S futex_do_wait futex", "", "deadlock in Python: rank 2"),
    Fault("join", "stalled", "frames", "S futex_do_wait futex", "", "deadlock in Python: rank 2"),
    Fault("xgroup", "stalled", "frames", "S futex_do_wait futex", "", "collective stuck"),
    Fault("ckpt", "nothing", seen="R or D for moments, hundreds of MB/s"),
    Fault("slow", "nothing", seen="S hrtimer_nanosleep, 12 switches/s"),
    Fault("slowcpu", "nothing", seen="R, 9 switches/s"),
    Fault("exit", "ended"),
    Fault("sigkill", "ended"),
    Fault("skip", "ended"),
)


def interpreter_of(site: Site, framework: str) -> str:
    """Path of a python on the nodes that has the framework. The scenario fails where it can't be had, and is skipped
    only where pip itself has no such version for this machine's Python."""
    try:
        return site.cluster.framework(framework)
    except NoSuchVersion as problem:
        pytest.skip(str(problem))
    except NotToBeHad as problem:
        pytest.fail(str(problem))


@dataclass
class Training:
    """A job that trains, healthy and watched; ``victim`` is the rank that will have the fault."""

    site: Site
    job: int
    title: str
    step: int | str
    victim: RankProcess
    worker: int
    """Rank of the task that the victim belongs to: a launcher's has several processes."""
    began: float = 0
    times: dict[str, float] = field(default_factory=dict)

    def fault(self) -> None:
        """The fault begins at the victim's next step."""
        self.site.cluster.run("ctl", f"touch /home/alice/.train/go-{self.job}", user="alice", check=True)
        self.began = time.clock_gettime(time.CLOCK_BOOTTIME)

    def stop(self, signal: str = "STOP") -> None:
        self.site.cluster.run(self.victim.node, ["kill", f"-{signal}", str(self.victim.task_pid)], check=True)
        if signal != "CONT":
            self.title = self.title.replace("healthy", f"sig{signal.lower()}")
            self.began = time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, kind: str, timeout: float, *, named: bool = False) -> dict[str, Any]:
        """The first finding of that kind, or the first that names a rank: the ring's own words come before it is sure
        that a rank is gone. How long after the fault it came is kept and printed."""
        def there() -> dict[str, Any] | None:
            return next((one for one in self.site.findings(kind, self.job) if one["pid"] or not named), None)
        found = wait_for(there, timeout, every=0.5, what=f"{kind} of job {self.job}",
                         saw=lambda: (self.site.history(self.job), self.site.api("/stalls")))
        self.times[kind] = round(time.clock_gettime(time.CLOCK_BOOTTIME) - self.began, 1)
        return found

    def lines(self) -> int:
        """Steps that it has printed."""
        return self.site.cluster.read_file("ctl", f"/home/alice/out-{self.job}.txt").count("step ")

    def end(self, expect: str, by: str = "", seen: str = "", **more: object) -> None:
        """Cancel; and where ASTRAEUS_VERDICTS names a file, say there what its recording must lead to."""
        if os.environ.get("ASTRAEUS_VERDICTS"):
            row: dict[str, object] = {}
            if expect == "stalled":
                row |= {"after": PATIENCE_S - 15, "within": PATIENCE_S + 30, "by": by, "seen": seen}
                row |= {"rank": self.worker, "pid": self.victim.task_pid, "node": self.victim.node}
                row |= {"suspect_within": 30} if by == "state" else {}
            verdict(self.job, self.title, expect, self.began, **row | more)
        print(f"{self.title}: {self.times}")
        self.site.cluster.cancel(self.job)


def verdict(job: int, title: str, expect: str, began: float, **more: object) -> None:
    """Say in the file that ASTRAEUS_VERDICTS names, if it does, what a job's recording must lead to. ``began``: when
    its fault did, CLOCK_BOOTTIME."""
    kept = os.environ.get("ASTRAEUS_VERDICTS")
    if not kept:
        return
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    row = {"job": job, "until": round(now, 1), "fault_at": round(began, 1), "title": title, "expect": expect,
           "begun": round(began, 1)} | more
    with open(kept, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def command(launcher: str, interpreter: str, arguments: str) -> tuple[str, list[str], int | str]:
    """(script, sbatch's arguments, step) of four ranks on two nodes (`one-node`: eight on one)."""
    # Who waits spins: two cores carry all ranks of all scenarios.
    run, yielding = "-m torch.distributed.run", "export OMPI_MCA_mpi_yield_when_idle=1\n"
    match launcher:
        case "srun":
            return f"srun --kill-on-bad-exit=0 {interpreter} -u {TRAIN} {arguments}", TWO_BY_TWO, 0
        case "srun-pmix":
            return f"{yielding}srun --mpi=pmix {interpreter} -u {TRAIN} {arguments}", TWO_BY_TWO, 0
        case "torchrun":
            at = "--rdzv-backend c10d --rdzv-id $SLURM_JOB_ID --rdzv-endpoint $(hostname):$((20000 + SLURM_JOB_ID))"
            return (f"srun {interpreter} {run} --nnodes 2 --nproc-per-node 2 {at} {TRAIN} {arguments}",
                    ["-N2", "-n2", "-c2"], 0)
        case "one-node":
            return (f"{interpreter} {run} --standalone --nproc-per-node 8 {TRAIN} {arguments}",
                    ["-N1", "-n1", "-c8"], "batch")
        case "mpirun":
            return (f"{yielding}mpirun --bind-to none -n 4 {interpreter} -u {TRAIN} {arguments}",
                    ["-N1", "-n4"], "batch")
    raise ValueError(launcher)


TWO_BY_TWO = ["-N2", "-n4", "--ntasks-per-node=2"]
WORKERS = {"torchrun": 1, "one-node": 0, "mpirun": 0}


def train(site: Site, framework: str, launcher: str, *, fault: str = "", options: str = "", ranks: int = 4,
          output: str = "/home/alice/out-%j.txt", more: tuple[str, ...] = ()) -> Training:
    """Start a training and wait until it steps and the pulse of all of its processes is known."""
    interpreter = interpreter_of(site, framework)
    backend = framework.partition("-")[0].removesuffix("4py")
    if backend == "mpi":
        options += " --print-every 5"
    chosen = f"{backend} --rank {GUILTY} {f'--fault {fault}' if fault else ''} {options}"
    script, arguments, step = command(launcher, interpreter, chosen)
    job = site.submit(script + "\n", *arguments, f"--stall-after={PATIENCE_S}s", "-o", output, *more)
    STARTED.append(job)
    site.cluster.wait_state(job, "RUNNING", timeout=120)
    by = "OMPI_COMM_WORLD_RANK" if launcher == "mpirun" else ""
    healthy(site, job, ranks)
    victim = site.cluster.rank_pid(job, step, GUILTY, by=by)
    title = f"{framework} by {launcher}, {fault or 'healthy'}"
    return Training(site, job, title, step, victim, WORKERS.get(launcher, GUILTY))


STARTED: list[int] = []
"""Jobs of the scenario that runs in this process."""


def cancel_started(site: Site) -> None:
    site.cluster.cancel(*STARTED)
    STARTED.clear()


def processes(site: Site, job: int) -> list[dict[str, Any]]:
    return [process for worker in site.progress(job)["workers"] for process in worker["processes"]]


def healthy(site: Site, job: int, ranks: int, timeout: float = 240) -> None:
    def beats() -> bool:
        # A start that takes longer than the patience is a stall, until it steps.
        found = [f for kind in ("stalled", "suspects") for f in site.findings(kind, job)]
        return not found and [p["pulse_gone_s"] for p in processes(site, job)] == [0] * ranks
    wait_for(beats, timeout, every=2, what=f"{ranks} processes of job {job} with a pulse",
             saw=lambda: (processes(site, job), site.cluster.logs("ctl", f"/home/alice/out-{job}.txt", lines=8)))


def assert_guilty(training: Training, finding: dict[str, Any], by: str) -> None:
    """The victim is named where the judge can tell by such evidence; nobody else ever is."""
    named = finding["pid"] or None
    if by in CAN_TELL:
        assert named == training.victim.task_pid, finding
        assert finding["machine"] == training.victim.node
    else:
        assert named in (None, training.victim.task_pid), f"somebody else is named: {finding}"


def stalls(training: Training, by: str, evidence: str = "", cause: str = "") -> dict[str, Any]:
    """From the fault to the finding: suspect within 30 s where a state tells it, stalled at its patience."""
    site, job = training.site, training.job
    if by == "state":
        suspect = training.wait("suspects", 45, named=True)
        assert training.times["suspects"] <= 30 + SLACK_S
        assert_guilty(training, suspect, by)
    seen: list[dict[str, Any]] = []

    def stalled() -> bool:
        seen.extend(site.findings("suspects", job))
        return bool(site.findings("stalled", job))

    wait_for(stalled, PATIENCE_S + 60, every=0.5, what=f"{training.title} stalled",
             saw=lambda: (site.progress(job), site.history(job)))
    finding = training.wait("stalled", 5)
    for suspect in seen:
        assert_guilty(training, suspect, "")
    assert PATIENCE_S - 15 <= training.times["stalled"] <= PATIENCE_S + 25 + SLACK_S
    settle_named(training, finding, by)
    assert evidence in finding["stall"]["evidence"]
    if cause and training.step == 0 and training.worker == GUILTY:
        wait_for(lambda: (site.findings("stalled", job)[0]["stall"]["cause"] or "").startswith(cause), 45, every=1,
                 what=f"{training.title}: its cause", saw=lambda: site.findings("stalled", job))
    return site.findings("stalled", job)[0]


SLACK_S = 10
"""Many ranks on two cores: what is to happen within seconds comes some later."""


def settle_named(training: Training, finding: dict[str, Any], by: str) -> None:
    """A name may come a look after the stall; a wrong one must not come at all."""
    if by and by in CAN_TELL and not finding["pid"]:
        wait_for(lambda: training.site.findings("stalled", training.job)[0]["pid"], 30, every=1,
                 what=f"{training.title}: a rank named", saw=lambda: training.site.findings("stalled", training.job))
    assert_guilty(training, training.site.findings("stalled", training.job)[0], by)


def heals(training: Training) -> dict[str, Any]:
    """SIGCONT: progress is said, the steps go on in the same attempt, and nobody exits. What that adds to a verdict."""
    site, job, before = training.site, training.job, training.lines()
    training.stop("CONT")
    wait_for(lambda: not site.findings("stalled", job), 90, every=1, what=f"{training.title}: no longer stalled",
             saw=lambda: (site.progress(job), site.history(job)))
    wait_for(lambda: training.lines() > before, 90, every=1, what="more steps", saw=lambda: site.progress(job))
    # Nodes report one after the other: for a moment the one that was stopped may be seen so beside new output.
    assert [kind for kind in site.kinds(job) if not kind.startswith("suspect")][-1] == "progress"
    shown = site.cluster.scontrol_show_job(job)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
    return {"closed": ["progress"]}


def ends(training: Training, timeout: float = 90) -> None:
    """The others exit by themselves: that is a failure and no stall."""
    site, job, before = training.site, training.job, training.site.kinds(training.job)
    site.cluster.wait_state(job, "FAILED", timeout=timeout)
    training.times["failed"] = round(time.clock_gettime(time.CLOCK_BOOTTIME) - training.began, 1)
    assert "stalled" not in site.kinds(job)[len(before):]
