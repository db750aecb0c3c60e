"""A controller's real parts in virtual time: fleet, pass, judging, store and restarts over the fake Slurm.

One job on one node reports every few seconds: it progresses for so long in each attempt as a test says, then stalls.
Time is moved by the world alone, by one second while a restart is under way and by fifteen else, so that fifty
attempts take a second or two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from astraeus_controller.actions.annotate import Annotations
from astraeus_controller.actions.node_flags import NodeFlags
from astraeus_controller.actions.node_writer import NodeWriter
from astraeus_controller.actions.outside import Clocks
from astraeus_controller.actions.restarts import Restarts
from astraeus_controller.actions.writer import Pace, Writer
from astraeus_controller.config import parse
from astraeus_controller.fleet import Fleet
from astraeus_controller.history.store import Intent, Store
from astraeus_controller.judging.incidents import Incidents
from astraeus_controller.judging.loop import Judging
from astraeus_controller.judging.pass_ import Pass
from astraeus_controller.rules.limits import INCIDENT_AGAIN_S
from astraeus_controller.slurm.jobs import Jobs
from astraeus_controller.slurm.nodes import Nodes
from astraeus_controller.stops import StopFiles
from astraeus_protocol import report as wire
from astraeus_protocol.findings import Event, Finding, Incident
from fake_slurm import FakeSlurm, job
from service_kit import SINCE, FakeCommands

TICK_S, FINE_TICK_S, SWEEP_S = 15.0, 1.0, 15.0
JOB = 123


class Asked:
    """In the place of inquiries: the world asks Slurm once the round is over."""

    def __init__(self) -> None:
        self.jobs: set[int] = set()

    def ask(self, job: int, urgent: bool = False) -> None:
        self.jobs.add(job)


class VirtualWorld:
    """``progress_s(restarts)``: for how long an attempt progresses; it stalls then."""

    def __init__(self, progress_s: Callable[[int], float], store: Store | None = None, toml: str = "",
                 step: str = "batch", **settings: str) -> None:
        self.progress_s, self.step = progress_s, step
        self.settings = {"stall_after": "60", "restart_stalled": "1"} | settings
        self.now, self.set_by = 1000.0, 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.slurm = FakeSlurm(job(JOB, used="00:00"))
        self.slurm.clock = lambda: self.now  # type: ignore[method-assign]
        self.config = parse('[watch]\nmode = "act"\n' + toml)
        self.store = store or Store(":memory:")
        self.store.wall = self.wall
        self.began, self.attempt, self.seq, self.swept = self.now, 0, 0, self.now
        self.begins: list[tuple[float, float]] = []
        """(Unix time, seconds) of each begin time that was set."""
        self.events: list[Event] = []
        """What history holds, as it came."""
        self._loop: asyncio.Task[None] | None = None
        self.start()

    def start(self) -> None:
        """A controller's parts, made anew over the store that there is."""
        if self._loop is not None:
            self._loop.cancel()
        self._loop = None
        commands = FakeCommands(self.slurm)
        run = commands.run

        async def logged(*args: str, **values: Any) -> str:
            found = next((arg for arg in args if arg.startswith("StartTime=now+")), "")
            if found:
                self.begins.append((self.wall(), float(found.partition("+")[2])))
            return await run(*args, **values)

        commands.run = logged  # type: ignore[method-assign]
        self.jobs = Jobs(commands)
        self.fleet = Fleet(self.config, "test", SINCE + self.set_by)
        self.passes = Pass(self.fleet, "test", self.store.open_findings(), self.store.clocks())
        self.passes.keys_of = self.store.keys
        self.stops = StopFiles(self.fleet, lambda: self.now)
        self.asked = Asked()
        self.annotations = Annotations(Writer(self.jobs, self.store, Pace(0, lambda: self.now, self.sleep)),
                                       lambda *_: None, lambda: self.now)
        self.restarts = Restarts(self.config, jobs=self.jobs, store=self.store, annotations=self.annotations,
                                 stops=self.stops, view=self, emit=self.emit,
                                 clocks=Clocks(self.wall, lambda: self.now, self.sleep))
        self.passes.being_stopped = self.restarts.being_stopped
        self.incidents = Incidents(
            self.config, "test", past=self.store.incidents.since(self.wall() - INCIDENT_AGAIN_S),
            last=self.store.incidents.last(), findings=self.passes.memory)
        self.flags = NodeFlags(self.config, NodeWriter(Nodes(commands), self.store, self.annotations.writer.pace),
                               self.store, self.emit, self.wall, lambda: self.now)
        self.judging = Judging(self.fleet, self.passes, self.store, self.annotations, self.restarts,
                               self.asked, self.incidents, self.flags, self.emit,  # type: ignore[arg-type]
                               lambda: self.now)

    def wall(self) -> float:
        return SINCE + self.set_by + self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    def emit(self, event: Event) -> None:
        self.store.add_event(event)
        self.store.after(lambda: self.events.append(event))

    # What restarts ask (actions.outside.View)

    def picture(self, number: int) -> Any:
        return self.judging.picture(number)

    def watched_jobs(self) -> int:
        return self.judging.watched_jobs()

    def stalled_of(self, number: int) -> list[Finding]:
        return self.judging.stalled_of(number)

    def stalled_lately(self) -> int:
        return len(self.incidents.wave(self.wall()))

    def incident(self, number: int) -> Incident | None:
        return self.incidents.of(number)

    # Time

    async def until(self, true: Callable[[], object], seconds: float) -> None:
        """Lets virtual time pass until it is true; fails after so many virtual seconds."""
        end = self.now + seconds
        if self._loop is None:
            self.restarts.resume()
            self._loop = asyncio.create_task(self.restarts.run())
        while not true():
            assert self.now < end, ("not in time", self.kinds()[-5:], self.slurm.job(JOB)["state"])
            await self._tick()
            assert not self._loop.done(), self._loop

    async def _tick(self) -> None:
        self.now += FINE_TICK_S if self.restarts.owns(JOB) else TICK_S
        await self._report()
        for due, future in [one for one in self._sleepers if one[0] <= self.now]:
            self._sleepers.remove((due, future))
            if not future.done():
                future.set_result(None)
        for _ in range(4):
            await asyncio.sleep(0)

    async def _report(self) -> None:
        one = self.slurm.job(JOB)
        runs = one["state"] in ("RUNNING", "STOPPED", "SIGNALING")
        if runs and one["restarts"] != self.attempt:
            self.attempt, self.began = one["restarts"], self.now
            one["ranks_gone"] = False
        ran = int(self.now - self.began)
        one["used"] = f"{ran // 86400}-{ran // 3600 % 24:02}:{ran // 60 % 60:02}:{ran % 60:02}"
        self.seq += 1
        self.fleet.wall_offset = SINCE + self.set_by
        self.judging.touched(self.fleet.report(wire.Report(
            node="c1", boot="b", session="s", seq=self.seq, nonce=f"n{self.seq}", at=self.wall(), cluster="test",
            jobs=[self._job(ran)] if runs else []), self.now))
        for number in [number for number in self.judging._dirty if number in self.fleet.jobs]:
            self.judging._dirty.pop(number)
            self.judging.judge(number)
        for number in list(self.asked.jobs):
            self.asked.jobs.discard(number)
            shown = await self.jobs.show(number)
            if shown:
                self.fleet.job_facts(shown.facts, self.now)
                self.judging.judge(number)
        if self.now - self.swept >= SWEEP_S:
            self.swept = self.now
            self.judging._after_sweep()

    def _job(self, ran: float) -> wire.Job:
        gone = self.slurm.job(JOB)["ranks_gone"]
        quiet = max(0.5, ran - self.progress_s(self.attempt))
        worker = wire.Worker(
            rank=0, pid=77, start=self.attempt, state="exited" if gone else "running", output_s=quiet,
            cpu_idle_s=quiet, writing_s=0, began_s=ran,
            gpus=[wire.Gpu(index=0, busy=0, idle_s=quiet, ever_busy=True)],
            processes=[wire.Process(pid=77, start=self.attempt, state="S", comm="python")])
        return wire.Job(
            job=JOB, nonce=f"a{self.attempt}", restarts=self.attempt, user="alice", partition="main", nodelist="c1",
            gpus=[0], settings=self.settings, began_s=ran,
            stop_file=JOB in self.stops.jobs,
            steps=[wire.Step(step=self.step, nodelist="c1", workers=[worker], output_s=quiet)])

    def requeued_by_others(self) -> None:
        """A preemption, a node that failed, a person's requeue: Slurm starts it again at once."""
        one = self.slurm.job(JOB)
        one |= {"state": "RUNNING", "restarts": one["restarts"] + 1, "start": f"again {one['restarts']}"}

    # What came of it

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def said(self, kind: str) -> list[str]:
        return [event.message for event in self.events if event.kind == kind]

    def intents(self) -> list[Intent]:
        return self.store.restarts_of(JOB)

    def counts(self) -> list[str]:
        """``1/10`` of each restart."""
        return [f"{intent.number}/{intent.budget}" for intent in self.intents()]


logging.getLogger("astraeus_controller.actions.under_way").setLevel(logging.WARNING)
