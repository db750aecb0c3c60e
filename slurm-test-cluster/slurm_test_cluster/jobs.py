"""Slurm's jobs as a user and an operator see them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence

from slurm_test_cluster.hosts import CommandFailed, Hosts, Result, home
from slurm_test_cluster.waiting import wait_for

SEPARATOR = "\x1f"
# Lines of `scontrol show job` whose value is free text up to the line's end.
FREE_TEXT = (
    "Comment", "AdminComment", "SystemComment", "Extra", "Command", "WorkDir", "StdErr", "StdIn", "StdOut",
)  # fmt: skip
DEFAULT_FIELDS = ("JobID", "State", "ExitCode", "Comment", "AdminComment")


def parse_show_job(text: str) -> dict[str, str]:
    """`scontrol show job` as a dict. A free text may hold newlines: a line without a key belongs to it."""
    fields: dict[str, str] = {}
    open_text = ""
    for line in text.splitlines():
        free = re.match(rf"\s*({'|'.join(FREE_TEXT)})=(.*)", line)
        pairs = re.findall(r"(?:^|\s)([A-Za-z][\w/:.-]*)=(\S*)", line)
        if free:
            open_text = free[1]
            fields[open_text] = free[2]
        elif pairs and line.startswith(("   ", "JobId=")):
            open_text = ""
            fields.update(pairs)
            if " JobName=" in line:
                fields["JobName"] = line.split(" JobName=", 1)[1]
        elif open_text:
            fields[open_text] += "\n" + line
    # scontrol ends these lines with a space of its own.
    return {key: value.removesuffix(" ") if key in FREE_TEXT else value for key, value in fields.items()}


def parse_sacct(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Rows of `sacct -P`. A line without its separators belongs to the row before (a long comment)."""
    rows: list[str] = []
    for line in text.splitlines():
        if (
            rows
            and (SEPARATOR not in line or rows[-1].count(SEPARATOR) < len(fields) - 1)
            and len(fields) > 1
        ):
            rows[-1] += "\n" + line
        else:
            rows.append(line)
    return [dict(zip(fields, row.split(SEPARATOR), strict=False)) for row in rows if row]


class Jobs(Hosts):
    """Submit, ask, wait, cancel."""

    def sbatch(
        self, user: str, script: str, *arguments: str, host: str = "ctl", env: Mapping[str, str] | None = None
    ) -> Result:
        """Run sbatch as `user` on a script with this text, whatever comes of it."""
        path = f"{home(user)}/job-{secrets.token_hex(4)}.sh"  # many submit at the same time
        self.copy_in(host, path, script, user=user, mode=0o755)
        return self.run(host, ["sbatch", "--parsable", *arguments, path], user=user, env=env)

    def submit(
        self, user: str, script: str, *arguments: str, host: str = "ctl", env: Mapping[str, str] | None = None
    ) -> int:
        """Submit a batch script and return the job id; CommandFailed with sbatch's words when it is refused.

        Output goes to slurm-JOB.out in the user's home unless an argument says otherwise.
        """
        result = self.sbatch(user, script, *arguments, host=host, env=env)
        if result.rc:
            raise CommandFailed(f"sbatch {' '.join(arguments)}: exit {result.rc}: {result.err.strip()}")
        return int(result.out.strip().split(";")[0])

    def scontrol_show_job(self, job: int | str) -> dict[str, str]:
        """Slurm's record of a job; LookupError once slurmctld has forgotten it."""
        result = self.run("ctl", ["scontrol", "show", "job", str(job)])
        if result.rc or "JobId=" not in result.out:
            raise LookupError(f"job {job}: {(result.err or result.out).strip()}")
        return parse_show_job(result.out)

    def job_state(self, job: int | str) -> str:
        """A job's state in Slurm's words (PENDING, RUNNING, ...); slurmdbd's once slurmctld forgot it."""
        try:
            return self.scontrol_show_job(job)["JobState"]
        except LookupError:
            rows = self.sacct(job, ["State"])
            if not rows:
                raise
            return rows[-1]["State"].split()[0]

    def wait_state(
        self, job: int | str, state: str | Collection[str], timeout: float, every: float = 0.3
    ) -> str:
        """Wait until the job is in `state` (or one of several), and return the one it is in."""
        wanted = {state} if isinstance(state, str) else set(state)

        def reached() -> str:
            now = self.job_state(job)
            return now if now in wanted else ""

        def saw() -> object:
            try:
                fields = self.scontrol_show_job(job)
            except LookupError as problem:
                return str(problem)
            return {
                key: fields.get(key) for key in ("JobState", "Reason", "Restarts", "ExitCode", "NodeList")
            }

        return wait_for(reached, timeout, every, f"job {job} {' or '.join(sorted(wanted))}", saw)

    def comment(self, job: int | str) -> str:
        """The job's Comment byte for byte (slurmctld's)."""
        return self.run("ctl", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%k"], check=True).out[:-1]

    def admin_comment(self, job: int | str) -> str:
        """The job's AdminComment (slurmctld's), empty when unset."""
        return self.scontrol_show_job(job).get("AdminComment", "")

    def sacct(
        self, job: int | str, fields: Sequence[str] = DEFAULT_FIELDS, steps: bool = False
    ) -> list[dict[str, str]]:
        """Accounting rows, oldest first, one per incarnation (and per step with `steps`)."""
        command = [
            "sacct",
            "-D",
            "-n",
            "-P",
            f"--delimiter={SEPARATOR}",
            "-j",
            str(job),
            "-o",
            ",".join(fields),
        ]
        out = self.run("ctl", command if steps else [*command, "-X"], check=True).out
        return parse_sacct(out, fields)

    def job_output(self, job: int | str, user: str = "alice") -> str:
        """What the job wrote to slurm-JOB.out in its user's home; empty before it exists."""
        return self.logs("ctl", f"{home(user)}/slurm-{job}.out")

    def cancel(self, *jobs: int | str) -> None:
        """End jobs, whatever state they are in."""
        if jobs:
            self.run("ctl", ["scancel", *map(str, jobs)])

    def cancel_all(self, timeout: float = 30) -> None:
        """End every job and wait until no node has anything left of one."""
        self.run("ctl", "scancel -u alice; scancel -u bob")
        wait_for(
            lambda: not self.run("ctl", ["squeue", "-h"], check=True).out.strip(),
            timeout,
            what="no job left in squeue",
            saw=lambda: self.run("ctl", ["squeue", "-h"]).out,
        )
