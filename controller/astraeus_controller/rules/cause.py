"""Why a step is stalled or suspect, in words (docs/rules.md, "Causes"): the first that holds, from the surest on. Pure.

Told beside the verdict, never part of it: no rule asks for a cause, and none is a reason to restart.
"""

from __future__ import annotations

import re
import signal

import msgspec
from astraeus_protocol.readings import XID_LOST, XID_NO_ANSWER
from msgspec import structs

from . import collective_ras, nothing_runs, say, words
from .conclusion import Conclusion
from .gang import DEAD, Gang
from .limits import AT_WORK_S, FIRST_WORK, NO_THREAD_CPU, OOM_BEFORE_S, PREPARES_MAX_S, WORKS_PERCENT
from .picture import JobView, Picture, ProcessView, StepView, WorkerView
from .places import FUTEX, GROUPS
from .storage import storage_waits

KINDS = ("stalled", "suspect")
ORDER = ("finished", "debugger", "rank_stopped", "gpu_lost", "driver", "rank_gone", "storage", "disk_sleep",
         "loader_dead", "loader", "deadlock", "nothing_runs", "collective", "first_collective", "never_began", "")
"""The surest first: what is said of a finding may become surer, never less sure. "": not known."""
AWAY = ("ras", "place", "idle", "stack", "late", "named")
"""Kinds of evidence that show a rank elsewhere while the others wait."""
LOST = re.compile(r"\bis lost\b|fallen off the bus", re.IGNORECASE)
NO_ANSWER = re.compile(r"(not|n't) answer", re.IGNORECASE)
DRIVER_CHANNELS = ("nv", "os_acquire", "rm_", "uvm_")
"""Wait channels of NVIDIA's kernel modules begin so."""
WAITS_ON = re.compile(
    r"(?:\w+\.)*(wait|_wait_for_tstate_lock|join|acquire|__enter__|get|result|wait_for) "
    r"\((?:\S*/)?(?:threading|queue|_base|synchronize)\.py:")
"""Python's own waits for a lock, a thread, an event or a queue."""
LOADER = re.compile(r"\((?:\S*/)?(?:torch/utils/data|webdataset|streaming/base)/")
"""A frame of a data loader that the main thread asks for its next batch."""
COLLECTIVE = re.compile(r"\((?:\S*/)?(?:torch|mpi4py|horovod|deepspeed|jax|jaxlib|mlx|cupy|nccl)/")
"""A frame of what speaks to other ranks, or to the GPU."""


class Cause(msgspec.Struct, frozen=True):
    """``kind``: of ORDER; ``words``: ``waiting on storage: store1:/export (mounted at /data, nfs4)``."""

    kind: str
    words: str


def surer(kind: object, than: object) -> bool:
    """Whether a kind of cause is surer than another."""
    known = [one if one in ORDER else "" for one in (kind, than)]
    return ORDER.index(str(known[0])) < ORDER.index(str(known[1]))


def tell(picture: Picture, step: StepView, gang: Gang | None, concluded: list[Conclusion]) -> list[Conclusion]:
    """The conclusions, each stall and suspect with its cause; and without those that only rank 0's work explains."""
    if any(c.verdict in KINDS for c in concluded) and preparing(step):
        concluded = [c for c in concluded if c.verdict not in KINDS or not _explained(c, step)]
    found = []
    for one in concluded:
        if one.verdict in KINDS:
            cause = of(picture.job, step, gang, one)
            one = structs.replace(one, evidence=one.evidence | {"cause": cause.words, "cause_kind": cause.kind})
        found.append(one)
    return found


def of(job: JobView, step: StepView, gang: Gang | None, said: Conclusion) -> Cause:
    """The cause of one conclusion; of one that speaks of single workers, by what these show."""
    if not said.gang:
        step = structs.replace(step, workers=tuple(w for w in step.workers if w.name in said.workers) or step.workers)
    guilty, by = _guilty(step, said), said.evidence.get("by")
    return (_finished(step) or _debugger(step) or _stopped(gang, by)
            or _gpu(step, said.rank) or _dead(step, gang, guilty, by) or _storage(step, guilty) or _disk_sleep(guilty)
            or _loader(step, said.since) or _deadlock(guilty) or _nothing(job, step) or _most(step)
            or _waits(step, gang, said, guilty))


Guilty = tuple[WorkerView, ProcessView]


def _guilty(step: StepView, said: Conclusion) -> Guilty | None:
    return next(((worker, process) for worker in step.workers if worker.rank == said.rank
                 for process in worker.processes if process.pid == said.pid), None)


