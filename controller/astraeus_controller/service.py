"""The controller: one process, one loop. Reports come in, jobs are judged, findings are acted on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pwd
import secrets
import sqlite3
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from astraeus_protocol import report as wire
from astraeus_protocol.findings import Event, Incident
from astraeus_protocol.names import run_name

from . import peer, recording
from .actions.annotate import Annotations
from .actions.node_flags import NodeFlags
from .actions.node_writer import NodeWriter
from .actions.restarts import Restarts
from .actions.writer import Pace, Writer
from .api.app import Api
from .api.views import Json
from .config import Config
from .fleet import Fleet
from .history.store import Store
from .ingest import Ingest
from .inquiries import Inquiries
from .judging.incidents import Incidents, counts
from .judging.loop import Judging
from .judging.pass_ import Pass
from .rules.incident import whole_of
from .rules.limits import BREAKER_WINDOW_S, INCIDENT_AGAIN_S
from .selfwatch import notify
from .selfwatch.watcher import SelfWatch
from .slurm.command import Away, Commands, Refused
from .slurm.jobs import Jobs
from .slurm.nodes import Nodes
from .slurm.types import JobFacts, Snapshot
from .stacks import StackBook
from .stops import StopFiles
from .trust.addresses import Addresses
from .trust.operators import Operators
from .trust.prover import Proves
from .trust.readers import Readers
from .trust.tokens import KEY_BYTES, Tokens

log = logging.getLogger(__name__)
HOUSEKEEPING_S = 3600.0


class ServiceFault(Exception):
    """The service can't start; the text is one sentence."""


