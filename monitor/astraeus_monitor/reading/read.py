"""``astraeus-monitor read SOURCE …``: reads one source once and prints what the monitor would report.

An admin's first tool on a strange node. 0: there is a reading; 3: unknown, and why; 2: the command line can't be used.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from astraeus_protocol import report

from ..clock import Clock
from ..host.procfs import Proc
from ..host.textfile import Unreadable, why_of
from ..probes.follow import FileAsk, Followed, read_on
from ..probes.scrape import FETCH_S, Fetch, MetricLook, fetch_all, read
from ..sources.metric import MetricClock
from ..sources.nccl_log import RANKING, Word, joined
from ..sources.nccl_ras import RasWatch
from . import read_gpu, read_output, read_rail, read_ras
from .read_process import ProcessReading, process, text

UNKNOWN = 3
LOOPBACK = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
WATCH_MAX_S = 3600
PATHS_MAX = 256


class ReadFault(Exception):
    """The words can't be used; the message says what to write."""


class Words(msgspec.Struct, tag="words", omit_defaults=True):
    """What a log says of a collective; None: nothing."""

    word: Word | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """What is printed with ``--json``: the reading, or why there is none."""

    source: str
    reading: (report.Metric | Words | ProcessReading | read_output.Outputs | read_rail.RailReading | read_gpu.Gpus
              | read_ras.RasReading | None) = None
    unknown: str = ""


def main(words: list[str]) -> int:
    """Exit status. Raises ReadFault."""
    words, address = _address(words)
    as_json, watch_s, sysfs, words = _options(words)
    if sysfs and words[:1] != ["rail"]:
        raise ReadFault("--sysfs is for read rail; write read rail --sysfs DIR")
    match words:
        case ["metric", url, name]:
            answer = metric(url, name, watch_s, Clock().boot, time.sleep)
        case ["nccl_log", path]:
            answer = nccl_log(path, watch_s, time.sleep)
        case ["nccl_ras"]:
            answer = nccl_ras(address, watch_s, Clock().boot, time.sleep)
        case ["nccl_ras", *_]:
            raise ReadFault("write read nccl_ras --address HOST:PORT, such as read nccl_ras --address localhost:28028")
        case ["process", pid]:
            answer = _process(pid, watch_s)
        case ["gpu"]:
            answer = Answer("gpu", *read_gpu.read(watch_s, Clock()))
        case ["gpu", *_]:
            raise ReadFault("write read gpu, without anything behind it: all GPUs of the node are read")
        case ["output", _, *_]:
            answer = output(words[1:], watch_s, Proc(), time.sleep)
        case ["rail"]:
            told = read_rail.as_configured(sysfs, watch_s)
            answer = Answer("rail", unknown=told) if isinstance(told, str) else Answer("rail", reading=told)
        case ["output"]:
            raise ReadFault("write read output PATH, such as read output /home/alice/slurm-42.out")
        case ["metric", *_]:
            raise ReadFault("write read metric URL NAME, such as read metric http://127.0.0.1:9000/metrics step")
        case _:
            raise ReadFault("write read output PATH, read metric URL NAME, read nccl_log PATH, read nccl_ras, "
                            "read process PID, read rail, or read gpu")
    print(msgspec.json.encode(answer).decode() if as_json else _text(answer))
    return UNKNOWN if answer.unknown else 0


def metric(url: str, name: str, watch_s: float, now: Callable[[], float], sleep: Callable[[float], None]) -> Answer:
    """One look at an endpoint, or two ``watch_s`` seconds apart; whose it is is not asked. Raises ReadFault."""
    host, port = _place(url)
    clock = MetricClock(name, now())
    for pause in (0.0, watch_s) if watch_s else (0.0,):
        sleep(pause)
        look = MetricLook("-", 0)
        try:
            fetch = Fetch(host, port)
            fetch_all([fetch], FETCH_S)
            read(look, fetch.body(), [name])
            clock.see(look.found[name], 0, look.holder, look.born, now())
        except (Unreadable, OSError) as fault:
            clock.miss(why_of(fault, f"port {port}"))
        if clock.why:
            return Answer("metric", unknown=clock.why)
    return Answer("metric", reading=clock.record(now()))


def nccl_log(path: str, watch_s: float, sleep: Callable[[float], None]) -> Answer:
    """A log from its beginning, and once more what came within ``watch_s`` seconds, as the monitor follows it."""
    words: dict[str, Word] = {}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return Answer("nccl_log", unknown=f"{path} is no regular file")
            file, ask = Followed(), FileAsk(0, path, [], offset=0)
            for pause in (0.0, watch_s) if watch_s else (0.0,):
                sleep(pause)
                behind = True
                while behind:
                    read = read_on(fd, ask, file, 0.0, skips=False)
                    words = merged({} if read.restarted else words, read.words)
                    behind, ask.offset, ask.before = read.behind, read.offset, read.before
            ask.settle = True
            words = merged(words, read_on(fd, ask, file, 0.0).words)
        finally:
            os.close(fd)
    except OSError as fault:
        return Answer("nccl_log", unknown=f"{path}: {fault.strerror}")
    return Answer("nccl_log", reading=Words(next((words[kind] for kind in RANKING if kind in words), None)))


