"""``astraeus-controller``: run, record FILE, replay FILE, config check."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from astraeus_protocol import VERSION
from astraeus_protocol.signing import KeyFault

from . import config as config_module
from . import recording, running
from .config import Config, ConfigFault
from .history.database import StoreFault
from .peer import SocketFault
from .replay import replay
from .service import ServiceFault
from .trust.drop import DropFault

FAULTS = (ConfigFault, KeyFault, StoreFault, ServiceFault, SocketFault, DropFault, recording.RecordingFault)


class Formatter(logging.Formatter):
    """One line per happening, whatever its text holds."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        head, *trace = text.split("\nTraceback", 1)
        plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in head)
        return "\nTraceback".join([plain, *trace])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit status."""
    args = _parser().parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        return int(args.do(args) or 0)
    except FAULTS as fault:
        print(f"astraeus-controller: {fault}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="astraeus-controller", description="Finds stalled jobs in the monitors' reports and acts on them.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--config", type=Path, default=config_module.PATH, metavar="FILE",
                        help=f"settings (default {config_module.PATH})")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the controller")
    run.set_defaults(do=_run)
    record = commands.add_parser("record", help="run it and keep every report and Slurm's word in FILE")
    record.add_argument("file", type=Path)
    record.set_defaults(do=_record)
    again = commands.add_parser("replay", help="run a recording through the rules and print what they find")
    again.add_argument("file", type=Path)
    again.set_defaults(do=_replay)
    settings = commands.add_parser("config", help="look at the settings")
    check = settings.add_subparsers(required=True, metavar="WHAT").add_parser("check", help="read and check them")
    check.set_defaults(do=_check)
    for one in (run, record, again, check):
        one.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="settings")
    return parser


def _load(args: argparse.Namespace) -> Config:
    if args.config != config_module.PATH and not args.config.exists():
        raise ConfigFault(f"can't read {args.config}: no such file")
    return config_module.load(args.config)


def _run(args: argparse.Namespace) -> None:
    running.run(_load(args))


def _record(args: argparse.Namespace) -> None:
    config = _load(args)
    toml = args.config.read_text(encoding="utf-8") if args.config.exists() else ""
    try:
        descriptor = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise ServiceFault(f"can't make the recording {args.file}: {fault.strerror}") from None
    with open(descriptor, "w", buffering=1, encoding="utf-8") as file:
        running.run(config, file, toml)


def _replay(args: argparse.Namespace) -> None:
    config = _load(args) if args.config != config_module.PATH else None
    try:
        with open(args.file, encoding="utf-8") as lines:
            for found in replay(lines, config):
                print(msgspec.json.encode(found).decode())
    except (OSError, UnicodeDecodeError) as fault:
        raise recording.RecordingFault(f"can't read {args.file}: {fault}") from None


def _check(args: argparse.Namespace) -> None:
    config = _load(args)
    where = args.config if args.config.exists() else "no file, so the defaults"
    print(f"{where}: in order; mode {config.watch.mode}, stalled after {config.watch.stall_after}, "
          f"action {config.watch.stall_action}")


if __name__ == "__main__":
    sys.exit(main())
