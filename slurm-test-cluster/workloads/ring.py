#!/usr/bin/env python3
"""A gang that trains nothing: each step a rank hands data to the next one and waits for the one before it.

Ranks come from RANK and WORLD_SIZE (a launcher's), else SLURM_PROCID and SLURM_NTASKS (srun's). They find
each other by files in ~/.ring/JOB.STEP.RESTART, where each writes its host and port. When one rank stops, the
others come to wait for it within as many steps as there are ranks, as they do in a collective operation.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

PAYLOAD = 4096
SILENT_AFTER_S = 1.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=0, help="steps to run (0: no end, the default)")
    parser.add_argument("--step-seconds", type=float, default=0.15, help="time that a step's own work takes")
    parser.add_argument(
        "--print-every", type=int, default=1, metavar="N", help="print each Nth step (0: never)"
    )
    parser.add_argument(
        "--print-all", action="store_true", help="every rank prints its steps, not only rank 0"
    )
    parser.add_argument(
        "--print-env", action="store_true", help="print the ASTRAEUS_* variables at the start"
    )
    parser.add_argument(
        "--spin-on-loss", action="store_true", help="spin on the CPU when a peer is lost or silent"
    )
    parser.add_argument(
        "--save-on-term", type=float, metavar="SECONDS", help="on TERM save for so long, then exit 0"
    )
    parser.add_argument(
        "--leave-on-stop-file", type=float, metavar="SECONDS", help="save for so long and exit 0 once it is there"
    )
    parser.add_argument(
        "--save-on", nargs=2, metavar=("SIGNAME", "SECONDS"), help="the same on USR1 or another signal"
    )
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="each step write a file there and read it")
    parser.add_argument("--store-rank", type=int, metavar="N", help="only rank N does so")
    parser.add_argument("--short-if-restarted", type=int, metavar="N", help="only N steps in a restarted job")
    parser.add_argument(
        "--until-restart", action="store_true", help="no end at first, 20 steps in a restarted job"
    )
    parser.add_argument(
        "--say-at", nargs=2, metavar=("N", "TEXT"), help="rank 0 prints TEXT at step N, then waits for --pause"
    )
    parser.add_argument("--pause", type=float, default=0, metavar="SECONDS", help="after --say-at's text")
    parser.add_argument(
        "--sleep-at", nargs=2, type=int, metavar=("N", "RANK"), help="at step N rank RANK sleeps for ever"
    )
    parser.add_argument(
        "--last-words", metavar="TEXT", help="rank 0 prints TEXT after the last step, and the exit hangs"
    )
    parser.add_argument(
        "--metrics", choices=("all", "first"), help="these ranks serve ring_step_total on ASTRAEUS_METRICS_PORT"
    )
    parser.add_argument(
        "--by-thread", action="store_true", help="a thread receives, the main one waits for it as for a lock"
    )
    parser.add_argument(
        "--lock-on", metavar="SIGNAME", help="on USR2 or another signal wait for a lock that nobody gives back"
    )
    chosen = parser.parse_args()
    if chosen.save_on_term is not None:
        chosen.save_on = ["TERM", chosen.save_on_term]
    if chosen.until_restart:
        chosen.steps, chosen.short_if_restarted = 0, chosen.short_if_restarted or 20
    if restarts() and chosen.short_if_restarted:
        chosen.steps = chosen.short_if_restarted
    return chosen


def restarts() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


class Gang:
    """Who this rank is, and the files and sockets by which it reaches its neighbours."""

    def __init__(self) -> None:
        env = os.environ
        self.rank = int(env.get("RANK") or env.get("SLURM_PROCID") or 0)
        self.size = int(env.get("WORLD_SIZE") or env.get("SLURM_NTASKS") or 1)
        step = env.get("SLURM_STEP_ID", "batch")
        key = env.get("RING_KEY") or f"{env.get('SLURM_JOB_ID', 'alone')}.{step}.{restarts()}"
        self.folder = Path.home() / ".ring" / key
        self.say(f"starts on {socket.gethostname()} as PID {os.getpid()}")

    def say(self, text: str) -> None:
        # One write per line: ranks that share a file must not cut into each other's lines.
        os.write(1, f"rank {self.rank} {text}\n".encode())

    def connect(self) -> None:
        """Listen, publish, connect to the next rank and accept the one before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        listener = socket.create_server(("", 0))
        mine = self.folder / f"rank-{self.rank}"
        half = mine.with_suffix(".new")
        half.write_text(f"{socket.gethostname()}:{listener.getsockname()[1]}")
        half.rename(mine)
        theirs = self.folder / f"rank-{(self.rank + 1) % self.size}"
        while not theirs.exists():
            time.sleep(0.02)
        host, _, port = theirs.read_text().partition(":")
        self.next = socket.create_connection((host, int(port)), timeout=60)
        self.next.settimeout(None)
        self.previous, _ = listener.accept()
        listener.close()


