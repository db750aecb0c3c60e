#!/usr/bin/env python3
"""A launcher as torchrun is one: starts N worker processes on this machine and waits for them, without srun.

    launcher.py -n 4                                     a ring of four
    launcher.py -n 4 -- --steps 100 --save-on-term 4     the same with options of ring.py
    launcher.py -n 4 --quitters 3 -- independent.py --burn

A first word after -- that is no option names another script of this folder, or a path. Each worker runs it
with RANK, LOCAL_RANK and WORLD_SIZE of its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path


def start(command: list[str], rank: int, size: int) -> subprocess.Popen[bytes]:
    script = Path(command[0])
    if not script.is_absolute():
        script = Path(__file__).parent / script
    names = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    # Two launchers in one job must not meet in one ring.
    names["RING_KEY"] = (
        f"{os.environ.get('SLURM_JOB_ID', 'alone')}.launcher-{os.uname().nodename}-{os.getpid()}"
    )
    return subprocess.Popen([sys.executable, "-u", str(script), *command[1:]], env=os.environ | names)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--workers", type=int, default=4)
    parser.add_argument(
        "--quitters", type=int, default=0, metavar="N", help="the first N run --quitter-command"
    )
    parser.add_argument(
        "--quitter-command", default="independent.py --exit-after 5", help="default: %(default)s"
    )
    parser.add_argument("command", nargs="*", help="script and its arguments, after --")
    chosen = parser.parse_args()
    if not chosen.command or chosen.command[0].startswith("-"):
        chosen.command.insert(0, "ring.py")
    print(f"launcher PID {os.getpid()} starts {chosen.workers} workers", flush=True)
    workers = []
    for rank in range(chosen.workers):
        command = chosen.quitter_command.split() if rank < chosen.quitters else chosen.command
        workers.append(start(command, rank, chosen.workers))

    def pass_on(number: int, _frame: object) -> None:
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    codes = [worker.wait() for worker in workers]
    print(f"launcher: workers left with {codes}", flush=True)
    return max((abs(code) for code in codes), default=0)


if __name__ == "__main__":
    sys.exit(main())
