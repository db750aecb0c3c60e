"""``astraeus stacks JOB``: asks for Python stacks, waits for them, and shows them by groups of ranks."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import datetime

from . import client
from .text import Json, clock, safe

WAIT_S = 45.0
"""A healthy node reports every 30 s, one of a suspect job every 2 s."""
EVERY_S = 0.4
TELL_AFTER_S = 3.0
OK, NOT_ALL = 0, 4
BUSY = 423
"""Other stacks of the job are being read."""


def ask(path: str, where: str, args: argparse.Namespace) -> Json:
    """The API's answer, as far as it came within ``args.wait`` seconds. Raises client.NoAnswer or Problem."""
    if args.last:
        return client.get(path, where)
    until, told = time.monotonic() + args.wait, False
    answer = _begin(f"{path}?native" if args.native else path, where, until)
    begun = answer["ask"]
    while not answer["done"] and time.monotonic() < until:
        if not told and until - time.monotonic() < args.wait - TELL_AFTER_S:
            told = True
            print(f"waiting for the next report of {safe(', '.join(answer['waiting_for'][:8]))} …", file=sys.stderr)
        time.sleep(EVERY_S)
        now = client.get(f"{path}?ask={begun}", where)
        if now["ask"] != begun:
            break  # too many others have been read since
        answer = now
    return answer


def _begin(path: str, where: str, until: float) -> Json:
    """Ask, once what is being read just now is there."""
    while True:
        try:
            return client.get(path, where, "POST")
        except client.Problem as problem:
            if problem.status != BUSY or time.monotonic() >= until:
                raise
        time.sleep(EVERY_S)


def verdict(answer: Json) -> int:
    """The exit status."""
    return NOT_ALL if answer["waiting_for"] or not any(step["groups"] for step in answer["steps"]) else OK


def lines(answer: Json, now: datetime) -> Iterator[str]:
    """``3 ranks in all_reduce (train.py:88) · rank 5 in next_batch (loader.py:41)``, then each group's stack."""
    taken = clock(answer["at"], now)
    for step in answer["steps"]:
        name = f"step {safe(step['step'])}: " if len(answer["steps"]) > 1 else ""
        if step["groups"]:
            yield f"{name}{safe(step['said'])}"
        for group in step["groups"]:
            yield ""
            yield f"{_ranks(group)} on {safe(group['machines'])}:"
            yield from (f"    {safe(frame)}" for frame in group["frames"])
        if step["unknown"]:
            yield ""
        for group in step["unknown"]:
            yield f"{_ranks(group)}: unknown: {safe(group['reason'])}"
    for node in answer["unknown"]:
        yield f"{safe(node['machine'])}: unknown: {safe(node['reason'])}"
    if answer["waiting_for"]:
        yield f"not there yet: {safe(', '.join(answer['waiting_for']))} (asked at {taken} UTC; {_later(answer)})"
    elif not answer["steps"] and not answer["unknown"]:
        yield "no worker process was found"
    yield f"read at {taken} UTC{', with native frames' if answer['native'] else ''}; --json shows all threads"


def _later(answer: Json) -> str:
    return "it has not answered for too long" if answer["done"] else (
        f"astraeus stacks {safe(answer['run'])} --last shows it once it has come")


def _ranks(group: Json) -> str:
    return f"rank{'' if group['count'] == 1 else 's'} {safe(group['ranks'])}"
