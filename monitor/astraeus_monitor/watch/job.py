"""One job on this node: its steps, its GPUs, when it was stopped; merges what probes saw."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from astraeus_protocol import report

from ..host import survey
from ..host.exits import Exits
from ..host.procfs import Proc, Stat
from ..host.stopped import Stopped, living_states
from ..log import say
from ..probes.look import Ask, Memory, SrunAsk, SrunLook, TaskLook
from ..sources import output as out
from ..sources.gpu import Answer
from ..sources.gpu_which import indices
from ..sources.rail import JobRails
from .gpus import JobGpus
from .logs import JobLogs
from .step import StepWatch, integer, seconds, settings
from .worker import WorkerWatch

PARENTAGE_AFTER_S = 10
"""A step that no plugin registered is looked for once its job is so old."""
ENDED_KEPT_S = 120
"""An ended step stays in the reports for so long, and until one was received."""
YOUNG_S = 60
"""A step's tree changes much in its first minute: it is looked at at each pulse."""
DEEP_EVERY_S, DEEP_SELDOM_S = 55, 115
"""Between two looks at all open files and the children of all threads; where the one before found nothing new. Such a
look costs three times what others do."""


class JobWatch:
    """One watched job. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, job: int, facts: dict[str, str], path: Path, now: float, window_s: float,
                 ignore: tuple[str, ...] = ()) -> None:
        self.job, self.facts, self.path, self.window_s = job, facts, path, window_s
        self.nonce = facts.get("nonce", "")
        self.began, self.came = seconds(facts.get("at"), now), now
        self.rails = JobRails()
        self.gpus = JobGpus(indices(facts.get("gpus", "")) or [], now)
        self.steps: dict[str, StepWatch] = {}
        self.stopped = Stopped()
        self.frozen = self.stop_file = False
        self.stop_lines: dict[str, str] = {}
        self.cause: str | None = None
        self.too_much = self.dropped = False
        self.memory = Memory()
        self.logs = JobLogs(ignore)
        self.sruns = out.Sruns()
        self.saved_steps: dict[str, Any] = {}
        self.deep_at, self.saved_at = now, float("-inf")
        self.deep_every = DEEP_EVERY_S
        self.hung = False
        """The last look hung before it came to a worker."""
        self.restless = True
        """Its processes changed at the last look: the next one comes soon."""
        self.uneasy = self._uneasy = True
        """Whether something may have changed that is told at once, by this sample and the one before."""

    def running(self) -> list[tuple[StepWatch, WorkerWatch]]:
        """Its running tasks here; none once it was let go."""
        steps = [] if self.dropped else [step for step in self.steps.values() if step.running]
        return [(step, worker) for step in steps for worker in step.workers.values() if worker.running]

    def has_gpus(self) -> bool:
        """Whether the driver is to be asked for it."""
        return bool(self.gpus.indices) and bool(self.running())

    def feed(self, step: str, lines: list[tuple[str, dict[str, str]]], now: float) -> None:
        """Take new lines of a step's file in."""
        for place, (word, pairs) in enumerate(lines):
            if word == "step" and (step not in self.steps or not self.steps[step].plugin):
                self.steps[step] = StepWatch(step, pairs, now, self.window_s)
            self.too_much |= word == "full"
            if step in self.steps:
                self.steps[step].feed(lines[place:place + 1], now)
        self._restore()
        self.restless = True

    # -- samples: stat and status of known processes, in the main loop

    def sample(self, proc: Proc, now: float, exits: Exits | None = None, *, pulse: bool = True) -> bool:
        """Read states and, at the end of a window, pulses; whether a task's process or a slurmstepd has just
        gone (its line may have come)."""
        stats: dict[int, Stat | None] = {}

        def stat(pid: int) -> Stat | None:
            if pid not in stats:
                stats[pid] = proc.stat(pid)
            return stats[pid]

        tasks = self.running()
        self.frozen = any(w.frozen for _, w in tasks)
        trees = [w.tree or [(w.pid, w.start)] for _, w in tasks]
        stopped = self.stopped.see(now, living_states(trees, stat), frozen=self.frozen)
        absent = stirs = False
        for step, worker in tasks:
            for process in worker.roster.processes:
                if process.gone:
                    continue
                status = proc.status(process.pid) if pulse else None
                process.sample(now, stat(process.pid), status, job_stopped=stopped)
                stirs |= process.uneasy(now)
                self.restless |= process.gone
                if exits and process.gone:
                    status_seen = exits.status(*process.id)
                    # A zombie may have shown it before.
                    process.exit_status = process.exit_status if status_seen is None else status_seen
                elif exits:
                    exits.watch(*process.id)
            absent |= worker.check(stat(worker.pid), now, plugin=step.plugin)
        for step in self.steps.values():
            if step.running and step.stepd[0]:
                absent |= step.check(proc.stat(step.stepd[0]), now)
            stirs |= step.running and (now - step.came < YOUNG_S or step.closer_asked or step.ras_asked)
        was, self._uneasy = self._uneasy, stirs or absent or stopped or self.restless
        self.uneasy = was or self._uneasy
        return absent

    # -- looks

    def ask(self, now: float) -> Ask:
        """What the next look is to read: everything in a step's first minute, after a change and each minute,
        else what the tree found then goes on to write."""
        workers = [w for _, w in self.running()]
        young = any(now - step.came < YOUNG_S for step in self.steps.values() if step.running)
        deep = self.restless or young or now - self.deep_at >= (DEEP_EVERY_S if self.uneasy else self.deep_every)
        if deep:
            self.deep_at, self.deep_every = now, DEEP_SELDOM_S
        tasks = [ask for s in self.steps.values() for ask in s.asks(now, deep=deep)]
        # Who hung before comes last, so that it costs nobody else's look.
        tasks.sort(key=lambda ask: self.steps[ask.step].workers[ask.rank].suspect)
        return Ask(
            job=self.job, now=now, tasks=tasks,
            sruns=[SrunAsk(s.step, *srun, s.relays) for s in self.steps.values() if s.running for srun in s.sruns],
            outs={key: outs for w in workers for key, outs in w.outs.items()},
            settled={key: gpu for w in workers for key, gpu in w.holds_gpu.items()
                     if key in w.helpers or not (deep or w.wants_fds)},
            launchers={k: v for w in workers for k, v in w.launchers.items()})

    def see(self, tasks: list[TaskLook], sruns: list[SrunLook], now: float, *, hung: str = "") -> None:
        """Take what a look saw in. ``hung``: why it did not get beyond the sruns, which come first."""
        self.restless, self.hung = False, bool(hung)
        if hung:
            self.miss_shared(hung)
            return
        wrote = self._see_sruns(sruns, now)
        for seen in tasks:
            step = self.steps.get(seen.step)
            worker = step.workers.get(seen.rank) if step else None
            if step and worker and worker.running:
                tree, outs = worker.tree, worker.outs
                self.restless |= worker.see(seen, now)
                if (tree, outs) != (worker.tree, worker.outs):
                    self.deep_every = DEEP_EVERY_S
                self._grow(step, worker, seen, wrote, now)
        self.memory.kinds.update({f"{f.ino}:{f.path}": "file" for seen in [*tasks, *sruns] for f in seen.files})
        self.memory.keep((p for seen in tasks for p in seen.procs), now)

    def _see_sruns(self, sruns: list[SrunLook], now: float) -> dict[str, tuple[int, int] | None]:
        wrote = self.sruns.wrote(sruns)
        inlets = {inlet.pipe: inlet.holders for _, worker in self.running() for inlet in worker.inlets}
        for step in self.steps.values():
            mine = [seen for seen in sruns if seen.step == step.step]
            if step.running and step.step != "batch":
                step.see_shared(mine, wrote.get(step.step, (0, 0)),
                                [w for other, w in wrote.items() if other != step.step], inlets, now,
                                hold=bool(self.logs.patterns(self, step)))
        return wrote

    def _grow(self, step: StepWatch, worker: WorkerWatch, seen: TaskLook,
              wrote: dict[str, tuple[int, int] | None], now: float) -> None:
        moved = worker.growth.moved(seen.files, now)
        if moved is None:
            return
        # What an srun of this job wrote into the batch script's file is its step's, not the batch step's.
        if step.step == "batch" and wrote and sum(w[0] if w else moved for w in wrote.values()) >= moved:
            return
        step.grow(worker.growth, now, hold=bool(self.logs.patterns(self, step)))

    def miss(self, step: str, rank: int, why: str, *, culprit: bool = False) -> None:
        """The look told nothing of this worker; ``culprit``: it is the one that did not answer."""
        if step in self.steps and rank in self.steps[step].workers:
            worker = self.steps[step].workers[rank]
            worker.missed, worker.suspect = why, worker.suspect or culprit

    def miss_shared(self, why: str) -> None:
        """The look told nothing of its sruns' files."""
        for step in self.steps.values():
            step.shared_missed = why

    def see_survey(self, sruns: list[survey.Srun], stepds: list[survey.Stepd], now: float) -> None:
        """Take a survey in: which srun holds which step's output, and steps that no plugin registered."""
        uid = integer(self.facts.get("uid"))
        # Anybody can name a process srun and set its variables.
        sruns = [s for s in sruns if s.uid in (None, 0, uid)]
        mine = [s for s in sruns if s.job == self.job]
        for step in self.steps.values():
            if step.launch_port:
                step.sruns = [(s.pid, s.start) for s in sruns if step.launch_port in s.ports]
            taken = [key for other in self.steps.values() if other is not step and other.running
                     for key in other.sruns]
            if not step.sruns and step.step != "batch" and mine and not survey.ambiguous(mine, taken):
                step.sruns = [(s.pid, s.start) for s in mine]
            step.drops = any(s.drops for s in sruns if (s.pid, s.start) in step.sruns)
        if self.facts.get("by") == "plugin" or now - self.came < PARENTAGE_AFTER_S:
            return
        for found in stepds:
            if found.job != self.job or found.step in self.steps or not found.tasks:
                continue
            facts = {"stepd": str(found.pid), "stepd_start": str(found.start), "nodes": str(found.nodes),
                     "tasks": str(found.ntasks), "node_id": str(found.node_id), "nodelist": found.nodelist}
            step = self.steps[found.step] = StepWatch(found.step, facts, now, self.window_s, plugin=False)
            step.feed([("task", {"rank": str(r), "local": str(local), "pid": str(pid), "start": str(start)})
                       for r, local, pid, start in found.tasks], now)
            self._restore()
            self.restless = True

    def wants_survey(self, node: str, now: float) -> bool:
        """Whether an srun or an unregistered step is to be looked for."""
        if not self.steps and self.facts.get("by") != "plugin":
            return now - self.came >= PARENTAGE_AFTER_S
        if any(not s.plugin for s in self.steps.values()):
            return True
        return any(s.running and not s.sruns and s.step != "batch"
                   and (s.holds_shared(node) or not s.launch_host)
                   and not any(w.holds_all for w in s.workers.values()) for s in self.steps.values())

    def see_gpus(self, answer: Answer, now: float) -> None:
        """Take the driver's answer in."""
        self.gpus.see(answer, self.running(), now)

    # -- the report

    def tidy(self, now: float) -> None:
        """Forget steps whose end has been told."""
        for name, step in list(self.steps.items()):
            if step.ended_at is not None and step.end_told and now - step.ended_at > ENDED_KEPT_S:
                del self.steps[name]

    def marks(self, now: float) -> list[object]:
        """What is told at once when it changes."""
        return [self.nonce, self.stop_file, self.stopped.since is not None, self.logs.marks(),
                *((s.step, *s.marks(now)) for s in self.steps.values())]

    def record(self, now: float, node: str) -> report.Job:
        """For the report."""
        facts = self.facts
        unknown = [report.Unknown("registry", "too many tasks")] if self.too_much else []
        steps = [s.record(now, node, partial(self.gpus.of, now=now)) for s in self.steps.values()]
        for step in steps:
            self.logs.tell(step, now)
        return report.Job(
            job=self.job, nonce=self.nonce, restarts=integer(facts.get("restarts")),
            leader=integer(facts.get("leader")), uid=integer(facts.get("uid")), user=facts.get("user", ""),
            account=facts.get("account", ""),
            partition=facts.get("partition", ""), nodelist=facts.get("nodelist", ""),
            nodes=max(1, integer(facts.get("nodes"), 1)), gpus=self.gpus.indices, settings=settings(facts),
            by=facts.get("by", "prolog"), began_s=round(now - self.began, 2),
            restart_cause=facts.get("restart_cause", ""), stopped=self.stopped.ages(now),
            stop_file=self.stop_file, steps=steps, unknown=unknown)

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"steps": {name: s.save() for name, s in self.steps.items()},
                "gpus": self.gpus.save(), "stopped": self.stopped.save(),
                "sruns": self.sruns.save(), "stop_file": self.stop_file, "logs": self.logs.save()}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file; steps and workers take theirs as soon as they are known again."""
        self.stopped.load(saved["stopped"])
        self.sruns.load(saved["sruns"])
        self.stop_file = bool(saved["stop_file"])
        self.gpus.load(saved["gpus"])
        self.logs.load(saved.get("logs", self.logs.save()))
        self.saved_steps = dict(saved["steps"])
        self._restore()

    def _restore(self) -> None:
        for name in [name for name in self.saved_steps if name in self.steps]:
            try:
                self.steps[name].load(self.saved_steps.pop(name))
            except (LookupError, TypeError, ValueError, AttributeError) as fault:
                say(f"job {self.job}: the clocks of step {name} can't be used ({fault!r}); they begin anew")
