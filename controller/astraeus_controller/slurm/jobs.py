"""What the controller asks of Slurm and tells it: a short, fixed list of commands."""

from __future__ import annotations

import re
import secrets

import msgspec

from . import parse, places
from .command import Away, Commands, Refused
from .places import NodeRow, Places
from .types import JobFacts, Snapshot

UNKNOWN_JOB = "Invalid job id"
FINISHED = "already finished"
COMMENT_MAX = 120_000
"""Bytes of a comment that a command line still carries (Linux takes 128 KiB in one argument)."""


class Texts(msgspec.Struct, frozen=True):
    """A job's facts with both its comments, byte for byte (surrogates stand for bytes that are no UTF-8)."""

    facts: JobFacts
    comment: str
    admin_comment: str


class Jobs:
    """Slurm's jobs by command line. Every method raises Refused or Away (slurm.command)."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    async def poll(self) -> Snapshot:
        """All live jobs. An answer that was cut off is no answer."""
        mark = _mark()
        text = await self.commands.run("squeue", "-h", "-t", parse.STATES, "-o", parse.poll_format(mark))
        try:
            return parse.snapshot(text, mark)
        except parse.Garbled as fault:
            raise Away(str(fault)) from None

    async def show(self, job: int) -> Texts | None:
        """One job, whole, also for MinJobAge after its end; None when Slurm does not know it (any more)."""
        mark = _mark()
        text = await self._of_one(job, "-O", parse.facts_format(mark))
        if text is None:
            return None
        if not text:  # a job that Slurm does not know is an error of squeue's, with words
            raise Away(f"squeue printed nothing of job {job}")
        try:
            found = parse.facts(text, mark, job)
        except parse.Garbled as fault:
            raise Away(str(fault)) from None
        return Texts(*found) if found else None

    async def _of_one(self, job: int, *form: str) -> str | None:
        """What squeue prints of one job; None when Slurm does not know it (any more)."""
        try:
            return await self.commands.run("squeue", "-h", "-t", "all", "-j", str(job), *form)
        except Refused as refusal:
            if UNKNOWN_JOB in str(refusal):
                return None
            raise Away(str(refusal)) from None

    async def components(self, leader: int) -> list[JobFacts]:
        """All components of a heterogeneous job that Slurm still knows, the leader first."""
        mark = _mark()
        try:
            return parse.components(await self.commands.run(
                "squeue", "-h", "-t", "all", "-j", str(leader), "-O", parse.facts_format(mark)), mark, leader)
        except (Refused, parse.Garbled) as fault:
            raise Away(str(fault)) from None

    async def update(self, job: str, *, comment: str | None = None, admin_comment: str | None = None,
                     start_time: str = "", excluded: str | None = None) -> None:
        """One ``scontrol update``; only what is given is set. ``start_time``: ``now+10``. ``excluded``: the whole
        list, "" for none; Slurm changes it only while the job is PENDING (or COMPLETING before that).

        ``job``: JobFacts.named; a bare id may mean a whole array or heterogeneous job.
        """
        pairs = [f"StartTime={start_time}"] if start_time else []
        if excluded is not None:
            pairs.append(f"ExcNodeList={excluded}")
        if comment is not None:
            pairs.append(f"Comment={comment}")
        if admin_comment is not None:
            pairs.append(f"AdminComment={admin_comment}")
        await self.commands.run("scontrol", "update", f"jobid={job}", *pairs)

    async def requeue(self, job: str) -> None:
        """``requeue incomplete``: plain ``requeue`` would revive a job that its user cancelled.
        ``job``: JobFacts.requeued_as."""
        await self.commands.run("scontrol", "requeue", "incomplete", job)

    async def requeue_ended(self, job: str) -> None:
        """Plain ``requeue``, which runs an ended job again. ``job``: JobFacts.requeued_as."""
        await self.commands.run("scontrol", "requeue", job)

    async def signal(self, job: str, name: str, *, batch: bool = False, full: bool = False) -> None:
        """Send a signal: to all steps but the batch step; ``batch``: to the batch script's own process only;
        ``full``: to all steps, the batch script and its children. ``job``: JobFacts.named, or requeued_as for
        every component of a heterogeneous job."""
        whom = ["--batch"] if batch else ["--full"] if full else []
        await self.commands.run("scancel", *whom, f"--signal={name}", job)

    async def recorded(self, job: str) -> tuple[bool, str]:
        """(accounting has the job's end, its Comment as sacct prints it) of the latest attempt.
        ``job``: JobFacts.named."""
        text = await self.commands.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "End,Comment")
        ended = text.split("|", 1)[0].strip()
        return bool(ended) and ended != "Unknown", text

    async def record(self, job: int, *, comment: str | None = None, admin_comment: str | None = None) -> None:
        """Comments of an ended job, in the accounting database. sacctmgr turns quotes into something else."""
        pairs = [] if comment is None else [f"Comment={comment}"]
        if admin_comment is not None:
            pairs.append(f"AdminComment={admin_comment}")
        await self.commands.run("sacctmgr", "-i", "-Q", "modify", "job", "where", f"jobid={job}", "set", *pairs)

    async def accounted(self, named: str) -> str:
        """The state of the latest attempt in accounting, ``CANCELLED`` without by whom; "" where it has none yet."""
        words = (await self.commands.run("sacct", "-X", "-n", "-P", "-j", named, "-o", "State")).split()
        return words[0] if words else ""

    async def settings(self) -> dict[str, str]:
        """``scontrol show config``: ClusterName, KillWait (seconds, as text) and the rest."""
        text = await self.commands.run("scontrol", "show", "config")
        return {found[1]: found[2].strip() for found in re.finditer(r"(?m)^(\S+)\s*= (.*)$", text)}

    async def places(self, job: int) -> Places | None:
        """Where the job wants to run and where not; None when Slurm does not know it."""
        mark = _mark()
        text = await self._of_one(job, "-o", places.places_format(mark))
        try:
            return None if text is None else places.places(text, mark, job)
        except parse.Garbled as fault:
            raise Away(str(fault)) from None

    async def excluded_texts(self, job: str) -> list[str]:
        """What may be its ExcNodeList as its user wrote it (squeue sorts and folds it): several where a job's name
        or comment holds a line that looks like it. ``job``: JobFacts.named."""
        return places.excluded_texts(await self.commands.run("scontrol", "show", "job", job))

    async def partition_nodes(self, partition: str) -> tuple[NodeRow, ...]:
        """Every node of the partition (of several: ``a,b``, then each with its partition)."""
        text = await self.commands.run("sinfo", "-h", "-N", "-p", partition, "-o", places.NODES)
        return places.nodes(text)

    async def expanded(self, nodelist: str) -> tuple[str, ...]:
        """The names in ``c4,c[2-3]``, sorted; never asks slurmctld."""
        if not nodelist:
            return ()
        return tuple(sorted(set((await self.commands.run("scontrol", "show", "hostnames", nodelist)).split())))

    async def with_gpus(self) -> frozenset[int]:
        """Jobs that run and hold GPUs, or asked for some; all elements of an array by their own ids."""
        mark = _mark()
        text = await self.commands.run("squeue", "-h", "-t", parse.STATES, "-O", parse.gpus_format(mark))
        try:
            return parse.gpu_jobs(text, mark)
        except parse.Garbled as fault:
            raise Away(str(fault)) from None

    async def completing_nodes(self, nodelist: str) -> list[str]:
        """Those of the nodes that still complete a job."""
        text = await self.commands.run("sinfo", "-h", "-N", "-n", nodelist, "-o", "%N %T")
        pairs = (line.split() for line in text.splitlines())
        return sorted({pair[0] for pair in pairs if len(pair) == 2 and pair[1].startswith("completing")})


def _mark() -> str:
    return f"\x1e{secrets.token_hex(8)}\x1f"


BEGIN_MIN_S = 3.0
"""The next attempt begins no sooner than this after the last one has left its nodes."""
CREDENTIAL_S = 122.0
"""The same on Slurm before 24.11: the life of the last attempt's credential. While a node remembers that one (it may
do so twice), it takes the next attempt for one whose Prolog has run: on 22.05, begun 3 s after, the batch scripts of
7 of 8 jobs ran before their Prolog had ended, and one that starts in the second of the revocation is refused
("already killed") and FAILED. Slurm's own delay of 121 s is there for that reason; 24.11 needs it no more."""
KEPT_NO_LONGER = (24, 11)


def begin_min(settings: dict[str, str]) -> float:
    """Seconds after which a requeued job may begin again; the longer time where the release is not known."""
    found = re.match(r"(\d+)\.(\d+)", settings.get("SLURM_VERSION", ""))
    return BEGIN_MIN_S if found and (int(found[1]), int(found[2])) >= KEPT_NO_LONGER else CREDENTIAL_S


def kill_wait(settings: dict[str, str]) -> int:
    """Seconds that Slurm gives between TERM and KILL; 30, its default, where it does not say."""
    found = re.match(r"\d+", settings.get("KillWait", ""))
    return int(found[0]) if found else 30
