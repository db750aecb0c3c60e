"""A worker's own time per iteration (docs/rules.md, "straggler"): the run's own gauge, and what stands for it as weak
evidence where there is none."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from .limits import RHYTHM_BASE_MIN, RHYTHM_LEAST, RHYTHM_RATIO
from .metric import metric_of
from .picture import MetricView, StepView, WorkerView
from .readings import writes
from .straggler_sign import TIME, WEAK, Sign


def signs(step: StepView, workers: Sequence[WorkerView]) -> list[Sign]:
    """Workers whose iterations take longer than the others' by the ratio; none where half of the times are unknown."""
    name, ratio = step.policy.straggler_metric, step.policy.straggler_ratio
    if not name or any(writes(worker) for worker in workers):
        return []  # who saves a checkpoint lets one iteration last
    known = [(worker, metric) for worker in workers if (metric := readable(worker, name)) is not None]
    if len(known) < 2 or 2 * len(known) <= len(workers):
        return []
    values = [metric.value or 0.0 for _, metric in known]
    whole = sorted(values)
    if whole[-1] < ratio * whole[0]:
        return []
    found = []
    for (worker, metric), value in zip(known, values, strict=True):
        usual = median_without(whole, value)
        if usual > 0 and value >= ratio * usual:
            found.append(Sign(
                worker, TIME, "iteration", f"{name} is {value:.4g} against {usual:.4g} across the gang",
                value / usual, metric.looked_at, numbers={"metric": name, "value": value, "usual": usual}))
    return found


def readable(worker: WorkerView, name: str) -> MetricView | None:
    """Its time per iteration, where it can be read now and is one."""
    metric = metric_of(worker, name)
    good = metric is not None and metric.value is not None and metric.value > 0 and metric.unchanged_s is not None
    return metric if good else None


def rhythm(workers: Sequence[WorkerView]) -> list[Sign]:
    """Whose main thread's switches, one pattern of which is an iteration, come slower than they used to, while the
    others' do not. An estimate: threads that wait for something else switch, too."""
    slower = {}
    for worker in workers:
        if (value := _slower(worker)) is None:
            return []
        slower[worker.rank] = value
    known = sorted(slower.values())
    if len(known) <= 2 or known[-1] < RHYTHM_RATIO * known[0]:
        return []
    found = []
    for worker in workers:
        own = slower[worker.rank]
        usual = median_without(known, own)
        if worker.rank and own >= RHYTHM_RATIO * usual:
            found.append(Sign(worker, WEAK, "rhythm", "by its own rhythm, an estimate, its iterations take "
                              f"{own:.1f} times as long as they did, the others' {usual:.1f} times", own / usual,
                              numbers={"slower": round(own, 2), "usual": round(usual, 2)}))
    return found


def _slower(worker: WorkerView) -> float | None:
    """By how much its iterations take longer than its own usual ones; None where its rhythm does not tell."""
    most = None
    for process in worker.processes:
        base, pulse = process.pulse_base, process.pulse
        if base is None or pulse is None or base < RHYTHM_BASE_MIN or pulse < RHYTHM_LEAST * base:
            return None  # what has no pulse hangs, and is another rule's
        if most is None or base / pulse > most:
            most = base / pulse
    return most


def median_without(whole: Sequence[float], value: float) -> float:
    """Median of a sorted list without one of its values, which it holds, and of which it holds two at least."""
    at, left = bisect_left(whole, value), len(whole) - 1
    low, high = (left - 1) // 2, left // 2
    return (whole[low + (low >= at)] + whole[high + (high >= at)]) / 2
