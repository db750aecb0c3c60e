"""Builds the plugin and its test host once, and plays hooks: what ``spank/testhost.c`` answers, as objects."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from astraeus_protocol.jobfile import parse_step_lines

SPANK = Path(__file__).parents[1] / "spank"
BATCH, EXTERN, INTERACTIVE = 0xFFFFFFFB, 0xFFFFFFFC, 0xFFFFFFFA
START = ("slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_user_init")


@functools.cache
def built(testing: bool = True) -> Path:
    """Folder with astraeus.so and testhost; skips where there is no compiler or no spank.h.

    Beside the plugin's own build folder, one for all processes that run tests: what is up to date is not built again.
    """
    if not shutil.which("gcc") or not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs gcc and Slurm's spank.h (package libslurm-dev)")
    if os.access(SPANK, os.W_OK):
        folder = SPANK / "build" / ("testing" if testing else "plain")
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="astraeus-spank-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    flags = ["TESTING=1"] if testing else []
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", SPANK, f"BUILD={folder}", *flags, "all", f"{folder}/testhost"], check=True,
                       timeout=120)
    return folder


@dataclass
class Answers:
    """What the host said, sorted by word."""

    codes: dict[str, int] = field(default_factory=dict)
    nanoseconds: dict[str, int] = field(default_factory=dict)
    options: list[tuple[str, int]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    control: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    parsed: list[tuple[str, str]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    load_ns: int = 0

    @property
    def rejected(self) -> bool:
        return any(code != 0 for _, code in self.options)


def play(commands: Iterable[tuple[object, ...]], environment: dict[str, str] | None = None,
         timeout: float = 20) -> Answers:
    """Run the host over ``commands``; each is a tuple of words (bytes stay bytes)."""
    script = "".join("\t".join([str(c[0]), *map(_encoded, c[1:])]) + "\n" for c in commands)
    done = subprocess.run(
        [built() / "testhost", built() / "astraeus.so"],
        input=script, text=True, capture_output=True, timeout=timeout, check=False,
        env={"PATH": os.environ["PATH"], **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    answers = Answers()
    for line in done.stdout.splitlines():
        _sort(answers, line.split("\t"))
    return answers


def _encoded(word: object) -> str:
    return quote(word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape"), safe="")


def _sort(answers: Answers, words: list[str]) -> None:
    match words:
        case ["rc", hook, code, nanoseconds]:
            answers.codes[hook] = int(code)
            answers.nanoseconds[hook] = max(int(nanoseconds), answers.nanoseconds.get(hook, 0))
        case ["option", name, code]:
            answers.options.append((name, int(code)))
        case ["option", *row]:
            answers.rows.append([unquote(word) for word in row])
        case ["env", name, value]:
            answers.env[unquote(name)] = unquote(value)
        case ["control", name, value]:
            answers.control[unquote(name)] = unquote(value)
        case ["value" | "reason" as word, text]:
            answers.parsed.append((word, unquote(text, errors="surrogateescape")))
        case ["log", level, text]:
            answers.logs.append(unquote(text))
            if level == "error":
                answers.errors.append(unquote(text, errors="surrogateescape"))
        case ["loaded", nanoseconds]:
            answers.load_ns = int(nanoseconds)
        case ["fds", count]:
            answers.descriptors.append(int(count))
        case _:
            raise AssertionError(words)


def typed(*options: tuple[str, ...], context: str = "allocator",
          environment: dict[str, str] | None = None) -> Answers:
    """``sbatch`` (or srun, with context ``local``) with these options; stops at the first that is refused."""
    commands: list[tuple[object, ...]] = [("context", context), ("call", "slurm_spank_init")]
    commands += [("option", *option) for option in options]
    checked = play(commands, environment)
    if checked.rejected:
        return checked
    return play([*commands, ("call", "slurm_spank_init_post_opt"), ("show-control",)], environment)


def node_step(job: int = 123, step: int = 0, *, uid: int = 1001, nodes: int = 1, node_id: int = 0,
              tasks: int = 1, local_tasks: int = 1, restarts: int = 0,
              env: dict[str, str] | None = None) -> list[tuple[object, ...]]:
    """Commands that make a slurmstepd of this step."""
    items = {
        "S_JOB_ID": job, "S_JOB_STEPID": step, "S_JOB_UID": uid, "S_JOB_GID": uid,
        "S_JOB_NNODES": 0 if step == BATCH else nodes, "S_JOB_NODEID": node_id,
        "S_JOB_LOCAL_TASK_COUNT": local_tasks, "S_JOB_TOTAL_TASK_COUNT": tasks,
        "S_SLURM_RESTART_COUNT": restarts,
    }
    commands: list[tuple[object, ...]] = [("context", "remote")]
    commands += [("item", name, value) for name, value in items.items()]
    commands += [("env", name, value) for name, value in (env or {}).items()]
    return commands


def task(rank: int, local: int, pid: int) -> list[tuple[object, ...]]:
    """Commands that make the hooks that follow those of one task."""
    return [("item", "S_TASK_GLOBAL_ID", rank), ("item", "S_TASK_ID", local), ("item", "S_TASK_PID", pid)]


def started(*options: tuple[str, ...]) -> list[tuple[object, ...]]:
    """The hooks up to the first task, the options called as slurmstepd calls them."""
    init, post, user = START
    return [("call", init), *(("option", *o) for o in options), ("call", post), ("call", user)]


def handed_over(state: Path, job: int = 123, **values: object) -> Path:
    """A job as Prolog hands it over."""
    folder = state / "jobs" / str(job)
    folder.mkdir(mode=0o711)
    pairs = {"v": 1, "job": job, "by": "prolog", **values}
    (folder / "job").write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return folder


def on_node(state: Path, commands, start_monitor: Path | None = None, timeout: float = 20):
    environment = {"ASTRAEUS_STATE_DIR": str(state), "SLURMD_NODENAME": "c1",
                   "ASTRAEUS_START_MONITOR": str(start_monitor or "/nonexistent")}
    answers = play(commands, environment, timeout)
    assert set(answers.codes.values()) <= {0}
    assert all(code == 0 for _, code in answers.options)
    return answers


def lines(folder: Path, step: str = "0") -> list[tuple[str, dict[str, str]]]:
    text = (folder / "steps" / step).read_text()
    assert all(len(line) < 512 for line in text.split("\n"))
    return list(parse_step_lines(text))


def start_ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
