"""The API: who asks is whom the socket, a token, MUNGE or a proxy names (``trust.readers``); each sees what is his."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

import msgspec
from astraeus_protocol import VERSION
from astraeus_protocol.findings import Finding
from astraeus_protocol.names import run_name
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..actions.node_flags import NodeFlags
from ..fleet import Fleet
from ..history.store import Store
from ..judging.incidents import Incidents
from ..judging.loop import Judging
from ..judging.pass_ import Pass
from ..selfwatch.metrics import CONTENT_TYPE
from ..selfwatch.watcher import SelfWatch
from ..stacks import StackBook
from ..trust.readers import READER, Reader, Readers, may_see_evidence
from . import evidence_views, stack_views, views
from . import token as api_token
from .nodes import NodeApi
from .problem import Problem
from .views import Json

JOB = re.compile(r"(?P<run>[0-9]{1,10}(?:[_+][0-9]{1,10})?)(?:\.(?P<step>\w{1,20}))?")
HISTORY_MAX = 1000
NUMBER_MAX = 15
"""Digits of a finding's number."""


class Api:
    """``readers``: who asks, and what each may see. ``health``: the answer of /healthz.

    ``runs`` knows jobs by their names (``123_4``), ``others`` jobs that run on Slurm but reach no monitor.
    """

    def __init__(self, fleet: Fleet, passes: Pass, store: Store, judging: Judging, incidents: Incidents,
                 stacks: StackBook, flags: NodeFlags, *,
                 readers: Readers,
                 runs: Callable[[], dict[str, int]], others: Callable[[], list[int]],
                 health: Callable[[], Json], selfwatch: SelfWatch) -> None:
        self.fleet, self.passes, self.store = fleet, passes, store
        self.judging, self.incidents, self.stacks = judging, incidents, stacks
        self.readers, self.runs, self.others, self.health = readers, runs, others, health
        self.selfwatch = selfwatch
        self.nodes = NodeApi(flags, may_see=self._may_see)

    def app(self) -> Starlette:
        routes = [Route("/stalls", self._answer(self.stalls)),
                  Route("/evidence/{number}", self._answer(self.evidence)),
                  Route("/incidents", self._answer(self.incidents_open)),
                  Route("/runs/{job}/progress", self._answer(self.progress)),
                  Route("/runs/{job}/history", self._answer(self.history)),
                  Route("/runs/{job}/stacks", self._answer(self.last_stacks), methods=["GET"]),
                  Route("/runs/{job}/stacks", self._answer(self.take_stacks), methods=["POST"]),
                  Route("/nodes", self._answer(self.nodes.list)),
                  Route("/nodes/{node}/drain", self._answer(self.nodes.drain), methods=["POST"]),
                  Route("/nodes/{node}/clear", self._answer(self.nodes.clear), methods=["POST"]),
                  Route("/token", self._answer(self.token), methods=["POST"]),
                  Route("/healthz", self.healthz), Route("/metrics", self.metrics)]
        return Starlette(routes=routes, exception_handlers={404: _no_such_page, 405: _no_such_page})

    def _answer(self, make: Callable[[Request], Json | Awaitable[Json]]) -> Callable[[Request], object]:
        async def endpoint(request: Request) -> Response:
            try:
                request.scope[READER] = await self.readers.of(request)
                if request.scope[READER] is None:
                    raise Problem(401, "say who you are: a header Authorization with a token of: astraeus token")
                made = make(request)
                return _json(made if isinstance(made, dict) else await made)
            except Problem as problem:
                return _problem(problem.status, problem.sentence)
            except sqlite3.Error as fault:
                return _problem(503, f"history can't be read now: {fault}")
        return endpoint

    # What is asked

    def stalls(self, request: Request) -> Json:
        """Open findings, and how many jobs are watched."""
        found = sorted((f for f in self.passes.memory if self._may_see(request, f.job)),
                       key=lambda f: (f.since, f.key))
        ids = self.store.evidence.ids()
        watches = {job: w for job, w in self.judging.watches.items() if self._may_see(request, job)}
        return {
            "stalled": [views.finding(f) | {"id": ids.get(f.key), "incident": self._incident_of(f.job)} for f in found
                        if f.kind == "stalled"],
            "suspects": [views.finding(f) | {"id": ids.get(f.key)} for f in found if f.kind == "suspect"],
            "stragglers": [views.straggler(f) | {"id": ids.get(f.key)} for f in found if f.kind == "straggler"],
            "at_risk": [views.straggler(f) | {"id": ids.get(f.key)} for f in found if f.kind == "at_risk"],
            "silent": [views.finding(f) for f in found if f.kind == "node_silent"],
            "watched": sum(w.watched for w in watches.values()),
            "unwatched": sum(not w.watched for w in watches.values()),
            "blind": len(self.others()) if self._all(request) else None,
            "coverage": msgspec.to_builtins(self.selfwatch.coverage(lambda job: self._may_see(request, job))),
            "faults": self.selfwatch.faults(),
        }

    def incidents_open(self, request: Request) -> Json:
        """Incidents that hold a job of who asks: the open ones; with ``?all`` all that history holds."""
        found = self.store.incidents.all() if "all" in request.query_params else self.incidents.open
        seen = [(one, [job for job in one.jobs if self._may_see(request, job.job)]) for one in found]
        return {"incidents": [views.incident(one, jobs, self.incidents.hanging(one)) for one, jobs in seen if jobs]}

    def evidence(self, request: Request) -> Json:
        """What a finding rests on; only its owner's, for whom is not privileged."""
        text = request.path_params["number"]
        if not text.isascii() or not text.isdigit() or len(text) > NUMBER_MAX:
            raise Problem(400, f'"{text[:40]}" is no finding; write its number, as astraeus stalls shows it')
        kept = self.store.evidence.get(int(text))
        if kept is None or not may_see_evidence(request.scope[READER], kept.uid):
            whose = "" if self._all(request) else " of yours"
            raise Problem(404, f"no evidence of a finding {int(text)}{whose} is kept; astraeus stalls shows the "
                               "numbers of what is open, astraeus history --json those of what was")
        return evidence_views.evidence(kept, self.store.evidence.stacks(kept))

    def progress(self, request: Request) -> Json:
        """A job's workers."""
        name, step, job = self._job(request)
        if job is None or job not in self.fleet.jobs or not self._may_see(request, job):
            raise self._unknown(request, name, job)
        picture = self.judging.picture(job)
        if picture is None:
            raise self._unknown(request, name, job)
        if step and not any(s.step == step for s in picture.job.steps):
            steps = ", ".join(s.step for s in picture.job.steps) or "none yet"
            raise Problem(404, f"job {name} has no step {step}; its steps are: {steps}")
        watch = self.judging.watches.get(job)
        ids = self.store.evidence.ids()
        open_now = [views.finding(f) | {"kind": f.kind, "id": ids.get(f.key)} for f in self._of(job)
                    if f.kind in ("stalled", "suspect") and step in ("", f.step)]
        return views.progress(picture, self._of(job), step) | {
            "findings": open_now,
            "watched": watch.watched if watch else False, "reason": watch.reason if watch else ""}

    def history(self, request: Request) -> Json:
        """A job's events, oldest first."""
        name, _, job = self._job(request)
        if job is None or not self._may_see(request, job) or not self._may_see_past(request, job):
            raise self._unknown(request, name, job)
        events = self.store.events(job=job, limit=HISTORY_MAX)
        if not events and job not in self.fleet.jobs:
            raise self._unknown(request, name, job)
        for incident in self.store.incidents.of(job):
            events += views.incident_events(incident, job)
        events.sort(key=lambda event: event.at)
        return {"run": name, "job": job, "events": [views.event(e) for e in events]}

    def last_stacks(self, request: Request) -> Json:
        """The Python stacks that were read last of a job, or are being read."""
        name, _, job = self._job(request)
        if job is None or not self._may_see_stacks(request, job):
            raise self._unknown(request, name, job)
        owner = self.store.owner(job)
        if owner is not None and not may_see_evidence(request.scope[READER], owner):
            raise self._unknown(request, name, job)
        reading = self.stacks.last(job, request.query_params.get("ask", ""))
        if reading is None:
            raise Problem(409, f"no stacks of job {name} have been read; ask for them: astraeus stacks {name}")
        return stack_views.reading(reading, self.stacks.waiting_for(reading))

    def take_stacks(self, request: Request) -> Json:
        """Ask the job's nodes for its Python stacks; with ``?native`` for frames of C and C++, too."""
        name, step, job = self._job(request)
        held = self.fleet.jobs.get(job) if job is not None else None
        if job is None or held is None or not self._may_see_stacks(request, job):
            raise self._unknown(request, name, job)
        last = f"astraeus stacks {name} --last shows what was read before"
        if held.ended:
            raise Problem(409, f"job {name} is over; {last}")
        try:
            reading = self.stacks.person(job, name, step, native="native" in request.query_params)
        except LookupError:
            of = f"step {step} of job {name}" if step else f"job {name}"
            raise Problem(409, f"no node runs {of}, or none that does is heard; {last}") from None
        if reading is None:
            raise Problem(423, f"other stacks of job {name} are being read; ask again in a few seconds")
        return stack_views.reading(reading, self.stacks.waiting_for(reading))

    def token(self, request: Request) -> Json:
        """A bearer token of an hour for who asks."""
        return api_token.token(request.scope[READER], self.readers.tokens)

    async def healthz(self, request: Request) -> Response:
        """503 while something keeps the controller from seeing or judging, with the sentences that say what."""
        health = self.health()
        return _json({"version": VERSION} | health, 503 if health["faults"] else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self.selfwatch.metrics(), media_type=CONTENT_TYPE)

    # Who may see what

    def _all(self, request: Request) -> bool:
        reader: Reader | None = request.scope[READER]
        return reader is not None and reader.is_operator

    def _may_see(self, request: Request, job: int) -> bool:
        return self.readers.may_see(request.scope[READER], self._owner(job))

    def _may_see_stacks(self, request: Request, job: int) -> bool:
        return may_see_evidence(request.scope[READER], self._owner(job))

    def _may_see_past(self, request: Request, job: int) -> bool:
        """History may hold another user's job of the same id, from before Slurm counted anew."""
        owner = self.store.owner(job)
        return owner is None or self.readers.may_see(request.scope[READER], owner)

    def _owner(self, job: int) -> int | None:
        held = self.fleet.jobs.get(job)
        if held is not None and held.parts:
            return next(iter(held.parts.values())).job.uid
        return self.store.owner(job)

    def _incident_of(self, job: int) -> int | None:
        incident = self.incidents.of(job)
        return incident.id if incident else None

    def _job(self, request: Request) -> tuple[str, str, int | None]:
        """(run, step, job id or None) of the request's path."""
        text = request.path_params["job"]
        found = JOB.fullmatch(text)
        if not found:
            return self._by_name(request, text)
        run, step = found["run"], found["step"] or ""
        job = int(run) if run.isdigit() else None
        if job is None or job not in self.fleet.jobs:
            leader, plus, component = run.partition("+")
            of_leader = self.fleet.component(int(leader), int(component)) if plus else None
            job = of_leader or self.runs().get(run) or self.store.job_of(run) or job
        return run, step, job

    def _by_name(self, request: Request, text: str) -> tuple[str, str, int | None]:
        """The same by a job's name, where one alone of those that who asks may see has it."""
        rows = [held.row for held in self.fleet.jobs.values() if held.row is not None and held.row.name == text
                and not held.ended and self._may_see(request, held.job)]
        if len(rows) == 1:
            return run_name(rows[0].job, array_job=rows[0].array_job, array_task=rows[0].array_task), "", rows[0].job
        if rows:
            ids = ", ".join(str(row.job) for row in rows[:5])
            raise Problem(409, f'several jobs are named "{text[:40]}"; write the number of one: {ids}')
        raise Problem(400, f'"{text[:40]}" is no job; write 123, 123_4 or 123.0, or the name of one that runs')

    def _unknown(self, request: Request, name: str, job: int | None) -> Problem:
        """The same words for a job that is not there and for one that is another user's."""
        if job is not None and self._all(request) and job in self.others():
            return Problem(404, f"job {name} runs, but no monitor has reported it: its Prolog did not hand it "
                                "over (--no-stall-watch, a service), or its nodes' monitors can't reach the "
                                "controller or hold another report key; its log tells of those that it refuses")
        whose = "" if self._all(request) else " of yours"
        return Problem(404, f"no job {name}{whose} is watched; a job that did not ask and holds no GPUs, "
                            "and one with --no-stall-watch, is not")

    def _of(self, job: int) -> Iterable[Finding]:
        return [f for f in self.passes.memory if f.job == job]


def _json(value: Json, status: int = 200, media_type: str = "application/json") -> Response:
    return Response(msgspec.json.encode(value), status, media_type=media_type)


def _problem(status: int, sentence: str) -> Response:
    return _json({"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status,
                  "detail": sentence}, status, "application/problem+json")


async def _no_such_page(request: Request, fault: Exception) -> Response:
    status = getattr(fault, "status_code", 404)
    return _problem(status, "ask GET /stalls, /incidents, /nodes, /evidence/ID, /runs/JOB/progress, /runs/JOB/history, "
                            "/runs/JOB/stacks, /healthz or /metrics")