def nccl_ras(address: str, watch_s: float, now: Callable[[], float], sleep: Callable[[float], None]) -> Answer:
    """One answer, or two ``watch_s`` seconds apart: then for how long counts stood still is known. Raises ReadFault."""
    found = read_ras.places(address) if address else []
    if isinstance(found, str):
        raise ReadFault(found)
    watch, said = RasWatch(), None
    for pause in (0.0, watch_s) if watch_s else (0.0,):
        sleep(pause)
        watch.see(read_ras.ask(found) if found else read_ras.here(Proc()), now())
        said = watch.record(now())
    assert said is not None
    return Answer("nccl_ras", unknown=said.unknown) if said.unknown else Answer(
        "nccl_ras", reading=read_ras.RasReading(said))


def merged(words: dict[str, Word], more: list[Word]) -> dict[str, Word]:
    """The first of each class."""
    return words | {word.kind: joined(words.get(word.kind), word) for word in more}


def _process(pid: str, watch_s: float) -> Answer:
    """Raises ReadFault."""
    if not pid.isascii() or not pid.isdigit() or len(pid) > 9 or int(pid) == 0:
        raise ReadFault(f"{pid} is no process id; write a number, such as read process 4242")
    found = process(int(pid), watch_s, Proc(), Clock())
    return Answer("process", unknown=found) if isinstance(found, str) else Answer("process", reading=found)


def output(paths: list[str], watch_s: float, proc: Proc, sleep: Callable[[float], None]) -> Answer:
    """Each path; unknown where one of them is."""
    if len(paths) > PATHS_MAX:
        raise ReadFault(f"{len(paths)} paths are too many; write {PATHS_MAX} at most")
    found = read_output.read(paths, watch_s, proc, sleep)
    return Answer("output", found, next((one.unknown for one in found.files if one.unknown), ""))


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        raise ReadFault(f"{url} is no address; write http://127.0.0.1:PORT/metrics") from None
    if parts.scheme != "http" or parts.hostname not in LOOPBACK or parts.path not in ("", "/", "/metrics"):
        raise ReadFault(f"{url}: only /metrics on loopback by http is read; write http://127.0.0.1:PORT/metrics")
    return LOOPBACK[parts.hostname], port


def _text(answer: Answer) -> str:
    if answer.reading is None:
        return f"{answer.source}: unknown: {answer.unknown}"
    reading = answer.reading
    if isinstance(reading, read_output.Outputs):
        return read_output.text(reading)
    if isinstance(reading, read_rail.RailReading):
        return read_rail.text(reading)
    if isinstance(reading, read_gpu.Gpus):
        return read_gpu.text(reading)
    if isinstance(reading, read_ras.RasReading):
        return read_ras.text(reading.ras)
    if isinstance(reading, Words):
        return _of_word(reading.word)
    if isinstance(reading, ProcessReading):
        return text(reading)
    return f"{answer.source}: {reading.name} {reading.value:.10g}, unchanged for {reading.unchanged_s:.0f} s"


def _of_word(word: Word | None) -> str:
    if word is None:
        return "nccl_log: nothing is said of a collective"
    numbers = (("rank {}", word.rank), ("{}", word.op or None), ("seq {}", word.seq), ("ran for {} ms", word.ran_ms),
               ("enqueued {}", word.enqueued), ("completed {}", word.completed),
               ("missing: {}", ", ".join(map(str, word.ranks)) or None))
    what = ", ".join(form.format(value) for form, value in numbers if value is not None)
    return "\n  ".join([f"nccl_log: {word.kind} ({word.stack})" + (f": {what}" if what else ""), word.line])


def _address(words: list[str]) -> tuple[list[str], str]:
    """The other words, and --address of ``read nccl_ras``; "" where none is given."""
    address, rest, queue = "", [], list(words)
    while queue:
        name, sep, value = queue.pop(0).partition("=")
        if name == "--address" and "nccl_ras" in words:
            address = value if sep else queue.pop(0) if queue else "nothing"
        else:
            rest.append(name + sep + value)
    return rest, address


def _options(words: list[str]) -> tuple[bool, float, str, list[str]]:
    as_json, watch_s, sysfs, rest = False, 0.0, "", []
    queue = list(words)
    while queue:
        name, sep, value = queue.pop(0).partition("=")
        if name == "--json":
            as_json = True
        elif name == "--watch":
            value = value if sep else queue.pop(0) if queue else ""
            if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= WATCH_MAX_S:
                raise ReadFault(f"--watch takes seconds from 1 to {WATCH_MAX_S}, such as --watch 15")
            watch_s = float(value)
        elif name == "--sysfs":
            sysfs = value if sep else queue.pop(0) if queue else ""
            if not sysfs:
                raise ReadFault("--sysfs takes a folder, such as --sysfs /sys")
        elif name.startswith("--"):
            raise ReadFault(f"read has no option {name}; write --json or --watch SECONDS")
        else:
            rest.append(name + sep + value)
    return as_json, watch_s, sysfs, rest
