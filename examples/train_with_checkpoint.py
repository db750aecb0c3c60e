#!/usr/bin/env python3
"""A training loop that saves when it is asked to stop, and goes on from there: the whole pattern, no library.

    sbatch --stall-after=15m --restart-stalled --open-mode=append --wrap 'srun python3 train_with_checkpoint.py'

Before Astraeus stops a stalled job it writes the file that ``ASTRAEUS_STOP_FILE`` names, on every node; then Slurm
sends TERM and waits KillWait. This loop looks at the file between two steps, saves, and waits for TERM, which is right
everywhere (where the batch script is this very process an exit would end the job before it is requeued). A rank that
hangs sees neither: it is killed, and the next attempt goes on from the last whole checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

RANK = os.environ.get("SLURM_PROCID", "0")
CHECKPOINT = Path(os.environ.get("CHECKPOINT", f"checkpoint-{RANK}.json"))
STOP_FILE = os.environ.get("ASTRAEUS_STOP_FILE", "")
STEPS = int(os.environ.get("STEPS", "1000"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))
STOP_WAIT_SECONDS = float(os.environ.get("STOP_WAIT_SECONDS", "120"))

asked_by_signal = False


def on_term(signum: int, frame: object) -> None:
    """Only remembers: a checkpoint is written between two steps, never in the middle of one."""
    global asked_by_signal
    asked_by_signal = True


def asked_to_stop() -> str:
    """Why we are asked to stop, or ""; the stop file holds ``key: value`` lines."""
    if STOP_FILE and os.path.exists(STOP_FILE):  # in a container, too, where the folder is mounted
        lines = dict(line.split(": ", 1) for line in Path(STOP_FILE).read_text().splitlines() if ": " in line)
        return lines.get("reason") or lines.get("cause") or "a stop file without a reason"
    return "SIGTERM" if asked_by_signal else ""


def stopped() -> bool:
    """Wait for the TERM that follows the stop file; False where none comes: the restart was called off."""
    until = time.monotonic() + STOP_WAIT_SECONDS
    while not asked_by_signal and time.monotonic() < until:
        time.sleep(0.1)
    return asked_by_signal


def load() -> dict[str, float]:
    """State to go on from."""
    return json.loads(CHECKPOINT.read_text()) if CHECKPOINT.exists() else {"step": 0, "loss": 10.0}


def save(state: dict[str, float]) -> None:
    """Whole or not at all: a kill in the middle leaves the checkpoint before it."""
    fresh = CHECKPOINT.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(CHECKPOINT)


def main() -> int:
    signal.signal(signal.SIGTERM, on_term)
    called_off = False
    state = load()
    cause = os.environ.get("ASTRAEUS_RESTART_CAUSE")
    if cause:
        count = os.environ.get("ASTRAEUS_RESTART_COUNT")
        print(f"restart {count} ({cause}), from step {state['step']:.0f}", flush=True)
    while state["step"] < STEPS:
        time.sleep(STEP_SECONDS)  # the work
        state = {"step": state["step"] + 1, "loss": state["loss"] * 0.999}
        why = "" if called_off and not asked_by_signal else asked_to_stop()
        if why or state["step"] % 100 == 0:
            save(state)
            print(f"step {state['step']:.0f} loss {state['loss']:.3f} saved", flush=True)
        if why:
            print(f"stopping at step {state['step']:.0f}: {why}", flush=True)
            if stopped():
                return 0
            called_off = True
            print("nobody stopped us: going on", flush=True)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
