"""What the output files of a job have said: which of them are to be read on, whose words they hold. Pure.

A file is known by its inode: a log that was renamed goes on, another one at its old path begins at 0. Words in a file
that one worker alone writes are the worker's; those in one that several share are the step's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from astraeus_protocol import report

from ..host.tree import Identity
from ..host.userfile import MAX_HOLDERS
from ..probes.follow import Counted, FileAsk, FileRead, FollowAsk
from ..probes.look import File
from ..sources.chatter import Chatter
from ..sources.finished import shown
from ..sources.heard import Heard, said
from ..sources.nccl_log import ABORTED, RANKING, STUCK, joined
from .step import StepWatch, integer

if TYPE_CHECKING:
    from .job import JobWatch

MAX_FILES = 256
PATTERN_MISSES = 3
"""So many looks in a row that patterns made late, and they are no longer asked."""
SHARED = "steps of the job share one output file: whose words they are is not known"
NO_INODE = "this kernel tells no inodes of open files (Linux 5.14 does): output files are not read on"
DECISIVE = (STUCK, ABORTED)
Owner = tuple[str, int | None]
"""Step, and the rank that alone writes there."""


class FileLog(msgspec.Struct):
    """One file."""

    path: str
    owner: Owner
    offset: int | None = None
    before: bytes = b""
    positions: tuple[int, ...] | None = None
    """Of its holders at the look up to which it was read."""
    behind: bool = False
    rest: bool = False
    words: dict[str, Heard] = {}
    skipped: int = 0
    fault: str = ""
    chatter: Chatter | None = None
    read_at: float = 0.0
    passed_over: bool = False
    """It grew at the look before, and was left for the next one."""
    waits: bool = False
    """Nothing of it was read the last time, for others took all the time there was: it comes first."""


class Held(msgspec.Struct):
    """A file as a look found it."""

    path: str
    owner: Owner
    holders: list[Identity]
    positions: tuple[int, ...]


class JobLogs:
    """The output files of one job here. ``site``: lines that are no progress anywhere."""

    def __init__(self, site: tuple[str, ...] = ()) -> None:
        self.site = site
        self.files: dict[int, FileLog] = {}
        self.inodes: dict[str, int] = {}
        """Path to the inode that was there last."""
        self.shared: set[str] = set()
        """Steps whose file others of the job write, too."""
        self.nameless: set[str] = set()
        """Steps with a file of which the kernel tells no inode."""
        self.late = 0
        self.pattern_fault = ""
        self.news = False

    @property
    def behind(self) -> bool:
        """There is more to read, whether it grows or not."""
        return any(log.behind for log in self.files.values())

    def patterns(self, job: JobWatch, step: StepWatch) -> tuple[str, ...]:
        """Lines that are no progress of a step."""
        own = step.facts.get("ignore_output") or job.facts.get("ignore_output")
        return () if self.late >= PATTERN_MISSES else self.site + ((unquote(own),) if own else ())

    # -- asking

    def ask(self, job: JobWatch, now: float, *, looked: bool = True) -> FollowAsk | None:
        """What is to be read on. ``looked``: a look has just told how the files stand."""
        asks, held = [], self._held(job)
        for ino, one in held.items():
            log = self.files.get(ino)
            if log is None:
                first = self.inodes.get(one.path) in (None, ino)
                log = self.files[ino] = FileLog(one.path, one.owner, None if first else 0)
            if log.owner[0] != one.owner[0]:
                log.words = {}
            self.inodes[one.path], log.path, log.owner = ino, one.path, one.owner
            moved = looked and log.positions != one.positions
            if not (moved or log.behind or (looked and log.rest)):
                continue
            ignore = self.patterns(job, step := job.steps[one.owner[0]])
            # Of a file that grows and grows each second look is enough: its end is read once it stands still.
            unsure = log.behind or log.passed_over or ignore or log.words
            log.passed_over = bool(moved and log.positions and not unsure)
            if log.passed_over:
                continue
            asks.append(FileAsk(
                ino, one.path, one.holders, log.offset, max(one.positions), log.before,
                settle=looked and not moved and not log.behind, ignore=ignore,
                tasks=integer(step.facts.get("tasks"), 1) if one.owner[1] is None else 0))
            log.positions = one.positions if looked else log.positions
        unheld = [ino for ino in self.files if ino not in held]
        for ino in unheld:
            self.files[ino].fault, self.files[ino].behind = "", False
        for ino in unheld[:max(0, len(self.files) - MAX_FILES)]:
            self.inodes.pop(self.files.pop(ino).path, None)
        asks.sort(key=lambda one: not self.files[one.ino].waits)
        uid = integer(job.facts.get("uid"), -1)
        return FollowAsk(uid, now, asks) if asks and uid >= 0 else None

    def _held(self, job: JobWatch) -> dict[int, Held]:
        found: dict[int, list[Held]] = {}
        self.nameless = set()
        for step, rank, files, holders in outputs(job):
            for file in files:
                if not file.ino:  # all of them would be one file
                    self.nameless.add(step.step)
                    continue
                found.setdefault(file.ino, []).append(Held(
                    file.path, (step.step, rank), holders[:MAX_HOLDERS], (file.pos,)))
        self.shared = set()
        whole: dict[int, Held] = {}
        for ino, many in found.items():
            # What an srun of the job writes into the batch script's file is its step's.
            some = [one for one in many if one.owner[0] != "batch"] or many
            steps = {one.owner[0] for one in some}
            if len(steps) > 1:
                self.shared |= steps
                continue
            first = next((one for one in some if one.owner[1] is None), some[0])
            if len({one.owner[1] for one in some}) > 1:
                first.owner = first.owner[0], None
            first.positions = tuple(sorted({pos for one in some for pos in one.positions}))
            whole[ino] = first
        return dict(list(whole.items())[:MAX_FILES])

    def put_off(self, one: FileAsk) -> None:
        """It was not asked for after all."""
        self.files[one.ino].positions, self.files[one.ino].waits = None, True

    def miss(self, ask: FollowAsk, why: str) -> None:
        """Nobody could be asked."""
        for one in ask.files:
            self.put_off(one)
            self.files[one.ino].fault = shown(why)

    # -- answers

    def take(self, ask: FollowAsk, answers: Iterable[FileRead | Counted], now: float,
             why: str) -> dict[int, bool | None]:
        """Take answers in; for each file with patterns whether what came counts as output, None while undecided."""
        reads = {one.ino: one for one in answers if isinstance(one, FileRead)}
        counted = {one.ino: one for one in answers if isinstance(one, Counted)}
        fresh: dict[int, bool | None] = {}
        faults = []
        for one in ask.files:
            log = self.files.get(one.ino)
            if log is None:
                continue
            read = reads.get(one.ino)
            if read is None:
                log.positions, log.fault = None, shown(why or "no answer")
            elif read.fault:
                log.positions, log.fault, log.behind = None, shown(read.fault), False
            else:
                self._read(log, read, now)
            if one.ignore:
                count = counted.get(one.ino)
                fresh[one.ino] = _counts(one, read, count)
                faults.append(count.fault if count else "it takes too long" if len(reads) == len(ask.files) else why)
        if faults:
            worst = next(filter(None, faults), "")
            self.late = 0 if not worst or counted else self.late + (len(reads) == len(ask.files))
            self.pattern_fault = shown(worst)
        return fresh

    def _read(self, log: FileLog, read: FileRead, now: float) -> None:
        log.waits = read.behind and read.offset == log.offset
        log.offset, log.before, log.behind, log.rest, log.fault = read.offset, read.before, read.behind, read.rest, ""
        log.skipped += max(0, read.skipped)
        log.chatter, log.read_at = read.chatter, now
        if read.restarted:  # an agent says it in its file, its workers have theirs
            for other in self.files.values():
                if other.owner[0] == log.owner[0]:
                    other.words = {}
            self.news = True
        for word in read.words:
            if word.kind not in RANKING:
                continue
            word = msgspec.structs.replace(word, line=word.line[:400])
            heard = log.words.get(word.kind)
            if heard is None:
                log.words[word.kind] = Heard(word, now, now)
                self.news |= word.kind in DECISIVE
            else:
                heard.word, heard.last = joined(heard.word, word), now

    # -- the report

    def tell(self, step: report.Step, now: float) -> None:
        """Add to a step's record what its files said."""
        mine = [log for log in self.files.values() if log.owner[0] == step.step]
        if step.ended:
            return
        step.said = said((log.words for log in mine if log.owner[1] is None), now)
        for worker in step.workers:
            worker.said = said((log.words for log in mine if log.owner[1] == worker.rank), now)
        found = [log for log in mine if log.chatter]
        if found:
            newest = max(found, key=lambda log: log.read_at)
            others = [(log.chatter.other_s if log.chatter else 0.0) + now - log.read_at for log in mine if log.read_at]
            assert newest.chatter
            step.chatter = report.Chatter(shown(newest.chatter.line), newest.chatter.every_s, round(min(others), 2))
        faults = dict.fromkeys(log.fault for log in mine if log.fault)
        skipped = sum(log.skipped for log in mine)
        if skipped:
            faults[f"the output grew faster than it is read: {skipped >> 20} MiB of it were left out"] = None
        if step.step in self.shared:
            faults[SHARED] = None
        if step.step in self.nameless:
            faults[NO_INODE] = None
        step.unknown = [*step.unknown, *(report.Unknown("nccl_log", why) for why in faults)]
        if self.pattern_fault:
            step.unknown.append(report.Unknown("ignore_output", f"all output counts: {self.pattern_fault}"))

    def marks(self) -> list[object]:
        """What is told at once when it changes."""
        return sorted((log.owner[0], str(log.owner[1]), kind) for log in self.files.values() for kind in log.words
                      if kind in DECISIVE)

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"files": {str(ino): msgspec.to_builtins(log) for ino, log in self.files.items()},
                "late": self.late, "pattern_fault": self.pattern_fault}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        for ino, log in saved["files"].items():
            found = self.files[int(ino)] = msgspec.convert(log, FileLog)
            self.inodes[found.path] = int(ino)
            found.positions = None  # what was asked when the monitor was killed has no answer: it is read on again
        self.late, self.pattern_fault = int(saved["late"]), str(saved["pattern_fault"])


