"""Keeps a restarted job off the node of its guilty rank (``--avoid-guilty``), and what its user had is kept.

The node joins the job's excluded list in the one update that is sent while it is PENDING. Slurm (22.05 to 26.05)
changes that list of pending jobs only ("Job is no longer pending execution"), so what was added stands, without
any effect, while the next attempt runs, and is taken back when the job is PENDING the next time: requeued by its
user, preempted, or restarted by us. Too long a list is worse than none: Slurm then holds the job for ever
(BadConstraints, priority 0), so what the partition has is counted first, and again while the job waits.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from astraeus_protocol.findings import Event, Finding

from ..exclusions import Exclusion, Exclusions
from ..history.store import Intent, Store
from ..slurm.command import Away, Refused
from ..slurm.jobs import Jobs
from ..slurm.places import Places
from ..slurm.types import JobFacts
from .outside import Clocks
from .writer import Pace

log = logging.getLogger(__name__)
LOOK_S = 15.0
"""Between two looks at a job that does not run: a requeued one is PENDING for two minutes at Slurm's defaults."""
NAME = re.compile(r"[A-Za-z0-9._-]+")
BAD_CONSTRAINTS = "BadConstraints"


class Plan(msgspec.Struct, frozen=True):
    """``excluded``: the new list, None to leave what stands; ``note``: for the comments; ``said``: for history."""

    excluded: str | None = None
    note: str = ""
    said: str = ""