def _name(guilty: Guilty) -> str:
    """``rank 5``; ``rank 0 · local process 2`` where a rank has several."""
    worker, process = guilty
    return f"rank {worker.rank}" + (f" · local process {process.local}" if len(worker.processes) > 1 else "")


def _finished(step: StepView) -> Cause | None:
    return Cause("finished", "finished but not exited") if step.finished else None


def _debugger(step: StepView) -> Cause | None:
    held = [worker for worker in step.workers if any(p.traced or p.state == "t" for p in worker.processes)]
    return Cause("debugger", f"under a debugger: rank {held[0].rank} on {held[0].node}") if held else None


def _stopped(gang: Gang | None, by: object) -> Cause | None:
    if by == "T":
        return Cause("rank_stopped", "rank stopped")
    several = gang is not None and any(sign.kind == "T" for sign in gang.signs)
    return Cause("rank_stopped", "ranks stopped") if several and not by else None


def _gpu(step: StepView, rank: int | None) -> Cause | None:
    """A GPU of whoever is named, else of anybody; one that is lost holds up all others, whoever is named."""
    for worker in sorted(step.workers, key=lambda one: one.rank != rank):
        own = rank in (None, worker.rank)
        at = f"rank {worker.rank} on {worker.node}"
        for gpu in worker.gpus:
            xids = set(gpu.told.xids if gpu.told else ())
            if xids & XID_LOST:
                return Cause("gpu_lost", f"GPU lost: GPU {gpu.index} of {at} (Xid {min(xids & XID_LOST)})")
            if own and xids & XID_NO_ANSWER:
                return Cause("driver", f"driver not answering: GPU {gpu.index} of {at} "
                                       f"(Xid {min(xids & XID_NO_ANSWER)})")
        for source, reason in worker.unknown:
            if source == "gpu" and LOST.search(reason):
                return Cause("gpu_lost", f"GPU lost: {at} ({reason})")
            if own and source == "gpu" and NO_ANSWER.search(reason):
                return Cause("driver", f"driver not answering: {at} ({reason})")
    return None


def _most(step: StepView) -> Cause | None:
    """More than half of the ranks are gone or failed."""
    gone = sum(w.state == "gone" or (w.state == "exited" and w.exit_status != 0) for w in step.workers)
    of = len(step.workers)
    return Cause("rank_gone", f"most ranks gone: {gone} of {of}") if 2 * gone > of else None


def _dead(step: StepView, gang: Gang | None, guilty: Guilty | None, by: object) -> Cause | None:
    if by not in ("Z", "gone") and not (gang and any(sign.kind in ("Z", "gone") for sign in gang.signs)):
        return None
    if most := _most(step):
        return most
    if guilty is None or guilty[1].state not in DEAD:
        return Cause("rank_gone", "ranks gone")
    worker, process = guilty
    status = process.exit_status
    killed = ", for lack of memory" if worker.oom and status is not None and status & 0x7F == signal.SIGKILL else ""
    return Cause("rank_gone", f"rank gone: {say.ending(status)}{killed}" if process.state == "X"
                 else "rank gone: it is a zombie")


def _nothing(job: JobView, step: StepView) -> Cause | None:
    found = nothing_runs.found(job, step)
    return Cause("nothing_runs", f"an allocation that runs nothing: {found.words}") if found else None


def _storage(step: StepView, guilty: Guilty | None) -> Cause | None:
    """Who is named with another reason is not waited for because somebody else reads from a store."""
    waits = storage_waits(step.workers)
    mine = [wait for _, process, wait in waits if guilty is None or process is guilty[1]]
    wait = next((wait for wait in mine if wait.mount), mine[0] if mine else None)
    return Cause("storage", f"waiting on storage: {say.store(wait)}") if wait else None


def _disk_sleep(guilty: Guilty | None) -> Cause | None:
    if guilty is None or guilty[1].state != "D":
        return None
    wait = guilty[1].wait
    if wait and wait.channel.startswith(DRIVER_CHANNELS):
        return Cause("driver", f"driver not answering: rank {guilty[0].rank} on {guilty[0].node} is in {wait.channel}")
    return Cause("disk_sleep", "in uninterruptible sleep: storage or a driver does not answer")


def _loader(step: StepView, since: float) -> Cause | None:
    """A helper of a rank was killed for lack of memory, and the rank lives: it may wait for it for ever.

    ``since``: Unix time of the last progress; a kill that the run outlived by long is not why.
    """
    for worker in step.workers:
        killed = worker.oom_at is not None and worker.oom_at >= since - OOM_BEFORE_S
        if killed and worker.state == "running" and all(p.state not in DEAD for p in worker.processes):
            return Cause("loader_dead", f"data loader dead: a process of rank {worker.rank} on {worker.node} was "
                                        "killed for lack of memory")
    return None


