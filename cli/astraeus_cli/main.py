"""``astraeus stalls``, ``incidents``, ``progress JOB``, ``history JOB``, ``stacks JOB``, ``evidence ID``, ``nodes``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from astraeus_protocol import VERSION

from . import client, evidence, nodes, stacks, text
from .text import safe

OK, FAILED, USAGE, NO_SUCH_JOB = 0, 1, 2, 3
JOB = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?(\.\w{1,20})?")
EXITS = """exit status:
  0  answered
  1  the controller could not be asked, or answered with an error; nodes: it may not be done, or was not;
     stalls: something keeps the controller from seeing or judging, and what is listed may not be all
  2  the command line can't be used
  3  no such job or finding, or it is not watched, or it is another user's
  4  stacks: a node has not answered in time, or nothing could be read; what came is printed
Times are in UTC."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "nodes" and (wrong := nodes.fault(args)):
        parser.error(wrong)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        where = client.place(args.socket)
        path = args.path.format(job=getattr(args, "job", ""), number=getattr(args, "number", ""))
        if args.command == "nodes":
            answer = nodes.ask(where, args)
        else:
            answer = (stacks.ask(path, where, args) if args.command == "stacks"
                      else client.get(path, where, args.method))
        if args.json:
            print(json.dumps(answer, indent=2))
        else:
            _print(args, answer)
        sys.stdout.flush()
        if args.command == "stacks":
            return stacks.verdict(answer)
        if args.command == "stalls" and answer.get("faults"):
            return FAILED
    except client.NoAnswer as fault:
        print(f"astraeus: {fault}", file=sys.stderr)
        return FAILED
    except client.Problem as problem:
        print(f"astraeus: {text.safe(problem)}", file=sys.stderr)
        return NO_SUCH_JOB if problem.status == 404 else FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more to flush at exit
        return OK
    return OK


def _print(args: argparse.Namespace, answer: text.Json) -> None:
    now, command = datetime.now(UTC), args.command
    if command == "nodes":
        lines = list(nodes.lines(answer, now, args))
        print(*(lines or ["no node is flagged"]), sep="\n", file=sys.stdout if lines else sys.stderr)
        return
    if command == "stacks":
        print(*stacks.lines(answer, now), sep="\n")
        return
    if command == "evidence":
        print(*evidence.lines(answer, now), sep="\n")
        return
    if command == "token":
        print(safe(answer["token"]))
        return
    if command == "stalls":
        lines = list(text.stalls(answer, now))
        if lines:
            print(*lines, sep="\n")
        else:
            print(text.nothing(answer), file=sys.stderr)
        print(*text.coverage(answer), sep="\n", file=sys.stderr)
        return
    if command == "incidents":
        print(*(text.incidents(answer, now) or ["no incident is open"]), sep="\n",
              file=sys.stdout if answer["incidents"] else sys.stderr)
        return
    for line in text.progress(answer, now) if command == "progress" else text.history(answer):
        print(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="astraeus", description="Is a Slurm job stuck, which rank, and why?",
                                     epilog=EXITS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=VERSION)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print the API's answer")
    shared.add_argument("--socket", default="", metavar="PATH",
                        help=f"the controller's socket, or http://HOST:{client.PORT} (default $ASTRAEUS_SOCKET, "
                             f"$ASTRAEUS_API, else {client.SOCKET})")
    shared.set_defaults(method="GET")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    stalls = commands.add_parser("stalls", parents=[shared], help="list what is stalled or suspect now")
    stalls.set_defaults(path="/stalls")
    incidents = commands.add_parser("incidents", parents=[shared],
                                    help="list jobs that stalled together, by one cause outside of them")
    incidents.set_defaults(path="/incidents")
    incidents.add_argument("--all", dest="path", action="store_const", const="/incidents?all",
                           help="those that are over, too")
    for name, words in (("progress", "show a job's workers and their progress"),
                        ("history", "show what happened to a job")):
        one = commands.add_parser(name, parents=[shared], help=words)
        one.add_argument("job", type=_job, metavar="JOB", help="123, 123_4 or, for one step, 123.0")
        one.set_defaults(path=f"/runs/{{job}}/{name}")
    kept = commands.add_parser("evidence", parents=[shared], help="show what a finding rests on: readings, the end of "
                                                                  "the output, stacks")
    kept.add_argument("number", type=_number, metavar="ID", help="the finding's number, as stalls shows it")
    kept.set_defaults(path="/evidence/{number}")
    commands.add_parser("token", parents=[shared], help="print a token that says for an hour who you are: curl -H "
                        '"Authorization: Bearer TOKEN"').set_defaults(path="/token", method="POST")
    nodes.add(commands, shared)
    taken = commands.add_parser("stacks", parents=[shared], help="show where a job's ranks are in their Python code")
    taken.add_argument("job", type=_job, metavar="JOB", help="123, 123_4 or, for one step, 123.0")
    taken.add_argument("--native", action="store_true",
                       help="frames of C and C++, too; this holds each process for a fraction of a second")
    taken.add_argument("--last", action="store_true", help="ask no node: show what was read last")
    taken.add_argument("--wait", type=_seconds, default=stacks.WAIT_S, metavar="SECONDS",
                       help=f"for so long nodes are waited for (default {stacks.WAIT_S:g}): they are asked when they "
                            "report next")
    taken.set_defaults(path="/runs/{job}/stacks")
    return parser


def _seconds(value: str) -> float:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 600:
        raise argparse.ArgumentTypeError(f'"{value}" is no time to wait; write seconds, 1 to 600')
    return float(value)


def _number(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise argparse.ArgumentTypeError(f'"{value}" is no finding; write its number, as astraeus stalls shows it: 17')
    return int(value)


def _job(value: str) -> str:
    if not JOB.fullmatch(value):
        raise argparse.ArgumentTypeError(f'"{value}" is no job; write 123, 123_4 or 123.0')
    return value


if __name__ == "__main__":
    sys.exit(main())
