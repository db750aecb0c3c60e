#!/usr/bin/env python3
"""A GPU job: opens the GPUs of its binding as CUDA would, and prints or keeps quiet.

How busy a fake GPU is does not depend on this: the test sets it.
"""

from __future__ import annotations

import argparse
import os
import time


def bound_gpus() -> list[int]:
    """The node's GPU numbers that the step has, else the job's."""
    names = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return [int(name) for name in names.split(",") if name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--print-every", type=float, metavar="SECONDS", help="print a line this often (else: quiet)"
    )
    parser.add_argument("--seconds", type=float, default=0, help="run for so long (0: no end, the default)")
    chosen = parser.parse_args()
    held = [os.open(f"/dev/nvidia{index}", os.O_RDWR) for index in bound_gpus()]
    print(f"holds {len(held)} GPUs: {bound_gpus()}, PID {os.getpid()}", flush=True)
    start, lines = time.monotonic(), 0
    while not chosen.seconds or time.monotonic() - start < chosen.seconds:
        left = chosen.seconds - (time.monotonic() - start) if chosen.seconds else 60.0
        time.sleep(max(0.0, min(chosen.print_every or 60.0, left)))
        if chosen.print_every:
            lines += 1
            print(f"line {lines}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
