"""``make bench``: what Astraeus costs a node, measured here and now, without Slurm. About nine minutes.

Prints each figure beside its goal, and keeps all in docs/bench-monitor.json once everything was measured.
docs/performance.md says how each is measured and what it depends on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import measure
from .figures import Figures, document, table
from .machine import load, machine
from .node import ROOT, Node

PARTS = {"8": ("cpu_percent_8", "pss_mib_8"), "idle": ("idle_wakes_per_min", "idle_pss_mib"),
         "64": ("cpu_percent_64",), "prolog": ("prolog_ms",), "spank": ("spank_ms",)}
SECONDS = 120.0


def main() -> int:
    """0: all was measured (be it over its goal); 1: something was not."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(PARTS), help="only this part; nothing is kept then")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement of the monitor (120)")
    parser.add_argument("--warm-up", type=float, default=measure.WARM_UP_S, help="seconds before it (65)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "bench-monitor.json")
    options = parser.parse_args()
    asked = options.only or list(PARTS)
    missing = {part: why for part in asked if (why := lacking(part))}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    figures, before = Figures(), machine()
    run(figures, [part for part in asked if part not in missing], options.seconds, options.warm_up)
    print(table(figures, missing))
    print(f"on {before['cpu']}, {before['cores']} cores, Linux {before['kernel']}, Python {before['python']}; "
          f"load {before['load']} before, {load()} after")
    if missing or options.only:
        return 1 if missing else 0
    machine_now = before | {"load_after": load()}
    options.out.write_text(json.dumps(document(figures, machine_now), indent=1) + "\n")
    print(f"kept in {options.out}")
    return 0


def run(figures: Figures, parts: list[str], seconds: float, warm_up: float) -> None:
    """Measure the parts. Each number of ranks has a monitor of its own."""
    if "spank" in parts:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="astraeus-bench-") as folder:
            figures.add(measure.spank(Path(folder), say))
    first = [part for part in parts if part in ("8", "idle", "prolog")]
    if first:
        with Node() as node:
            # A node has had a job before it is idle.
            if "8" in first or "idle" in first:
                figures.add(measure.ranks(node, 8, seconds if "8" in first else 10, warm_up, say))
            if "idle" in first:
                figures.add(measure.idle(node, seconds, say))
            if "prolog" in first:
                figures.add(measure.prolog(node, say))
    if "64" in parts:
        with Node() as node:
            figures.add(measure.ranks(node, 64, seconds, warm_up, say))


def lacking(part: str) -> str:
    """Why this machine can't measure a part, and what to do, in one sentence; "" when it can."""
    what = " and ".join(PARTS[part])
    if not shutil.which("gcc") or not shutil.which("make"):
        return f"{what}: needs a C compiler and make"
    if part == "spank":
        return "" if Path("/usr/include/slurm/spank.h").exists() else (
            f"{what}: needs Slurm's spank.h (package libslurm-dev or slurm-devel)")
    if os.geteuid() != 0:
        return f"{what}: run make bench as root, as Slurm runs Prolog and the monitor"
    if any(Path("/etc/systemd/system").glob("*.wants/astraeus-monitor.*")):
        return f"{what}: on this machine systemd starts the monitor; stop it and disable its path unit first"
    return ""


def say(text: str) -> None:
    """Progress, beside the table."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