class Avoidance:
    """``most``: nodes that one run avoids at a time; ``owns(job)``: a restart of it is under way;
    ``runs(job)``: the last poll saw it running."""

    def __init__(self, *, jobs: Jobs, store: Store, pace: Pace, emit: Callable[[Event], None], most: int,
                 clocks: Clocks, owns: Callable[[int], bool] = lambda _: False,
                 runs: Callable[[int], bool] = lambda _: False) -> None:
        self.jobs, self.store, self.pace, self.emit, self.most = jobs, store, pace, emit, most
        self.clocks, self.owns, self.runs = clocks, owns, runs
        self.exclusions = Exclusions(store)

    # Before the next attempt

    async def plan(self, intent: Intent, facts: JobFacts) -> Plan:
        """What the next attempt is to avoid. Stores what is about to be written, and what its user had."""
        standing = self.exclusions.get(intent.job)
        if not intent.avoid and standing is None:
            return Plan()
        try:
            return await self._plan(intent, facts, standing)
        except Refused as refusal:  # what stands, stands, and is taken back in time
            return Plan(said=f"no node is avoided: Slurm refused to say what stands: {refusal}")

    async def _plan(self, intent: Intent, facts: JobFacts, standing: Exclusion | None) -> Plan:
        if intent.target != intent.job:  # one component of a heterogeneous job has its own lists and partition
            shown = await self.jobs.show(intent.job)
            facts = shown.facts if shown else facts
        places = await self.jobs.places(intent.job)
        if places is None:
            return Plan()
        now = await self.jobs.expanded(places.excluded)
        if facts.state != "PENDING":
            if standing and standing.restarts == intent.restarts + 1 and standing.ours[-1] == now:
                # A controller that was killed right after its update.
                return self._decided(standing, standing.nodes, now, standing, "", "")
            return Plan(said="no node is avoided: the next attempt had begun") if intent.avoid else Plan()
        own, own_nodes = await self._own(facts, places.excluded, now)
        if standing and now in standing.ours:
            own, own_nodes = standing.own, standing.own_nodes
        node, why = self._named(intent, places)
        nodes: list[str] = []
        if intent.avoid and not places.required and self.most:
            # A restart that was begun twice (the controller was killed) finds what it had decided itself.
            kept = standing and (intent.number > 1 or standing.restarts == intent.restarts + 1)
            nodes = [one for one in (standing.nodes if standing and kept else ()) if one not in (node, *own_nodes)]
        if node in own_nodes:
            why = why or "its user excludes it already"
        elif intent.avoid and node and not why:
            nodes.append(node)
        nodes = nodes[-self.most:] if self.most else []
        exclusion = Exclusion(
            job=intent.job, run=intent.run, worker=intent.worker, restarts=intent.restarts + 1,
            partition=facts.partition, need=max(facts.nodes, intent.nodes), own=own, own_nodes=own_nodes,
            ours=(), nodes=())
        while nodes and (few := await self._too_few(exclusion, nodes, places)):
            if nodes.pop(0) == node:
                why = few
        return self._decided(exclusion, nodes, now, standing, node, why if intent.avoid else "")

    async def _own(self, facts: JobFacts, folded: str, now: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """What stands there, as its user wrote it where that can be told, and name by name."""
        if now:
            for text in await self.jobs.excluded_texts(facts.named):
                if text == folded or await self.jobs.expanded(text) == now:
                    return text, now
        return folded, now

    def _decided(self, exclusion: Exclusion, nodes: Sequence[str], now: tuple[str, ...], standing: Exclusion | None,
                 node: str, why: str) -> Plan:
        new = tuple(sorted({*exclusion.own_nodes, *nodes}))
        notes, said = [], []
        if nodes:
            notes.append(f"avoiding {', '.join(nodes)}")
            beside = f" beside {exclusion.own}, which its user excludes" if exclusion.own else ""
            said.append(f"avoids {', '.join(nodes)}{beside}")
        elif standing and new != now:
            said.append(f"avoids {', '.join(standing.nodes) or 'nodes'} no longer")
        if why and node:
            notes.append(f"{node} not avoided: {why}")
            said.append(f"{node} is not avoided: {why}")
        elif why:
            said.append(f"no node is avoided: {why}")
        note, told = ", ".join(notes), "; ".join(said)
        if not nodes and standing is None:
            return Plan(None, note, told)
        before = (now,) if standing and now in standing.ours else ()
        self.exclusions.put(msgspec.structs.replace(
            exclusion, ours=(*before, *((new,) if new not in before else ())), nodes=tuple(nodes)))
        text = ",".join([*([exclusion.own] if exclusion.own else []), *nodes])
        return Plan(None if new == now else text, note, told)

    def done(self, job: int, refused: str = "") -> str:
        """The update was sent. What is said of a list that Slurm refused, else ""."""
        exclusion = self.exclusions.get(job)
        if exclusion is not None and (not exclusion.nodes or (refused and len(exclusion.ours) == 1)):
            self.exclusions.drop(job)
        return f"no node is avoided: {refused}" if refused else ""

    def _named(self, intent: Intent, places: Places) -> tuple[str, str]:
        """(the guilty node or "", why it is not avoided or "")."""
        named = guilty_nodes(intent.finding)
        if len(named) != 1:
            return "", f"{len(named)} nodes are named" if named else "no rank stands out"
        for against, why in (
                (self.most == 0, "the site lets no run avoid any (avoid_nodes = 0)"),
                (not NAME.fullmatch(named[0]), "its name can't be written into a list"),
                (bool(places.required), "the job names its nodes (--nodelist)"),
                (bool(places.reservation), "the job runs in a reservation")):
            if against:
                return named[0], why
        return named[0], ""

    async def _too_few(self, exclusion: Exclusion, nodes: Sequence[str], places: Places) -> str:
        """Why the job could not run without these nodes; "" where it can, as far as the partition tells.

        Only nodes that serve like the one avoided are counted: the job may need what that one has.
        """
        try:
            rows = await self.jobs.partition_nodes(exclusion.partition)
        except Refused as refusal:
            return f"Slurm does not say what its partition has: {refusal}"
        like = [row for row in rows if row.name == nodes[-1]]
        if not like:
            return f"it is none of partition {exclusion.partition}'s nodes"
        left: dict[str, int] = {}
        for row in rows:
            if row.usable and row.name not in (*exclusion.own_nodes, *nodes) and row.serves_like(
                    like[0], features=bool(places.features)):
                left[row.partition] = left.get(row.partition, 0) + 1
        most = max(left.values(), default=0)
        if most >= exclusion.need:
            return ""
        return (f"without it partition {exclusion.partition} has {most} usable node{'' if most == 1 else 's'} of its "
                f"kind for this job, which needs {exclusion.need}")

    # Afterwards

    async def run(self) -> None:
        """Takes back, job by job, what is no longer to be avoided; ends when cancelled."""
        while True:
            await self.take_back()
            await self.clocks.sleep(LOOK_S)

    async def take_back(self) -> None:
        """One look at every job whose list we have added to. A fault in one never stops the others."""
        for exclusion in self.exclusions.all():
            if self.runs(exclusion.job):
                continue
            try:
                await self._look(exclusion)
            except (Away, Refused) as fault:
                log.warning("job %d: its excluded nodes are not its own again yet: %s", exclusion.job, fault)
            except Exception:
                log.exception("job %d: its excluded nodes could not be looked at", exclusion.job)

    async def _look(self, exclusion: Exclusion) -> None:
        job = exclusion.job
        shown = await self.jobs.show(job)
        if shown is None:
            return self.exclusions.drop(job)  # Slurm has forgotten the job, and its list with it
        facts = shown.facts
        if facts.state != "PENDING" or facts.restarts < exclusion.restarts:
            return
        why = ""
        if facts.restarts > exclusion.restarts:
            if self.owns(job):
                return  # the restart's own update says what stands from now on
        elif exclusion.nodes:
            places = await self.jobs.places(job)
            few = await self._too_few(exclusion, exclusion.nodes, places) if places else ""
            if facts.reason != BAD_CONSTRAINTS and not few:
                return
            why = few or "Slurm finds no nodes for it"
        await self._restore(exclusion, facts, why)

    async def _restore(self, exclusion: Exclusion, facts: JobFacts, why: str) -> None:
        job, avoided = exclusion.job, ", ".join(exclusion.nodes) or "nodes"
        said = f"Avoids {avoided} no longer" + (f": {why}" if why else "")
        for _ in range(2):
            places = await self.jobs.places(job)
            if places is None:
                return self.exclusions.drop(job)
            if self.exclusions.get(job) != exclusion:
                return  # a restart decided anew meanwhile
            now = await self.jobs.expanded(places.excluded)
            if now == exclusion.own_nodes or now not in exclusion.ours:
                if now != exclusion.own_nodes:
                    said = f"Its user has set its excluded nodes anew ({places.excluded or 'none'}): left so"
                with self.store.together():
                    self.emit(Event(at=self.clocks.wall(), run=exclusion.run, job=job, worker=exclusion.worker,
                                    state="Running", kind="avoid_over", message=said))
                    self.exclusions.drop(job)
                return
            await self.pace.turn()
            await self.jobs.update(facts.named, excluded=exclusion.own)


def guilty_nodes(finding: Finding) -> list[str]:
    """Nodes that the finding names guilty; none where no rank stands out."""
    if finding.rank is None:
        return []
    named = finding.details.get("guilty_nodes")
    if isinstance(named, Iterable) and not isinstance(named, str):
        return [str(one) for one in named]
    return [finding.node]
