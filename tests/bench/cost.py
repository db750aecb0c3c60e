"""What a tree of processes costs: CPU time of all that live and of all that have ended, memory, wake-ups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from astraeus_monitor.host.procfs import Proc

HERTZ = os.sysconf("SC_CLK_TCK")
PROC = Proc()


@dataclass(frozen=True)
class Cost:
    """Of a tree since its start: seconds of CPU, times it was woken; MiB of PSS now, and what PSS would be if no other
    process had the tree's files mapped; processes now."""

    cpu_s: float
    wakes: int
    pss_mib: float
    alone_mib: float
    processes: int


def cost_of(pid: int) -> Cost:
    """Cost of ``pid`` and all below it. Raises ProcessLookupError when it is gone."""
    cpu = 0.0
    pss = own = 0
    wakes = count = 0
    files: dict[str, int] = {}
    for stat in PROC.tree(pid):
        try:
            cpu += _ran_s(stat.pid) + _reaped_s(stat.pid)
            wakes += _switches(stat.pid)
            pss += _rollup_kib(stat.pid, "Pss:")
            own += _rollup_kib(stat.pid, "Pss_Anon:") + _rollup_kib(stat.pid, "Pss_Shmem:")
            for name, kib in _files_kib(stat.pid).items():
                files[name] = max(files.get(name, 0), kib)  # its processes have the same pages of a file, more or less
            count += 1
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended: from now on it is in its parent's count
    if not count:
        raise ProcessLookupError(f"process {pid} is gone")
    return Cost(cpu, wakes, pss / 1024, (own + sum(files.values())) / 1024, count)


def machine_s() -> tuple[float, float]:
    """(busy, stolen) seconds of all this machine's cores since its start."""
    fields = [int(word) / HERTZ for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return user + nice + system + irq + softirq, steal


def _ran_s(pid: int) -> float:
    """CPU time of its living threads, in nanoseconds where the kernel tells: a tick is a seventh of a goal."""
    try:
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except FileNotFoundError:
        return _ticks(pid, 11) / HERTZ


def _reaped_s(pid: int) -> float:
    """CPU time of its children that it has waited for: a probe lives for milliseconds, no look would meet it."""
    return _ticks(pid, 13) / HERTZ


def _ticks(pid: int, first: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[first]) + int(fields[first + 1])


def _switches(pid: int) -> int:
    return int(_line(Path(f"/proc/{pid}/status"), "voluntary_ctxt_switches:"))


def _rollup_kib(pid: int, key: str) -> int:
    return int(_line(Path(f"/proc/{pid}/smaps_rollup"), key))


def _files_kib(pid: int) -> dict[str, int]:
    """KiB of each file that it has in memory, without the pages that it has copies of."""
    found: dict[str, int] = {}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # address, mode, offset, device, inode, path
            name = f"{words[3]} {words[4]}" if words[4] != "0" else ""
        elif name and words[0] in ("Rss:", "Anonymous:"):
            found[name] = found.get(name, 0) + int(words[1]) * (1 if words[0] == "Rss:" else -1)
    return found


def _line(path: Path, key: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return line.split()[1]
    return "0"  # a zombie has no memory
