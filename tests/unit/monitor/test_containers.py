"""A rank in a container: found among what runs the container, on real processes where the machine permits it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes.look import Ask, Memory, TaskAsk, TaskLook, look
from astraeus_monitor.talk.stopfile import write_stop

from .conftest import FakeProc
from .test_tree import see, workers

RANKED = {"PMIX_RANK": "3"}


# ---- trees as the runtimes make them


def test_apptainer_with_its_init_and_its_image_mounted_by_fuse(proc: FakeProc) -> None:
    starter = "/usr/libexec/apptainer/bin/starter"
    proc.add(10, comm="starter", exe=starter, cmd="Apptainer runtime parent: a.sif", env=RANKED)
    proc.add(11, 10, comm="squashfuse_ll", env=RANKED)
    proc.add(12, 10, comm="fuse-overlayfs", env=RANKED)
    proc.add(13, 10, comm="appinit", exe=starter, env=RANKED)
    proc.add(14, 13, comm="train.bin", exe="/opt/train.bin", env=RANKED)
    assert workers(proc, 10) == [14]


@pytest.mark.parametrize("env", [{}, RANKED], ids=["no rank", "rank"])
@pytest.mark.parametrize("entry", ["bash", "python3", "train.bin"])
def test_enroots_mounting_shell_is_no_stopped_rank(proc: FakeProc, env: dict[str, str], entry: str) -> None:
    # What enroot starts from an image: a shell that stopped itself, with the FUSE programs below it, beside the task's
    # own program (enroot has become that).
    proc.add(10, comm=entry, env=env)
    proc.add(11, 10, comm="bash", cmd="fuse-shim", state="T", env=env)
    proc.add(12, 11, comm="squashfuse", env=env)
    proc.add(13, 11, comm="fuse-overlayfs", env=env)
    if entry == "bash":
        proc.add(14, 10, comm="train.bin", env=env)
    assert workers(proc, 10) == [14 if entry == "bash" else 10]
    assert {p.pid for p in see(proc, 10).procs if p.state == "T" and p.worker} == set()


def test_a_shell_in_a_container_that_runs_nothing_else_counts(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(11, 10, comm="bash", cmd="fuse-shim", state="T")
    proc.add(12, 11, comm="squashfuse")
    assert workers(proc, 10) == [10]


# ---- real containers

WORK = ("import os, sys, time\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "stop = os.environ['ASTRAEUS_STOP_FILE']\n"
        "while not os.path.exists(stop): time.sleep(0.02)\n"
        "text = open(stop).read()\n"
        "try: os.unlink(stop)\n"
        "except OSError as fault: text += fault.strerror\n"
        "open(sys.argv[2], 'w').write(text)\n"
        "time.sleep(60)\n")
BWRAP = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-user", "--unshare-pid", "--unshare-net",
         "--unshare-ipc", "--proc", "/proc"]
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net"]


class Container:
    """A task in a container of its own namespaces, with ``jobs`` mounted as the fstab does it."""

    def __init__(self, tmp: Path, kind: str) -> None:
        self.jobs, self.out = tmp / "run" / "jobs", tmp
        (self.jobs / "7").mkdir(parents=True)
        script = tmp / "work.py"
        script.write_text(WORK)
        work = [sys.executable, str(script), str(tmp / "pid"), str(tmp / "seen")]
        if kind == "bwrap":
            self.command = [*BWRAP, "--ro-bind", str(self.jobs), str(self.jobs), *work]
        else:
            mount = f'mount --bind "{self.jobs}" "{self.jobs}" && mount -o remount,bind,ro "{self.jobs}" && exec "$@"'
            self.command = [*UNSHARE, "sh", "-c", mount, "sh", *work]
        env = {**os.environ, "RANK": "5", "ASTRAEUS_STOP_FILE": str(self.jobs / "7" / "stop")}
        self.process = subprocess.Popen(self.command, env=env, start_new_session=True, stderr=subprocess.PIPE)

    def wait(self, holds: Callable[[], object], what: str, seconds: float = 10) -> object:
        end = time.monotonic() + seconds
        while not (held := holds()):
            assert self.process.poll() is None, f"the container ended: {self.process.stderr.read()!r}"
            assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
            time.sleep(0.02)
        return held

    def read(self, name: str) -> str:
        path = self.out / name
        return path.read_text() if path.exists() else ""


def permitted(kind: str) -> str:
    """Why such a container can't be made here, or ""."""
    if shutil.which(kind) is None:
        return f"{kind} is not installed"
    probe = [*(BWRAP if kind == "bwrap" else UNSHARE), "true"]
    made = subprocess.run(probe, capture_output=True, text=True, timeout=20, check=False)
    return f"{kind} may make no namespaces here: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture(params=["bwrap", "unshare"])
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Container]:
    why = permitted(request.param)
    if why:
        pytest.skip(why)
    made = Container(tmp_path, request.param)
    yield made
    os.killpg(made.process.pid, signal.SIGKILL)
    made.process.wait(5)
    made.process.stderr.close()


def test_a_rank_in_namespaces_of_its_own_is_found_and_sees_its_stop_file(container: Container) -> None:
    container.wait(lambda: container.read("pid"), "the work began")
    task = container.process.pid
    stat = Proc().stat(task)
    assert stat
    ask = Ask(7, [TaskAsk("0", 5, task, stat.start)], [], time.clock_gettime(time.CLOCK_BOOTTIME), {}, {})
    seen = next(line for line in look(Proc(), ask, Memory()) if isinstance(line, TaskLook))
    assert seen.faults == []
    found = [p for p in seen.procs if p.worker]
    assert [p.rank for p in found] == ["RANK=5"]
    # The PID is the machine's own; inside it is another one.
    assert found[0].exe.startswith("python")
    assert Path(f"/proc/{found[0].pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split() == [
        str(found[0].pid), container.read("pid")]

    write_stop(container.jobs / "7", os.getuid(), {"cause": "stalled", "reason": "nothing came"})
    text = container.wait(lambda: container.read("seen"), "the stop file was seen inside")
    assert text == "cause: stalled\nreason: nothing came\nRead-only file system"
    shutil.rmtree(container.jobs / "7")  # as Epilog does, while a container still has the folder
    assert list(container.jobs.iterdir()) == []
    assert container.process.poll() is None
