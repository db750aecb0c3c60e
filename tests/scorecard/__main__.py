"""Prints the scorecard: ``PYTHONPATH=tests python -m scorecard [FILE …]``."""

from __future__ import annotations

import sys
from pathlib import Path

from scorecard.score import FOLDER, Row, score


def main(arguments: list[str]) -> int:
    rows = [score(path) for path in (map(Path, arguments) if arguments else sorted(FOLDER.glob("*.jsonl")))]
    print(f"{'':4}{'case':34}{'expected':10}{'suspect':>9}{'stalled':>9}{'straggler':>10}  title")
    for row in rows:
        print(f"{'ok' if not row.faults else 'BAD':4}{row.name:34}{row.expected:10}"
              f"{_seconds(row.suspect_after):>9}{_seconds(row.stalled_after):>9}"
              f"{_seconds(row.straggler_after):>10}  {row.title}")
        for line in [*row.faults, *([row.said] if row.said else [])]:
            print(f"        {line}")
    bad = [row for row in rows if row.faults]
    print(_sum(rows, bad))
    return 1 if bad else 0


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}s"


def _sum(rows: list[Row], bad: list[Row]) -> str:
    return f"{len(rows) - len(bad)} of {len(rows)} right"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
