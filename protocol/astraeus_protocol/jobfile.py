"""The state directory on a node: what Prolog and the plugin write there and the monitor reads.

``/run/astraeus/`` (root, 0755)::

    monitor.lock            held by the monitor (flock); its PID inside
    wake                    FIFO: a byte in it tells the monitor to look at jobs/ now
    jobs/        (0711)     what containers have mounted; who isn't root lists nothing
    jobs/<id>/   (0711)     one per watched job
        job      (0600)     Prolog's (or the plugin's) ``key=value`` lines
        steps/<step> (0600) the plugin's lines, appended: one ``step``, then ``task``, ``exit``, ``end``
        clock    (0600)     the monitor's clocks, so that a kill loses none
        cause    (0600)     restart cause from the controller's reply, where the Comment could not carry it
        stop     (0400, the user's)  the stop file

A line of a step file is a word and ``key=value`` pairs, separated by one space, under 512 bytes, written by
one write(2) with O_APPEND, so that lines of many tasks never mix::

    step v=1 version=0.1.0 job=123 step=0 uid=1001 nodes=4 node_id=1 tasks=8 local_tasks=2 nodelist=c[1-4] \
stepd=812 stepd_start=51234 launch=c1:40123 at=5123.45 stall_after=60
    task rank=2 local=0 pid=4242 start=51240
    gpus rank=2 local=0 gpus=0 visible=0
    exit rank=2 local=0 pid=4242 status=9 at=5200.10
    end at=5201.00

``at`` is CLOCK_BOOTTIME in seconds. ``launch`` is where the step's srun listens (host and port), which tells
which srun holds the step's output. ``gpus`` comes from the task itself, for only there Slurm has set what it
may use: Slurm's indices, and CUDA_VISIBLE_DEVICES; an empty ``gpus=`` means none. A step line carries only
what the step itself asked for. ``full`` ends a file whose job directory has reached its limit.

A job file holds ``v version job nonce boot at node cluster uid gid user account partition nodelist nodes gpus
restarts leader restart_cause by asked`` and the options' keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

STATE_DIR = Path("/run/astraeus")
GPUS_MAX = 1024
JOB_LIMIT = 4 << 20
"""Bytes that one job's directory may take; beyond it: ``unknown: too many tasks``."""


def parse_job(text: str) -> dict[str, str]:
    """``key=value`` lines of a job file; a line without ``=`` is skipped, the first of a key counts."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, sep, value = line.partition("=")
        if sep:
            values.setdefault(key, value)
    return values


def parse_step_lines(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(word, pairs) for each whole line of a step file; a last line without newline is not read yet."""
    for line in text.split("\n")[:-1]:
        word, *pairs = line.split(" ")
        if word:
            yield word, dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def numbers(text: str) -> list[int]:
    """``0,1`` and ``0-3,6`` as Slurm lists GPUs; what is no number, or is more than 1,024 GPUs, is left out."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not all(end.isascii() and end.isdigit() and len(end) < 8 for end in (first, last)):
            continue
        if 0 <= int(last) - int(first) < GPUS_MAX:
            found.extend(range(int(first), int(last) + 1))
    return found[:GPUS_MAX]
