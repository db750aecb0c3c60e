"""A node in a folder: state directory, key, settings, fake driver, ranks; and the real Prolog and monitor."""

from __future__ import annotations

import compileall
import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path

from astraeus_monitor.host.infiniband import COUNTERS
from astraeus_protocol import VERSION
from prolog_host import EPILOG, PROLOG, SHELL, START_MONITOR
from slurm_test_cluster.waiting import wait_for

from .sink import Sink

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
NOBODY = 65534
GPUS, RAILS, SOCKETS, LINKS = 8, 8, 16, 8
THREADS_MIN, THREADS_MAX = 7, 60
"""Threads of the first rank and of the last: those of a small PyTorch rank and of one with many loaders."""


class Node:
    """Use as a context: everything that it made, and every process that it started, goes at its end."""

    def __init__(self) -> None:
        memory = next((path for path in ("/dev/shm", "/tmp") if os.access(path, os.W_OK)), None)
        self.home = Path(tempfile.mkdtemp(prefix="astraeus-bench-"))
        self.home.chmod(0o755)
        # In memory, as /run is.
        self.state = Path(tempfile.mkdtemp(prefix="astraeus-bench-", dir=memory))
        self.state.chmod(0o755)
        self.lib, self.log = self.home / "lib", self.home / "log" / "monitor.log"
        self.sink = Sink(b"b" * 48)
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.fake_driver = self.home / "nvml"

    def __enter__(self) -> Node:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", self.home / "rank",
                        HERE / "rank.c"], check=True)
        driver = ROOT / "slurm-test-cluster" / "fake-nvml"
        shutil.copytree(driver, self.fake_driver)
        subprocess.run(["make", "-s", "-C", self.fake_driver], check=True)
        self._install()
        key = self.home / "report.key"
        key.write_bytes(self.sink.key)
        key.chmod(0o600)
        (self.home / "astraeus.toml").write_text(
            f'[monitor]\ncontroller = "http://127.0.0.1:{self.sink.server_port}"\nkey = "{key}"\n'
            f'sysfs = "{self.state}/sys"\n')
        self._rails()
        self.lib.mkdir()
        self._program(self.home / "astraeus-monitor", (
            # What a service has in its environment, and where the fake driver is.
            f"exec env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH={self.fake_driver} "
            f"FAKE_NVML_STATE={self.home}/gpus {self.home}/venv/bin/astraeus-monitor run "
            f"--config={self.home}/astraeus.toml --state-dir={self.state}"))
        self._program(self.lib / "start-monitor",
                      f'exec {SHELL} {START_MONITOR} "$1" {self.home}/astraeus-monitor {self.log}')
        return self

    def __exit__(self, *_: object) -> None:
        self.end_ranks()
        self.end_monitor()
        self.sink.shutdown()
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def _rails(self) -> None:
        """Eight adapters of one port, with the error counters that the monitor reads of one."""
        for rail in range(RAILS):
            port = self.state / f"sys/class/infiniband/mlx5_{rail}/ports/1"
            texts = {"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE", "phys_state": "5: LinkUp",
                     "link_layer": "InfiniBand"}
            counters = {f"{kind}/{name}": "0" for kind, names in COUNTERS.items() for name in names[:10]}
            for name, text in (texts | counters).items():
                file = port / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n")

    @staticmethod
    def _program(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _install(self) -> None:
        """An environment with what a node has, and nothing else: what tests need costs every start 3 MiB."""
        venv.create(self.home / "venv", symlinks=True)
        site = next((self.home / "venv" / "lib").glob("python3*")) / "site-packages"
        for package in ("protocol/astraeus_protocol", "monitor/astraeus_monitor"):
            shutil.copytree(ROOT / package, site / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in metadata.files("msgspec") or ():
            if ".." not in file.parts and file.suffix in (".py", ".so"):
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)
        # As an installer does: whoever compiles what it loads keeps the compiler's memory.
        compileall.compile_dir(site, quiet=1)
        program = self.home / "venv" / "bin" / "astraeus-monitor"
        program.write_text(f"#!{self.home}/venv/bin/python\nimport sys\n\nfrom astraeus_monitor.main import main\n"
                           "\nsys.exit(main())\n")
        program.chmod(0o755)

    # -- Prolog, Epilog, the monitor

    def prolog(self, job: int) -> float:
        """Hand a job of this node's GPUs over; milliseconds."""
        return self._piece(job, PROLOG, self.state, self.lib)

    def epilog(self, job: int) -> float:
        """The job is over; milliseconds."""
        return self._piece(job, EPILOG, self.state)

    def _piece(self, job: int, piece: Path, *arguments: Path) -> float:
        return timed([SHELL, str(piece), *map(str, arguments)], {
            "SLURMD_NODENAME": "bench", "SLURM_CLUSTER_NAME": "bench", "SLURM_JOB_ID": str(job),
            "SLURM_JOBID": str(job), "SLURM_JOB_ACCOUNT": "default", "SLURM_JOB_COMMENT": "hello c",
            "SLURM_JOB_GID": str(NOBODY), "SLURM_JOB_GPUS": ",".join(map(str, range(GPUS))),
            "SLURM_JOB_NODELIST": "bench", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_PARTITION": "main",
            "SLURM_JOB_RESTART_COUNT": "0", "SLURM_JOB_STDOUT": "/home/alice/out-%j.txt",
            "SLURM_JOB_UID": str(NOBODY), "SLURM_JOB_USER": "alice", "SLURM_JOB_WORK_DIR": "/home/alice",
            "SPANK_ASTRAEUS_STALL_AFTER": "900", "SPANK_ASTRAEUS_RESTART_STALLED": "1"})

    def monitor(self) -> int:
        """PID of the monitor that Prolog started. Raises WaitTimeout with the end of its log."""
        def running() -> int:
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.state / "monitor.lock").read_text())
                os.kill(pid, 0)
                return pid
            return 0
        return wait_for(running, 30, 0.05, "the monitor", lambda: self.log.read_text()[-500:])

    def end_monitor(self) -> None:
        """End the monitor, if one runs, and see it end."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.state / "monitor.lock").read_text())
            watch = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(watch, signal.SIGTERM)
                wait_for(lambda: not alive(pid), 20, 0.05, "the monitor's end")
            finally:
                os.close(watch)

    # -- a job's ranks

    def begin_ranks(self, job: int, count: int) -> None:
        """Start the ranks, as Slurm's tasks, and write what the plugin writes about them."""
        output = self.home / f"job-{job}"
        output.mkdir()
        os.chown(output, NOBODY, NOBODY)
        ends = _ring(count)
        for rank in range(count):
            with open(output / f"{rank}.txt", "ab") as file:
                os.fchown(file.fileno(), NOBODY, NOBODY)
                self.ranks.append(subprocess.Popen(
                    [self.home / "rank", str(threads_of(rank, count))], stdin=subprocess.DEVNULL, stdout=file,
                    stderr=file, user=NOBODY, group=NOBODY, extra_groups=[], cwd=output,
                    pass_fds=[end.fileno() for end in ends[rank]],
                    env={"RANK": str(rank), "WORLD_SIZE": str(count), "SLURM_JOB_ID": str(job),
                         "SLURM_PROCID": str(rank), "CUDA_VISIBLE_DEVICES": str(rank * GPUS // count)}))
        for end in (end for mine in ends for end in mine):
            end.close()
        self._gpus(count)
        steps = self.state / "jobs" / str(job) / "steps"
        steps.mkdir(mode=0o700, exist_ok=True)
        (steps / "0").write_text(_step_lines(job, [process.pid for process in self.ranks]))
        self.wake()

    def _gpus(self, count: int) -> None:
        lines = [f"gpus = {GPUS}"]
        for gpu in range(GPUS):
            pids = [str(process.pid) for rank, process in enumerate(self.ranks) if rank * GPUS // count == gpu]
            lines += [f"gpu.{gpu}.util = 97", f"gpu.{gpu}.pids = {' '.join(pids)}"]
        (self.home / "gpus").write_text("\n".join(lines) + "\n")

    def end_ranks(self) -> None:
        """Kill them."""
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.wait()
        self.ranks.clear()

    def ranks_cpu_s(self) -> float:
        """CPU time of the ranks so far."""
        ticks = 0
        for process in self.ranks:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def wake(self) -> None:
        """Wake the monitor, as the plugin does."""
        with contextlib.suppress(OSError):
            fifo = os.open(self.state / "wake", os.O_WRONLY | os.O_NONBLOCK)
            os.write(fifo, b"w")
            os.close(fifo)


def threads_of(rank: int, count: int) -> int:
    """How many threads a rank has."""
    return THREADS_MIN + rank * (THREADS_MAX - THREADS_MIN) // max(1, count - 1)


def timed(command: list[str], env: dict[str, str]) -> float:
    """Run a command as slurmd runs a piece of Prolog: milliseconds to its end. Raises RuntimeError when it fails."""
    null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, env, file_actions=null)
    _, status = os.waitpid(pid, 0)
    took = 1000 * (time.perf_counter() - began)
    if status:
        raise RuntimeError(f"{' '.join(command)}: status {status}")
    return took


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _step_lines(job: int, pids: list[int]) -> str:
    """As the plugin writes them; this process stands for slurmstepd."""
    me, now = os.getpid(), time.clock_gettime(time.CLOCK_BOOTTIME)
    lines = [f"step v=1 version={VERSION} job={job} step=0 uid={NOBODY} nodes=1 node_id=0 tasks={len(pids)} "
             f"local_tasks={len(pids)} stepd={me} stepd_start={_start(me)} at={now:.2f} launch=login:40123 "
             "stall_after=900 restart_stalled=1 nodelist=bench"]
    for rank, pid in enumerate(pids):
        gpu = rank * GPUS // len(pids)
        lines += [f"task rank={rank} local={rank} pid={pid} start={_start(pid)}",
                  f"gpus rank={rank} local={rank} gpus={','.join(map(str, range(GPUS)))} visible={gpu}"]
    return "\n".join(lines) + "\n"


def _start(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def _ring(count: int) -> list[list[socket.socket]]:
    """For each rank the ends of its 16 TCP connections: 8 to the next rank, 8 to the one before it."""
    ends: list[list[socket.socket]] = [[] for _ in range(count)]
    with socket.create_server(("127.0.0.1", 0), backlog=LINKS) as server:
        for rank in range(count):
            for _ in range(LINKS):
                ends[rank].append(socket.create_connection(server.getsockname()))
                ends[(rank + 1) % count].append(server.accept()[0])
    return ends
