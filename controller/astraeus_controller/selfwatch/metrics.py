"""The watcher's own numbers as Prometheus text. No job is named: anybody may scrape them."""

from __future__ import annotations

from .coverage import Coverage
from .health import Seen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(seen: Seen, coverage: Coverage, faults: list[str], reports: int, now: float, wall_offset: float) -> str:
    """``wall_offset``: Unix time minus CLOCK_BOOTTIME. What did not happen yet has no sample: unknown is not zero."""
    lines: list[str] = []

    def one(name: str, kind: str, words: str, *values: tuple[str, float]) -> None:
        lines.extend((f"# HELP {name} {words}", f"# TYPE {name} {kind}"))
        lines.extend(f"{name}{labels} {value:g}" if abs(value) < 1e6 else f"{name}{labels} {value:.3f}"
                     for labels, value in values)

    one("astraeus_blind", "gauge", "1 while something keeps the controller from seeing or judging.",
        ("", float(bool(faults))))
    one("astraeus_gpu_jobs_running", "gauge", "GPU jobs that run and are to be watched.", ("", coverage.running))
    one("astraeus_gpu_jobs_watched", "gauge", "Those of them that are truly watched.", ("", coverage.watched))
    one("astraeus_gpu_jobs_watched_ratio", "gauge", "Their share; 1 where none runs.", ("", coverage.share))
    one("astraeus_gpu_jobs_unwatched", "gauge", "The others, by what is amiss.",
        *((f'{{why="{why}"}}', number) for why, number in coverage.why.items()))
    one("astraeus_reports_total", "counter", "Reports taken.", ("", reports))
    for name, at, words in (("pass", seen.swept, "The last pass over all jobs."),
                            ("slurm_poll", seen.polled, "Slurm's last word on what runs."),
                            ("report", seen.reported, "The last report of a node.")):
        one(f"astraeus_last_{name}_timestamp_seconds", "gauge", words,
            *([] if at is None else [("", at + wall_offset)]))
    one("astraeus_time_seconds", "gauge", "The controller's time of day, to compare those with.",
        ("", now + wall_offset))
    return "\n".join(lines) + "\n"
