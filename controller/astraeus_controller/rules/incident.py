"""What stalls of several jobs share: a storage that does not answer, a node, or only the moment. Pure functions.

Shared storage is the strongest sign, for it names the thing itself; a node comes second; a mere wave of stalls
(the breaker) says only that the cause lies outside of the jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from astraeus_protocol.durations import say_seconds
from astraeus_protocol.findings import Finding, Incident
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # type: ignore[import-untyped]

from .limits import BREAKER_WINDOW_S, INCIDENT_WINDOW_S
from .nothing_runs import RULE as NOTHING_RUNS

STORAGE, NODES, BREAKER = "storage", "nodes", "breaker"
STRENGTH = (BREAKER, NODES, STORAGE)
"""The later the stronger: an incident's cause may become known better, never worse."""
MANY = "many jobs"


def mounts_of(finding: Finding) -> frozenset[str]:
    """Sources of the mounts that it waits for: ``store1:/export``."""
    found = finding.details.get("waits_on")
    return frozenset(str(one) for one in found) if isinstance(found, list | tuple) else frozenset()


def nodes_of(finding: Finding) -> frozenset[str]:
    """The nodes that it points at: the guilty rank's, or the whole step's where no rank stands out.

    Two jobs that share many nodes, each with a guilty rank on a node of its own, share no cause. Nor do two whose
    scripts sleep: no node did that.
    """
    return frozenset() if finding.rule == NOTHING_RUNS else unfold(finding.node)


@lru_cache(maxsize=4096)  # a wave holds each of its findings against the others
def unfold(nodes: str) -> frozenset[str]:
    """``c1``, ``c2`` of ``c[1-2]``."""
    try:
        return frozenset(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return frozenset({nodes})


def fold(nodes: Iterable[str]) -> str:
    """``c[1-2]``"""
    return str(NodeSet.fromlist(sorted(nodes), resolver=RESOLVER_NOGROUP))


def whole_of(run: str) -> str:
    """The job that a run's name belongs to: ``100`` of ``100+1``. A heterogeneous job's components are one job, which
    alone made an incident of its stall and was not restarted for it."""
    return run.partition("+")[0]


def together(one: Finding, other: Finding, window_s: float = INCIDENT_WINDOW_S) -> bool:
    """Whether they were found within the window of each other."""
    return abs(one.detected_at - other.detected_at) <= window_s


def tripped(stalled_jobs: int, watched_jobs: int, *, jobs: int, share: float) -> bool:
    """The breaker: so many jobs became stalled at once that the cause must lie outside of them."""
    return stalled_jobs > max(jobs, share * watched_jobs)


def related(one: Finding, other: Finding, *, storage: bool, nodes: bool) -> bool:
    """Whether they have anything in common."""
    return bool(storage and mounts_of(one) & mounts_of(other)) or bool(nodes and nodes_of(one) & nodes_of(other))


def shared(findings: Sequence[Finding], min_jobs: int, *, storage: bool, nodes: bool) -> tuple[str, str] | None:
    """(cause, subject) of what ``min_jobs`` jobs of these findings have in common; None where it is nothing.

    Of several mounts the one that most jobs wait for; of nodes all that so many point at.
    """
    if storage and (found := _common(findings, mounts_of, min_jobs)):
        return STORAGE, found[0]
    if nodes and (found := _common(findings, nodes_of, min_jobs)):
        return NODES, fold(found)
    return None


def _common(findings: Sequence[Finding], what: Callable[[Finding], frozenset[str]], min_jobs: int) -> list[str]:
    """What ``min_jobs`` jobs or more share, the most common first."""
    pairs = {(one, whole_of(finding.run)) for finding in findings for one in what(finding)}
    count = Counter(one for one, _ in pairs)
    return sorted((one for one in count if count[one] >= min_jobs), key=lambda one: (-count[one], one))


def shares(finding: Finding, cause: str, subject: str) -> bool:
    """Whether a finding has that in common with an incident of this cause and subject; never for a wave."""
    if cause == STORAGE:
        return subject in mounts_of(finding)
    return cause == NODES and bool(nodes_of(finding) & unfold(subject))


def said(incident: Incident) -> str:
    """``4 jobs wait on store1:/export``; ``2 jobs stalled on c3, and 1 more``; ``6 jobs stalled within 10m``."""
    whole = {whole_of(job.run) for job in incident.jobs}
    by = len({whole_of(job.run) for job in incident.jobs if job.by == incident.cause})
    more = len(whole) - by
    jobs = f"{by} job{'' if by == 1 else 's'}"
    match incident.cause:
        case "storage":
            words = f"{jobs} wait{'s' if by == 1 else ''} on {incident.subject}"
        case "nodes":
            words = f"{jobs} stalled on {incident.subject}"
        case _:
            words = f"{jobs} stalled within {say_seconds(BREAKER_WINDOW_S)}"
    return f"{words}, and {more} more beside" if more else words


def reason(incident: Incident) -> str:
    """Behind "restart declined: "."""
    return f"it is part of incident {incident.id} ({said(incident)}), so nothing is stopped"


def note(incident: Incident, job: int) -> str:
    """For a job's comment; it holds no number that grows, so that no comment is written again for each job that
    joins: ``incident 3: waits on store1:/export as other jobs do``."""
    by = next((one.by for one in incident.jobs if one.job == job), BREAKER)
    match by:
        case "storage":
            words = f"waits on {incident.subject} as other jobs do"
        case "nodes":
            words = "stalled on the same nodes as other jobs"
        case _:
            words = "stalled together with other jobs"
    return f"incident {incident.id}: {words}; nothing is stopped"