def boottime() -> float:
    """CLOCK_BOOTTIME in seconds: it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Service:
    """Everything of one controller, wired. ``settings``: ``scontrol show config``."""

    def __init__(self, config: Config, store: Store, commands: Commands, prover: Proves, settings: dict[str, str],
                 record: recording.Writer | None = None, token_key: bytes = b"") -> None:
        self.config, self.store, self.record, self.settings = config, store, record, settings
        self.cluster = config.cluster or settings.get("ClusterName", "") or "cluster"
        self.jobs = Jobs(commands)
        self.fleet = Fleet(config, self.cluster, time.time() - boottime())
        self.passes = Pass(self.fleet, self.cluster, store.open_findings(), store.clocks())
        self.passes.keys_of = store.keys
        self.stops, self.stacks = StopFiles(self.fleet, boottime), StackBook(self.fleet, store, boottime)
        self.inquiries = Inquiries(self.jobs, self.take_facts)
        pace = Pace(config.slurm.write_interval_s)  # of all writes together
        self.annotations = Annotations(Writer(self.jobs, store, pace), self._skipped)
        self.restarts = Restarts(config, jobs=self.jobs, store=store, annotations=self.annotations,
                                 stops=self.stops, view=self, emit=self.emit)
        self.restarts.take_settings(settings)
        self.passes.being_stopped = self.restarts.being_stopped
        self.incidents = Incidents(
            config, self.cluster, past=store.incidents.since(time.time() - INCIDENT_AGAIN_S),
            last=store.incidents.last(), findings=self.passes.memory,
            wave=[(whole_of(f.run), at)
                  for f, at in store.incidents.stalled_since(time.time() - BREAKER_WINDOW_S) if counts(f)])
        self.flags = NodeFlags(config, NodeWriter(Nodes(commands), store, pace), store, self.emit)
        self.judging = Judging(self.fleet, self.passes, store, self.annotations, self.restarts, self.inquiries,
                               self.incidents, self.flags, self.emit, boottime)
        self.ingest = Ingest(self.take_report, prover=prover, clock=boottime, cluster=settings.get("ClusterName", ""),
                             addresses=Addresses(commands, check=config.trust.check_address))
        self.selfwatch = SelfWatch(config, self.fleet, self.judging, self.jobs, boottime)
        self.operators = Operators(commands, config.trust.operators)
        readers = Readers(
            privileged=privileged(config), operators=self.operators.names, private=self._private, prover=prover,
            tokens=Tokens(token_key or secrets.token_bytes(KEY_BYTES)), proxies=config.trust.proxies,
            proxy_header=config.trust.proxy_header)
        self.api = Api(self.fleet, self.passes, store, self.judging, self.incidents, self.stacks, self.flags,
                       readers=readers, runs=lambda: self._runs, others=self._others, health=self._health,
                       selfwatch=self.selfwatch)
        self._snapshot, self._runs = Snapshot(jobs=()), dict[str, int]()
        self._polled: float | None = None

    # What restarts ask of it (actions.outside.View)

    def picture(self, job: int) -> Any:
        return self.judging.picture(job)

    def watched_jobs(self) -> int:
        return self.judging.watched_jobs()

    def stalled_of(self, job: int) -> Any:
        return self.judging.stalled_of(job)

    def stalled_lately(self) -> int:
        return len(self.incidents.wave(time.time()))

    def incident(self, job: int) -> Incident | None:
        return self.incidents.of(job)

    # What comes in

    def take_report(self, report: wire.Report) -> wire.Reply:
        """A verified report; its reply."""
        now = boottime()
        self.fleet.wall_offset = time.time() - now
        self.selfwatch.report()
        if self.record:
            self.record.report(report, now, time.time())
        self.judging.touched(self.fleet.report(report, now))
        suspects = self.passes.suspect_jobs()
        try:
            self.stacks.heard(report)
            self.stacks.suspect({job.job for job in report.jobs}, self.passes.memory, self.stops.jobs)
        except Exception:  # else a node with such a report would look silent
            log.exception("stacks that node %s reports can't be used", report.node)
        suspects |= self.stops.jobs | self.restarts.signalled | self.inquiries.urgent | self.stacks.jobs
        return wire.Reply(
            nonce=report.nonce, next_s=self.fleet.next_s(report.node, suspects, self.judging.near),
            closer=self.passes.quiet_steps(job.job for job in report.jobs),
            ras=self.passes.ras_steps(report.node, [job.job for job in report.jobs]),
            tied=self.fleet.tied_steps(report.node),
            commands=[*self.stops.commands(report.jobs), *self.stacks.commands(report)],
            causes={str(job.job): self.restarts.cause(job.job, job.restarts)
                    for job in report.jobs if job.restarts and not job.restart_cause})

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """A successful poll."""
        now = boottime()
        if self.record:
            self.record.slurm(snapshot, now, time.time())
        self._snapshot, self._polled = snapshot, now
        self.selfwatch.polled(snapshot)
        self._runs = {run_name(row.job, array_job=row.array_job, array_task=row.array_task): row.job
                      for row in snapshot.jobs}
        self.judging.touched(self.fleet.slurm(snapshot, now))

    def take_facts(self, job: int, facts: JobFacts | None) -> None:
        """Slurm's word on one job."""
        if facts is None:
            return  # polls tell its end
        now = boottime()
        if self.record:
            self.record.job(facts, now, time.time())
        self.fleet.job_facts(facts, now)
        self.judging.judge(job)

    def emit(self, event: Event) -> None:
        """A line of history."""
        self.store.add_event(event)
        self.store.after(lambda: log.info("%s: %s", event.worker or event.run, event.message))

    def _skipped(self, job: int, field: str, why: str) -> None:
        run = next((name for name, number in self._runs.items() if number == job), str(job))
        self.emit(Event(at=time.time(), run=run, job=job, worker=run, state="Running",
                        kind="annotation_skipped", message=f"annotation skipped: {field} left as it is: {why}",
                        details={"field": field}))

    def _others(self) -> list[int]:
        """Jobs that run on Slurm and reach no monitor."""
        return [row.job for row in self._snapshot.jobs if row.state == "RUNNING" and row.job not in self.fleet.jobs]

    def _private(self) -> bool:
        return self.config.trust.private_jobs == "owner" or "jobs" in self.settings.get("PrivateData", "").split(",")

    def _health(self) -> Json:
        polled = None if self._polled is None else round(boottime() - self._polled, 1)
        faults = self.selfwatch.faults()
        return {"status": "blind" if faults else "ok", "faults": faults, "cluster": self.cluster,
                "mode": self.config.watch.mode, "slurm_polled_s": polled,
                "nodes": len(self.fleet.nodes), "jobs": len(self.fleet.jobs), "reports": self.selfwatch.reports}

    # What runs

    async def run(self, stop: asyncio.Event, bound: peer.Bound | None = None,
                  gone: asyncio.Event | None = None) -> None:
        """Serve until ``stop`` is set. ``bound``: sockets, bound with rights that this process may have left; ``gone``:
        who holds those rights now has ended."""
        reports = peer.server(self.ingest.app())
        api = peer.server(self.api.app())
        bound = bound or peer.bind(self.config.controller)
        report_socket, *api_sockets = bound.listen()
        self.restarts.resume()
        for finding in self.passes.memory:
            if finding.kind == "stalled" and finding.action == "restart":
                self.restarts.want(finding)
        loops: list[Coroutine[Any, Any, None]] = [
            reports.serve(sockets=[report_socket]), api.serve(sockets=api_sockets), self._poll(),
            self._housekeeping(), self.operators.run(), self.judging.run(), self.inquiries.run(),
            self.annotations.run(), self.restarts.run(), self.restarts.avoidance.run(), self.flags.run(),
            *self.selfwatch.loops()]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(loop) for loop in loops]
        log.info("cluster %s, mode %s: reports on %s, API on %s, %d findings and %d restarts open", self.cluster,
                 self.config.watch.mode, self.config.controller.listen, self.config.controller.api_socket,
                 len(self.passes.memory), len(self.store.open_intents()))
        notify.tell("READY=1\nSTATUS=serving")
        waiter: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        if gone is not None:
            tasks.append(asyncio.create_task(_ended(gone)))
        done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        reports.should_exit = api.should_exit = True
        for task in tasks[2:]:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)
        with contextlib.suppress(OSError):  # root's folder: a socket that nobody answers says the same
            Path(self.config.controller.api_socket).unlink(missing_ok=True)
        for task in done - {waiter}:
            if task.exception():
                raise ServiceFault(f"a part of the controller broke off: {task.exception()!r}") from task.exception()
        log.info("stopped")

    async def _poll(self) -> None:
        well = True
        while True:
            try:
                self.take_snapshot(await self.jobs.poll())
                if not well:
                    log.info("slurm: answers again")
                well = True
            except (Away, Refused) as fault:
                if well:
                    log.warning("slurm: %s; what it would say is unknown until it answers", fault)
                well = False
            except Exception:
                log.exception("slurm: its answer could not be used")
                well = False
            await asyncio.sleep(self.config.slurm.poll_s if well else min(15.0, self.config.slurm.poll_s))

    async def _housekeeping(self) -> None:
        while True:
            try:
                self.store.forget()
            except sqlite3.Error as fault:  # a full disk: what is watched goes on
                log.error("history: old lines could not be dropped: %s", fault)
            await asyncio.sleep(HOUSEKEEPING_S)
            with contextlib.suppress(Away, Refused):
                self.settings = await self.jobs.settings()
                self.restarts.take_settings(self.settings)


async def _ended(gone: asyncio.Event) -> None:
    await gone.wait()
    raise ServiceFault("its actor has ended, so nothing can be asked of Slurm")


def privileged(config: Config) -> set[int]:
    try:
        return {0, pwd.getpwnam(config.controller.slurm_user).pw_uid}
    except KeyError:
        return {0}
