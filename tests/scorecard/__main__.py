"""The scorecard: ``make scorecard``; ``PYTHONPATH=tests python -m scorecard [--corpus DIR] [--update] [FILE …]``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from astraeus_controller.recording import RecordingFault

from scorecard import page, sizes, verdict
from scorecard.figures import document, fallen, missed
from scorecard.score import FOLDER, Row, score


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every verdict is right, and of the project's own cases the goals are met and no figure has fallen."""
    parser = argparse.ArgumentParser(prog="scorecard", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="these cases only")
    parser.add_argument("--corpus", type=Path, help="the cases of this folder instead of the project's own")
    parser.add_argument("--update", action="store_true", help="write docs/scorecard.md and docs/scorecard.json")
    parser.add_argument("--lower", action="store_true", help="with --update: keep figures that have fallen, too")
    parser.add_argument("--quiet", action="store_true", help="print wrong cases and the figures only")
    options = parser.parse_args(arguments)
    own = not options.files and options.corpus is None
    try:
        rows = run(options.files or verdict.paths(options.corpus or FOLDER), sized=own)
    except (verdict.CaseFault, RecordingFault) as fault:
        print(f"scorecard: {fault}", file=sys.stderr)
        return 2
    told(rows, options.quiet)
    wrong = [row for row in rows if row.faults]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right\n")
    found = document(rows)
    for name, value in found.items():
        if name != "recorded":
            print(f"{name:<18}{'-' if value is None else format(value, 'g'):>10}"
                  f"{'-' if found['recorded'][name] is None else format(found['recorded'][name], 'g'):>10} recorded")
    if not own:
        return 1 if wrong else 0
    return 1 if wrong else settle(rows, options.update, options.lower)


def settle(rows: list[Row], update: bool, lower: bool) -> int:
    """Goals, ratchet and pages of a whole run."""
    found = document(rows)
    faults = missed(found) + ([] if update and lower else fallen(found, page.kept()))
    for sentence in faults:
        print(f"scorecard: {sentence}", file=sys.stderr)
    if faults:
        return 1
    texts = page.written(rows)
    if update:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return 0
    old = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in old:
        print(f"scorecard: docs/{path.name} is not what the cases say now: make scorecard-update", file=sys.stderr)
    return 1 if old else 0


def run(paths: Sequence[Path], sized: bool = False) -> list[Row]:
    """Scores these files, and the sized cases, on all cores; in their order."""
    jobs = [("", path) for path in paths] + ([(name, None) for name in sizes.CASES] if sized else [])
    by_weight = sorted(range(len(jobs)), key=lambda at: -_weight(*jobs[at]))
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        done = dict(zip(by_weight, pool.map(_one, [jobs[at] for at in by_weight]), strict=True))
    return [done[at] for at in range(len(jobs))]


def _weight(name: str, path: Path | None) -> float:
    """The heaviest first, or the last core waits for the others."""
    return path.stat().st_size if path is not None else int(name.rpartition("-")[2]) * 5000.0


def _one(job: tuple[str, Path | None]) -> Row:
    name, path = job
    if path is None:
        return score(sizes.case(name))
    case = verdict.read(path)
    try:
        row = score(case)
    except RecordingFault as fault:
        raise RecordingFault(f"{path.name}, below its verdict line: {fault}") from None
    return row


def told(rows: Sequence[Row], quiet: bool) -> None:
    """Prints each case, and what is wrong with it."""
    print(f"{'':4}{'case':34}{'expected':10}{'suspect':>9}{'stalled':>9}{'straggler':>10}  title")
    for row in rows:
        if quiet and not row.faults:
            continue
        print(f"{'ok' if not row.faults else 'BAD':4}{row.name:34}{row.expected:10}"
              f"{_seconds(row.suspect_after):>9}{_seconds(row.stalled_after):>9}"
              f"{_seconds(row.straggler_after):>10}  {row.title}")
        for line in [*row.faults, *([row.said] if row.said else [])]:
            print(f"        {line}")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}s"


if __name__ == "__main__":
    sys.exit(main())