def _counts(one: FileAsk, read: FileRead | None, count: Counted | None) -> bool | None:
    """Whether what came is output; None while that is open. What could not be read counts: bytes came."""
    if read is None or count is None or read.fault or read.skipped or one.offset is None or count.fresh:
        return True
    return None if read.behind or (count.undecided and read.rest) else False


def outputs(job: JobWatch) -> Iterator[tuple[StepWatch, int | None, list[File], list[Identity]]]:
    """Files of a job's running tasks and sruns: (step, rank, files, holders); rank None: they are the step's."""
    for step in job.steps.values():
        if not step.running:
            continue
        if step.files and step.holders:
            yield step, None, step.files, step.holders
        for worker in step.workers.values():
            if worker.running and worker.files and worker.tree:
                yield step, worker.rank, worker.files, worker.tree


def take(job: JobWatch, ask: FollowAsk, answers: list[FileRead | Counted], now: float, why: str) -> None:
    """Take in what a job's files said, and whether what was held back counts as output."""
    count(job, job.logs.take(ask, answers, now, why))


def count(job: JobWatch, fresh: dict[int, bool | None]) -> None:
    """What was held back counts, or does not, by what is told of its files; it counts where none is read on."""
    for step in job.steps.values():
        for growth, files in [(step.growth, step.files), *((w.growth, w.files) for w in step.workers.values())]:
            told = [fresh[file.ino] for file in files if file.ino in fresh]
            if growth.held is None:
                continue
            if any(told) or not told:
                step.grow(growth, growth.held, hold=False)
            if None not in told or any(told):
                growth.held = None
