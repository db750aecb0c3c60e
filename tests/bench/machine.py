"""What a figure depends on: the machine that it was measured on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from .measure import revision
from .node import ROOT


def machine() -> dict[str, Any]:
    """What a figure depends on."""
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": revision(ROOT),
            "kernel": platform.release(), "cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(),
            "load": load(), "loop_ms": loop_ms()}


def loop_ms() -> float:
    """CPU time of a million turns of a loop, the least of five: how fast a core is now."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(1_000_000):
            pass
        best = min(best, time.process_time() - began)
    return round(1000 * best, 1)


def load() -> float:
    """Processes that wanted to run, over the last minute."""
    return round(os.getloadavg()[0], 2)