class Ring:
    """The steps of one rank."""

    def __init__(self, gang: Gang, chosen: argparse.Namespace) -> None:
        self.gang, self.chosen, self.step = gang, chosen, 0
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(1) if chosen.by_thread else None

    def run(self) -> None:
        while not self.chosen.steps or self.step < self.chosen.steps:
            time.sleep(self.chosen.step_seconds)
            self.next_batch()
            self.use_store()
            if self.chosen.sleep_at == [self.step, self.gang.rank]:
                time.sleep(1e6)
            self.exchange()
            self.step += 1
            every = self.chosen.print_every
            if every and self.step % every == 0 and (self.gang.rank == 0 or self.chosen.print_all):
                self.gang.say(f"step {self.step}") if self.chosen.print_all else os.write(
                    1, b"step %d\n" % self.step
                )
            if self.chosen.say_at and self.step == int(self.chosen.say_at[0]) and self.gang.rank == 0:
                os.write(1, f"{self.chosen.say_at[1]}\n".encode())
                time.sleep(self.chosen.pause)
        if self.chosen.last_words:
            self.hang_at_exit()

    def hang_at_exit(self) -> None:
        """What a training looks like whose work is done and whose process group is never torn down."""
        if self.gang.rank == 0:
            os.write(1, f"{self.chosen.last_words}\n".encode())
        os.write(2, (
            f"[rank{self.gang.rank}]:[W205 18:00:34.953145631 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
            "destroy_process_group() was not called before program exit, which can leak resources.\n"
        ).encode())
        self.gang.previous.recv(1)

    def next_batch(self) -> None:
        """Where a rank hangs that was sent --lock-on's signal."""
        with self.lock:
            pass

    def take_lock(self, number: int, _frame: FrameType | None) -> None:
        self.lock.acquire(blocking=False)

    def use_store(self) -> None:
        """Write a file and read it back, as who saves a checkpoint and loads a batch; it waits for the store."""
        if self.chosen.store is None or self.chosen.store_rank not in (None, self.gang.rank):
            return
        file = self.chosen.store / f"{self.gang.folder.name}.rank-{self.gang.rank}"
        file.write_text(f"{self.step}\n")
        if file.read_text() != f"{self.step}\n":
            sys.exit(f"{file} does not hold what was written")

    def serve_metrics(self) -> None:
        """Prometheus text on loopback, by a thread: it answers also while the main thread waits for a neighbour."""
        ring = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"# TYPE ring_step counter\nring_step_total {ring.step}\n".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["ASTRAEUS_METRICS_PORT"])), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def exchange(self) -> None:
        data = self.step.to_bytes(8, "big") * (PAYLOAD // 8)
        try:
            self.gang.next.sendall(data)
            left = PAYLOAD
            while left:
                left -= len(self.receive(left))
        except OSError as problem:
            self.lost(f"{type(problem).__name__}: {problem}")

    def receive(self, size: int) -> bytes:
        """The next bytes of the one before. Waiting for them sleeps in the kernel, or spins when asked to."""
        if self.chosen.spin_on_loss and not select.select([self.gang.previous], [], [], SILENT_AFTER_S)[0]:
            self.gang.say(f"spins: nothing from its neighbour for {SILENT_AFTER_S:g} s")
            return self.spin(size)
        receive = self.gang.previous.recv
        got = self.pool.submit(receive, size).result() if self.pool else receive(size)
        if not got:
            raise ConnectionResetError("its neighbour closed the connection")
        return got

    def spin(self, size: int) -> bytes:
        """Ask for data again and again without ever sleeping, until there is some."""
        previous, flag, want = self.gang.previous, socket.MSG_DONTWAIT, None
        while not want:
            try:
                want = previous.recv(size, flag)
            except BlockingIOError:
                continue
            if not want:
                raise ConnectionResetError("its neighbour closed the connection")
        return want

    def lost(self, why: str) -> None:
        self.gang.say(f"lost a neighbour: {why}")
        if self.chosen.leave_on_stop_file is not None:
            threading.Event().wait()  # it left on the stop file, which is about to be seen here, too
        if not self.chosen.spin_on_loss:
            sys.exit(1)
        while True:
            pass

    def watch_stop_file(self) -> None:
        """Leave as soon as the stop file is there, without waiting for a signal."""
        path = Path(os.environ.get("ASTRAEUS_STOP_FILE") or "/nonexistent")

        def watch() -> None:
            while not path.is_file():
                time.sleep(0.1)
            self.gang.say("saw the stop file")
            self.save(self.chosen.leave_on_stop_file)

        threading.Thread(target=watch, daemon=True).start()

    def terminated(self, number: int, _frame: FrameType | None) -> None:
        """Save what there is and leave; the stop file, if Astraeus wrote one, says why."""
        signal.signal(number, signal.SIG_IGN)  # a launcher may pass on what came here already
        gang = self.gang
        gang.say(f"got {signal.Signals(number).name.removeprefix('SIG')}")
        stop_file = Path(os.environ.get("ASTRAEUS_STOP_FILE") or "/nonexistent")
        if stop_file.is_file():
            for line in stop_file.read_text().splitlines():
                gang.say(f"stop file: {line}")
        self.save(float(self.chosen.save_on[1]))

    def save(self, seconds: float) -> None:
        gang = self.gang
        time.sleep(seconds)
        name = f"checkpoint.{os.environ.get('SLURM_JOB_ID', 'alone')}.rank-{gang.rank}"
        (Path.home() / name).write_text(f"{self.step}\n")
        gang.say(f"saved step {self.step}")
        os._exit(0)


def main() -> None:
    chosen = options()
    gang = Gang()
    ring = Ring(gang, chosen)
    if chosen.save_on is not None:
        signal.signal(signal.Signals[f"SIG{chosen.save_on[0]}"], ring.terminated)
    if chosen.lock_on:
        signal.signal(signal.Signals[f"SIG{chosen.lock_on}"], ring.take_lock)
    if chosen.leave_on_stop_file is not None:
        ring.watch_stop_file()
    if chosen.metrics == "all" or (chosen.metrics == "first" and gang.rank == 0):
        ring.serve_metrics()
    if chosen.print_env:
        for name in sorted(name for name in os.environ if name.startswith("ASTRAEUS_")):
            gang.say(f"env {name}={os.environ[name]}")
    checkpoint = Path.home() / f"checkpoint.{os.environ.get('SLURM_JOB_ID', 'alone')}.rank-{gang.rank}"
    if restarts() and checkpoint.is_file():
        gang.say(f"found a checkpoint of step {checkpoint.read_text().strip()}")
    gang.connect()
    ring.run()
    gang.say(f"done after {ring.step} steps")


if __name__ == "__main__":
    main()
