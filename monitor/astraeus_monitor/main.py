"""``astraeus-monitor run``: the node's monitor; ``read``: one source, once."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
from pathlib import Path

from astraeus_protocol import VERSION

from . import config as configs
from .config import Config
from .host.procfs import Proc
from .lock import Lock
from .log import say, say_once
from .loop import Monitor
from .notify import Watchdog

USAGE = """usage: astraeus-monitor run [options]
       astraeus-monitor read output PATH... [--json] [--watch SECONDS]
       astraeus-monitor read metric URL NAME [--json] [--watch SECONDS]
       astraeus-monitor read nccl_log PATH [--json] [--watch SECONDS]
       astraeus-monitor read nccl_ras [--address HOST:PORT] [--json] [--watch SECONDS]
       astraeus-monitor read process PID [--json] [--watch SECONDS]
       astraeus-monitor read rail [--sysfs DIR] [--json] [--watch SECONDS]
       astraeus-monitor read gpu [--json] [--watch SECONDS]
       astraeus-monitor config | --version | --help

run        watch the jobs that Prolog hands over in the state directory, and report to the controller
read       read a source once and print what the monitor would report; 3: unknown, and why
config     print every key of the [monitor] table with its default

options of read:
  --json             as JSON
  --watch SECONDS    look a second time so many seconds later, and say whether it changed
  --sysfs DIR        a tree instead of /sys, or a copy of class/infiniband

  --address HOST:PORT  an NCCL RAS; one that is named is asked whatever its version

options of run:
  --config PATH      configuration (/etc/astraeus/astraeus.toml)
  --state-dir PATH   state directory instead of the configured one
  --proc PATH        a proc tree instead of /proc, for tests
  --print            print reports as JSON lines instead of sending them
  --once             leave after the first report that was received or printed
"""


class UsageFault(Exception):
    """The command line can't be used; the text says what to write."""


def main(argv: list[str] | None = None) -> int:
    """Entry point of the console script; its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        match words[:1]:
            case ["run"]:
                return run(_options(words[1:]))
            case ["read"]:
                return _read(words[1:])
            case ["config"]:
                print(table())
                return 0
            case ["--version"]:
                print(f"astraeus-monitor {VERSION}")
                return 0
            case ["--help" | "-h" | "help"]:
                print(USAGE, end="")
                return 0
            case _:
                raise UsageFault("write astraeus-monitor run, or --help for all options")
    except UsageFault as fault:
        print(f"astraeus-monitor: {fault}", file=sys.stderr)
        return 2


def _read(words: list[str]) -> int:
    from .reading import read

    try:
        return read.main(words)
    except read.ReadFault as fault:
        raise UsageFault(str(fault)) from None


def run(options: dict[str, str]) -> int:
    """The daemon. 0: left in good order; 1: it can't work here."""
    path = Path(options.get("config", str(configs.PATH)))

    def load() -> Config | None:
        try:
            read = configs.load(path)
        except configs.ConfigFault as fault:
            say_once("config", str(fault))
            return None
        if "state-dir" in options:
            read = Config(**{**{f: getattr(read, f) for f in read.__struct_fields__},
                             "state_dir": options["state-dir"]})
        if not read.controller and "print" not in options:
            say_once("config", f'{path}: [monitor] names no controller; write controller = "http://HOST:6831"')
            return None
        say_once("config", "")
        return read

    config = load()
    retry = load if config is None and "print" not in options else None
    config = config or Config(state_dir=options.get("state-dir", Config().state_dir))
    under_systemd = "NOTIFY_SOCKET" in os.environ or "INVOCATION_ID" in os.environ
    monitor = Monitor(config, proc=Proc(options.get("proc", "/proc")), reload=retry,
                      printer=_print if "print" in options else None, stays=under_systemd)
    lock = Lock(monitor.state_dir / "monitor.lock")
    try:
        monitor.state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not lock.take():
            # A unit that left would be started again by its path unit at once, five times, and never more.
            say(f"another monitor holds {lock.path}: this one {'waits for its end' if under_systemd else 'leaves'}")
            if not under_systemd:
                return 0
            lock.take(wait=True)
        monitor.open()  # with the lock: a second reader of the FIFO would take what is meant for the first
    except OSError as fault:
        say(f"can't work in {monitor.state_dir}: {fault.strerror}; run as root, or give --state-dir")
        return 1
    _catch_signals(monitor)
    watchdog = Watchdog()
    watchdog.ready()
    gc.collect()
    gc.freeze()  # children share what was there before they were forked
    say(f"monitor {VERSION} watches {monitor.state_dir}")

    def until() -> bool:
        watchdog.alive()
        return "once" in options and monitor.reports > 0
    monitor.run(lock, until)
    return 0


def table() -> str:
    """The [monitor] table with every key, its default and its meaning, as TOML."""
    lines = ["[monitor]"]
    for key in configs.KEYS:
        bounds = f" ({key.low:g} to {key.high:g})" if key.high else ""
        value = (f'"{key.default}"' if key.kind is str else "[]" if key.kind is tuple
                 else f"{key.default}".lower())
        lines += [f"# {key.help}{bounds}", f"{key.name} = {value}"]
    return "\n".join(lines)


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        name, sep, value = words.pop(0).partition("=")
        match name:
            case "--print" | "--once":
                found[name[2:]] = "1"
            case "--config" | "--state-dir" | "--proc":
                if not sep and not words:
                    raise UsageFault(f"{name} needs a path")
                found[name[2:]] = value if sep else words.pop(0)
            case _:
                raise UsageFault(f"run has no option {name}; see --help")
    return found


def _print(body: bytes) -> None:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()


def _catch_signals(monitor: Monitor) -> None:
    """TERM and INT end the loop in good order; CONT is Prolog's: a job is there."""
    def stop(number: int, frame: object) -> None:
        monitor.stop()

    def wake(number: int, frame: object) -> None:
        monitor.wake()

    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    monitor.selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 64))
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGCONT, wake)


if __name__ == "__main__":
    sys.exit(main())
