"""Text that squeue prints, made into records.

Names and comments are the user's: they hold separators, newlines, control characters and whole forged lines.
So every field ends with a mark that holds 16 random digits, drawn for this one call; no user can guess it, and
text that lacks a mark was cut. ``-O name:0`` prints a field at its full length, neither cut nor padded
(22.05, 24.11 and 26.05 alike; ``:0`` is what makes trailing blanks and 64 KiB comments come back whole).
"""

from __future__ import annotations

import re

from .types import JobFacts, JobRow, Snapshot

POLL = ("%A", "%F", "%K", "%T", "%u", "%a", "%P", "%q", "%N", "%j")
"""Job, array job, array task, state, user, account, partition, QOS, nodes, name."""
FACTS = ("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "State", "Reason", "UserName",
         "UserID", "Account", "Partition", "QOS", "RestartCnt", "Requeue", "BatchFlag", "StartTime", "EndTime",
         "TimeUsed", "TimeLimit", "NodeList", "NumNodes", "PriorityLong", "exit_code", "Name", "STDOUT",
         "Comment", "admin_comment")
GPUS = ("JobID", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task")
"""Job, and where GPUs may stand: what is allocated names them only where accounting tracks gres/gpu."""
STATES = "RUNNING,CONFIGURING,SUSPENDED,STOPPED,SIGNALING,COMPLETING,RESIZING,STAGE_OUT"
"""Every state in which a job holds nodes, by names that 22.05 to 26.05 all take (squeue refuses a name that it does
not know). CONFIGURING: with PrologFlags=Alloc a node reports while Prolog still runs on another. SIGNALING: for as
long as a node does not answer to a STOP or CONT; two polls without it were once taken for the job's end."""
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL",
                   "DEADLINE", "PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"})
NOTHING = ("(null)", "N/A", "Unknown", "None")
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


class Garbled(ValueError):
    """The text is not what was asked for: cut off, or of another shape. What it would say is unknown."""


def poll_format(mark: str) -> str:
    """Argument of ``squeue -o`` for the poll."""
    return "".join(field + mark for field in POLL)


def facts_format(mark: str) -> str:
    """Argument of ``squeue -O`` for one job."""
    return ",".join(f"{field}:0{mark}" for field in FACTS)


def gpus_format(mark: str) -> str:
    """Argument of ``squeue -O`` for which jobs have GPUs."""
    return ",".join(f"{field}:0{mark}" for field in GPUS)


def gpu_jobs(text: str, mark: str) -> frozenset[int]:
    """Those of them that have any."""
    return frozenset(_number(row[0]) for row in records(text, mark, len(GPUS)) if any("gpu" in one for one in row[1:]))


def records(text: str, mark: str, fields: int) -> list[list[str]]:
    """Records of ``fields`` values each, every value followed by ``mark``, every record by a newline."""
    if not text:
        return []
    parts = text.split(mark)
    if parts.pop() != "\n" or len(parts) % fields:
        raise Garbled("squeue's answer was cut off")
    found = [parts[at:at + fields] for at in range(0, len(parts), fields)]
    for record in found[1:]:
        if not record[0].startswith("\n"):
            raise Garbled("squeue's answer has another shape than asked for")
        record[0] = record[0][1:]
    return found


def snapshot(text: str, mark: str) -> Snapshot:
    """The poll of all jobs."""
    rows = []
    for job, array_job, task, state, user, account, partition, qos, nodes, name in records(
            text, mark, len(POLL)):
        rows.append(JobRow(
            job=_number(job), state=state, array_job=_array_job(array_job, task), array_task=_task(task),
            user=_text(user), account=_text(account), partition=_text(partition), qos=_text(qos),
            nodelist=_text(nodes), name=_words(name)))
    return Snapshot(jobs=tuple(rows))


def facts(text: str, mark: str, job: int) -> tuple[JobFacts, str, str] | None:
    """(facts, Comment, AdminComment) of ``job``; None where squeue does not list it.

    ``squeue -j`` of an array's or a heterogeneous job's first id lists all its elements: the one with this
    very id counts.
    """
    for record in records(text, mark, len(FACTS)):
        value = dict(zip(FACTS, record, strict=True))
        if value["JobID"] == str(job):
            return _facts(job, value), _comment(value["Comment"]), _comment(value["admin_comment"])
    return None


def components(text: str, mark: str, leader: int) -> list[JobFacts]:
    """The components of the heterogeneous job ``leader``, in their order."""
    rows = [dict(zip(FACTS, record, strict=True)) for record in records(text, mark, len(FACTS))]
    found = [_facts(_number(row["JobID"]), row) for row in rows if row["HetJobID"] == str(leader)]
    return sorted(found, key=lambda one: one.component or 0)


def _facts(job: int, value: dict[str, str]) -> JobFacts:
    leader = value["HetJobID"]
    return JobFacts(
        job=job, state=value["State"], name=_words(value["Name"]),
        array_job=_array_job(value["ArrayJobID"], value["ArrayTaskID"]), array_task=_task(value["ArrayTaskID"]),
        leader=int(leader) if leader.isdigit() else 0,
        component=int(value["HetJobOffset"]) if leader.isdigit() and value["HetJobOffset"].isdigit() else None,
        user=_text(value["UserName"]), uid=_number(value["UserID"]), account=_text(value["Account"]),
        partition=_text(value["Partition"]), qos=_text(value["QOS"]), reason=_text(value["Reason"]),
        restarts=_number(value["RestartCnt"]), requeue=value["Requeue"] == "1", batch=value["BatchFlag"] == "1",
        start_time=value["StartTime"], end_time=value["EndTime"], run_time_s=span(value["TimeUsed"]),
        time_limit_s=span(value["TimeLimit"]), nodelist=_text(value["NodeList"]),
        nodes=_number(value["NumNodes"]),
        held=value["PriorityLong"] == "0" or value["Reason"].startswith("JobHeld")
        or "held" in value["Reason"],
        exit_code=value["exit_code"], std_out=_words(_text(value["STDOUT"])))


def span(text: str) -> float | None:
    """Seconds in Slurm's ``[D-][HH:]MM:SS``; None where it is none (UNLIMITED, INVALID, N/A)."""
    found = _SPAN.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _number(text: str) -> int:
    if not text.isdigit():
        raise Garbled(f"squeue printed {text[:40]!r} where a number belongs")
    return int(text)


def _task(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _array_job(text: str, task: str) -> int:
    """An ordinary job prints its own id here; then it is no array."""
    return int(text) if text.isdigit() and task.isdigit() else 0


def _text(text: str) -> str:
    return "" if text in NOTHING else text


def _comment(text: str) -> str:
    """squeue prints ``(null)`` for no comment; a comment that is this very word can't be told from none."""
    return "" if text == "(null)" else text


def _words(text: str) -> str:
    """For people and JSON: bytes that are no UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