def _deadlock(guilty: Guilty | None) -> Cause | None:
    """Its main thread waits for a lock, a thread or a queue of its own, or for its data loader, and no thread of it
    gets on."""
    if guilty is None:
        return None
    worker, process = guilty
    if process.stack is None or not process.stack.frames or process.pulse_gone_s == 0:
        return None
    if (process.cpu or 0.0) > NO_THREAD_CPU or (worker.cpu_idle_s is not None and worker.cpu_idle_s < AT_WORK_S):
        return None
    if any(LOADER.search(frame) for frame in process.stack.frames):
        return Cause("loader", f"waiting for its data loader: {_name(guilty)} on {worker.node}")
    frames, call = process.stack.frames, GROUPS.get(process.place.call if process.place else "", "")
    if not WAITS_ON.match(frames[0]) and (call != FUTEX or COLLECTIVE.search(frames[0])):
        return None
    # Python's own frames tell nothing: the first that is not one of them is the program's line.
    line = next((frame for frame in frames if not WAITS_ON.match(frame)), frames[0])
    return Cause("deadlock", f"deadlock in Python: {_name(guilty)} waits for a lock in {line}" if line is frames[0]
                 else f"deadlock in Python: {_name(guilty)} is in {frames[0].partition(' (')[0]}, from {line}")


def _waits(step: StepView, gang: Gang | None, said: Conclusion, guilty: Guilty | None) -> Cause:
    proof = words.proof_of(step)
    what = [part for part in (proof.said.op, f"#{proof.said.seq}" if proof.said.seq is not None else "")
            if part] if proof else []
    away = [f"{_name(guilty)} does not join it"] if guilty and said.evidence.get("by") in AWAY else []
    told = ", ".join(part for part in (" ".join(what), *away) if part)
    stuck = Cause("collective", f"collective stuck: {told}" if told else "collective stuck")
    if proof or said.rule == collective_ras.RULE or said.evidence.get("by") == "ras":
        return stuck
    gpus = [gpu for worker in step.workers for gpu in worker.gpus]
    never = bool(gpus) and not any(gpu.ever_busy for gpu in gpus)
    if never:
        ranks = sum(max(1, len(worker.processes)) for worker in step.workers)
        return (Cause("first_collective", "waiting for a first collective that never began") if ranks > 1
                else Cause("never_began", "never began: its GPUs were never busy"))
    if gang is not None and (gang.waits or said.rank is not None):
        return stuck
    return Cause("", "")


def preparing(step: StepView) -> str:
    """``rank 0 still preparing: it works, the other 3 wait for it``: before the first collective, while rank 0
    tokenises or compiles; "" where it is not so, or has been for too long. No stall, but a sentence."""
    ranks = _units(step)
    first = next((one for one in ranks if one[0] == "0"), None)
    rest = [one for one in ranks if one[0] != "0"]
    if first is None or not rest or not first[1] or not first[2]:
        return ""
    if step.workers[0].began_s > PREPARES_MAX_S or any(works and not spins for _, works, _, spins in rest):
        return ""
    return f"rank 0 still preparing: it works, the other {len(rest)} wait for it"


def _units(step: StepView) -> list[tuple[str, bool, bool, bool]]:
    """(rank, it works, its GPUs were never busy, they are busy now) of each rank that runs: of tasks, or of one task's
    processes. Who has no GPUs is not told apart by them: nothing is said."""
    alive = [worker for worker in step.workers if worker.state == "running" and worker.gpus]
    if len(alive) != len(step.workers):
        return []
    if len(alive) > 1:
        return [(str(w.rank), w.cpu_idle_s is not None and w.cpu_idle_s < AT_WORK_S, _never(w), _busy(w))
                for w in alive]
    return [(p.rank, p.cpu is not None and p.cpu >= WORKS_PERCENT, _never(w), False)
            for w in alive for p in w.processes]


def _never(worker: WorkerView) -> bool:
    return not any(gpu.ever_busy for gpu in worker.gpus)


def _busy(worker: WorkerView) -> bool:
    """A barrier of NCCL's spins its GPU: its process seems to work, too."""
    return any(gpu.busy is not None and gpu.busy >= WORKS_PERCENT for gpu in worker.gpus)


def _explained(said: Conclusion, step: StepView) -> bool:
    """Others wait for rank 0 to be ready: silence since the start, and words of one of the first operations."""
    proof = words.proof_of(step)
    if said.rule in ("never_began", "gpus_idle", nothing_runs.RULE):
        return True
    early = proof is not None and proof.said.seq is not None and proof.said.seq <= FIRST_WORK
    return early and said.evidence.get("by") in ("", None, "place", "named", "late", "stack")
