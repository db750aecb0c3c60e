#!/usr/bin/env python3
"""A small real training: PyTorch DDP over gloo, the MLX ring, or allreduces of Open MPI, with a fault on one rank.

srun /opt/frameworks/torch/python -u train.py torch                     ranks from srun
/opt/frameworks/torch/python -m torch.distributed.run --standalone --nproc-per-node 8 train.py torch
srun --mpi=pmix /opt/frameworks/mpi4py/python -u train.py mpi --fault sleep --rank 2

The fault begins when ~/.train/go-JOB is there, looked for at the beginning of each step. Nothing is printed of it.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

from train_backends import BACKENDS
from train_faults import EACH_STEP, FAULTS, LOADER_FAULTS, Trigger


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=sorted(BACKENDS))
    parser.add_argument("--steps", type=int, default=0, help="steps to run (0: no end, the default)")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="wait for each batch (default 0.1)")
    parser.add_argument("--print-every", type=int, default=10, metavar="N", help="each Nth step (default 10)")
    parser.add_argument("--print-all", action="store_true", help="every rank prints, not only rank 0")
    parser.add_argument("--times", type=Path, metavar="FILE", help="rank 0 writes each step's end and length")
    parser.add_argument("--padding", type=int, default=0, metavar="BYTES", help="printed with each line")
    parser.add_argument("--fault", choices=sorted([*FAULTS, *LOADER_FAULTS, "xgroup", "skip"]))
    parser.add_argument("--rank", type=int, default=2, help="the rank that has the fault (default 2)")
    return parser.parse_args()


def say_start(started: threading.Event) -> None:
    """A line now and then until the first step is done: two cores may take a minute to import a framework eight times,
    which is longer than the shortest patience."""
    while not started.wait(5):
        print("starting", flush=True)


def main() -> None:
    chosen = options()
    go = Path.home() / ".train" / f"go-{os.environ.get('SLURM_JOB_ID', 'alone')}"
    started = threading.Event()
    threading.Thread(target=say_start, args=(started,), daemon=True).start()
    backend = BACKENDS[chosen.framework]()
    trigger = Trigger(go, chosen.fault or "", guilty=backend.rank == chosen.rank)
    if backend.rank == chosen.rank and chosen.fault in LOADER_FAULTS:
        backend.load_in_helpers(trigger)
    print(f"rank {backend.rank} of {backend.size}: {chosen.framework} {backend.version}, PID {os.getpid()}", flush=True)
    step, struck = 0, False
    times = chosen.times.open("w", buffering=1) if chosen.times and backend.rank == 0 else None
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    while not chosen.steps or step < chosen.steps:
        time.sleep(chosen.step_seconds)
        batch = backend.batch()
        if trigger.pulled() and chosen.fault in FAULTS and (not struck or chosen.fault in EACH_STEP):
            struck = True
            FAULTS[chosen.fault]()
        loss = backend.step(batch, chosen.fault if trigger.pulled() else None)
        started.set()
        step += 1
        if times:
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            times.write(f"{now:.6f} {now - before:.6f}\n")
            before = now
        if step % chosen.print_every == 0 and (chosen.print_all or backend.rank == 0):
            print(f"step {step} loss {loss:.4f}{'.' * chosen.padding}", flush=True)
    backend.close()


if __name__ == "__main__":
    main()
