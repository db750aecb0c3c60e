"""The figures, their goals, the table that is printed and the file that is kept."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A figure that has a goal: at most ``most``."""

    name: str
    most: float
    unit: str
    what: str


GOALS = (
    Goal("cpu_percent_8", 0.06, "% of a core", "monitor and children, 8 ranks on 8 GPUs"),
    Goal("pss_mib_8", 30, "MiB", "their memory (PSS)"),
    Goal("cpu_percent_64", 0.4, "% of a core", "monitor and children, 64 ranks on 8 GPUs"),
    Goal("prolog_ms", 5, "ms", "Prolog's piece, with the monitor there"),
    Goal("spank_ms", 0.5, "ms", "plugin, at the start of a step of 8 tasks"),
    Goal("idle_wakes_per_min", 1, "a minute", "monitor's wake-ups on a node without a job"),
    Goal("idle_pss_mib", 20, "MiB", "its memory there"),
)
OTHERS = ("alone_mib_8", "pss_mib_64", "alone_mib_64", "idle_alone_mib", "idle_cpu_percent", "prolog_first_ms",
          "epilog_ms", "shell_ms", "spank_load_ms")
"""Figures without a goal."""
NAMES = (*(goal.name for goal in GOALS), *OTHERS)


@dataclass
class Figures:
    """Figures by name, how far their runs lie apart, and what the machine did beside them."""

    values: dict[str, float] = field(default_factory=dict)
    spread: dict[str, dict[str, float]] = field(default_factory=dict)
    beside: dict[str, dict[str, float]] = field(default_factory=dict)

    def put(self, name: str, value: float, runs: list[float] | None = None) -> None:
        """A figure, and the runs or windows that it is of."""
        self.values[name] = round(value, 4)
        if runs:
            self.spread[name] = {"runs": len(runs), "least": round(min(runs), 4),
                                 "median": round(statistics.median(runs), 4), "most": round(max(runs), 4)}

    def median(self, name: str, runs: list[float]) -> None:
        """A figure that is the median of its runs."""
        self.put(name, statistics.median(runs), runs)

    def add(self, other: Figures) -> None:
        """Take another measurement's in."""
        self.values |= other.values
        self.spread |= other.spread
        self.beside |= other.beside


def table(figures: Figures, missing: dict[str, str]) -> str:
    """Each figure beside its goal; ``missing`` says in one sentence each why a part was not measured."""
    lines = [f"{'figure':<19}{'measured':>10}{'goal':>8}        "]
    for goal in GOALS:
        value = figures.values.get(goal.name)
        shown = f"{value:10.3f}" if value is not None else f"{'-':>10}"
        verdict = "" if value is None else "ok" if holds(goal, value) else "OVER"
        lines.append(f"{goal.name:<19}{shown}{goal.most:>8g}  {verdict:<5} {goal.unit}: {goal.what}")
    lines += [f"{name:<19}{figures.values[name]:10.3f}" for name in OTHERS if name in figures.values]
    lines += [f"not measured: {why}" for why in dict.fromkeys(missing.values())]
    return "\n".join(line.rstrip() for line in lines)


def holds(goal: Goal, value: float) -> bool:
    """Whether a goal is met."""
    return round(value, 3) <= goal.most


def document(figures: Figures, machine: dict[str, Any]) -> dict[str, Any]:
    """What docs/bench-monitor.json holds."""
    return {**{name: figures.values[name] for name in NAMES},
            "goals": {goal.name: goal.most for goal in GOALS}, "machine": machine,
            "spread": figures.spread, "beside": figures.beside}
