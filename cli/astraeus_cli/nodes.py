"""``astraeus nodes``: flagged nodes; ``--hostlist``, ``drain NODE``, ``clear NODE``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from . import client
from .text import Json, clock, safe, table

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """The command's own options."""
    one = commands.add_parser("nodes", parents=[shared], help="list nodes that held jobs back; drain or clear one")
    one.add_argument("action", nargs="?", choices=("drain", "clear"), metavar="drain|clear",
                     help="drain: out of service, with what was found as its reason; clear: it is dealt with, and back "
                          "in service where that reason still stands")
    one.add_argument("node", nargs="?", type=_node, metavar="NODE")
    one.add_argument("--hostlist", action="store_true", help="print them for sbatch --exclude=")
    one.add_argument("--all", action="store_true",
                     help="nodes, too, on which a guilty rank of one job alone ran: mostly the job's own doing")
    one.set_defaults(path="/nodes")


def ask(where: str, args: argparse.Namespace) -> Json:
    """The API's answer. Raises client.NoAnswer or Problem."""
    if args.action:
        return client.get(f"/nodes/{args.node}/{args.action}", where, "POST")
    return client.get("/nodes?all" if args.all else "/nodes", where)


def fault(args: argparse.Namespace) -> str:
    """What is wrong with the command line; "" where nothing is."""
    if args.action and not args.node:
        return f"write the node, such as: astraeus nodes {args.action} c3"
    if args.action and (args.hostlist or args.all):
        return f"nodes {args.action} takes no --hostlist or --all"
    return ""


def lines(answer: Json, now: datetime, args: argparse.Namespace) -> Iterator[str]:
    """A table; one line with ``--hostlist``; a sentence for what was done."""
    if args.action == "drain":
        yield f"node {safe(answer['node'])} is drained: {safe(answer['reason'])}"
        return
    if args.action == "clear":
        yield f"node {safe(answer['node'])}: {safe(answer['said'])}"
        return
    if args.hostlist:
        yield fold(one["node"] for one in answer["nodes"])
        return
    rows = [[safe(one["node"]), "drained" if one["drained"] else "flagged" if one["flagged"] else "noted",
             clock(one["at"], now) + (" now" if one["now"] else ""), str(one["times"]), _runs(one),
             "-" if one["gpu"] is None else str(one["gpu"]), safe(one["uuid"] or "-"), safe(one["evidence"])]
            for one in answer["nodes"]]
    if rows:
        yield from table(("NODE", "STATE", "LAST", "TIMES IN 30 DAYS", "RUNS", "GPU", "UUID", "EVIDENCE"), rows)


def _runs(one: Json) -> str:
    runs = [safe(run) for run in one["runs"][-4:]]
    hidden = len(one["runs"]) - len(runs)
    runs = ([f"{hidden} more"] if hidden else []) + runs
    return ", ".join(runs + ([f"{one['others']} of others"] if one["others"] else [])) or "-"


def fold(names: Iterable[str]) -> str:
    """``c[1-3,7],gpu-09``: Slurm's own way of writing lists of nodes; what ends in no number stands by itself."""
    parts = [(found[1], found[2]) for name in sorted(set(names)) if (found := re.fullmatch(r"(.*?)(\d*)", name))]
    found = []
    for (prefix, width), some in groupby(sorted(parts, key=lambda p: (p[0], len(p[1]), int(p[1] or 0))),
                                         key=lambda p: (p[0], len(p[1]))):
        numbers = [int(number) for _, number in some if number]
        if not width:
            found.append(prefix)
            continue
        spans = _spans(numbers)
        texts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in spans]
        found.append(prefix + (texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"))
    return ",".join(found)


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return spans


def _node(value: str) -> str:
    if not NODE.fullmatch(value):
        raise argparse.ArgumentTypeError(f'"{value}" is no name of a node; write one, such as c3')
    return value
