"""docs/scorecard.md and docs/scorecard.json, made of the rows of a whole run."""
# ruff: noqa: E501 - sentences of a page

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorecard.figures import FIGURES, document
from scorecard.posted import POSTED
from scorecard.score import Row
from scorecard.verdict import fields

DOCS = Path(__file__).parents[2] / "docs"
PAGE, KEPT = DOCS / "scorecard.md", DOCS / "scorecard.json"

HEAD = """# The scorecard

What Astraeus says of faults and of what only looks like one, case by case. `make scorecard` runs every case through the
same fleet, rules and pass as the service (`astraeus-controller replay`), on the recording's own clock, and fails when one
verdict is wrong, a goal is missed, or a figure is worse than the one in [scorecard.json](scorecard.json).
`make scorecard-update` makes this page and that file anew; it refuses to keep a figure that has fallen.

A case is a recording ([report.md](report.md#recordings)) below one line that says what is right. Three kinds:

* **made** (1 to 200; `tests/scorecard/*.py`): written by generators that know the wire format and no rule, so that they are
  not made to fit one. Where a thing was seen by somebody, its source stands in the verdict line.
* **recorded** (201 on): of real ranks in Slurm steps on the test cluster, PyTorch, MLX and Open MPI with the fault in
  them, cut to one job each. Their figures stand apart, too.
* **sized** (`CAUSE-of-RANKS`): the same causes and look-alikes in gangs of 2 to 1,024 ranks, written anew at each run.

Pulse (voluntary switches of a main thread that waits in CUDA) and spin power have not been seen on a real GPU yet: no
machine with one was at hand. What the cases say of them is made of what others have posted.

## Figures
"""

ADDING = """## To add a case

Put a file `NAME.jsonl` or `NAME.jsonl.gz` into a folder and run `make scorecard CORPUS=DIR`: it prints each case, what was
said and the figures, and ends with 1 where a verdict is wrong. Nothing in the folder is written. A file that can't be used
is named in one sentence. Into the project it goes as `tests/scorecard/cases/NNN-what-happens.jsonl`.

A recording of your own: `astraeus-controller record FILE`, then the fault, then the verdict line before it. Names of users,
jobs and nodes are in it; `python -m scorecard.recorded` cuts one job out and renames the machine.

```json
{"kind": "verdict", "title": "rank 5 of 8 is stopped by SIGSTOP", "source": "made up", "expect": "stalled", "fault_at": 50120.0, "after": 60, "within": 80, "suspect_within": 30, "rank": 5, "worker": "1001-5"}
{"kind": "meta", "now": 50000.0, "wall": 1791378000.0, "data": {"v": 1, "cluster": "lab", "started": 1791378000.0}}
```

Fields of the verdict line; what is left out is not asked, and a field that is not in this table is refused:

"""


def kept() -> dict[str, Any]:
    """The figures that were kept; {} where there are none yet."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def figures_table(found: dict[str, Any]) -> str:
    """Each figure, its goal, and the same of real recordings."""
    lines = ["| figure | all | recorded | goal | what |", "|---|---|---|---|---|"]
    lines += [f"| `{one.name}` | {_value(found[one.name])} | {_value(found['recorded'][one.name])} | "
              f"{'' if one.goal is None else ('≥ ' if one.up else '≤ ') + _value(one.goal)} | {one.words} |"
              for one in FIGURES]
    return "\n".join(lines) + "\n"


def markdown(rows: Sequence[Row]) -> str:
    """The whole page."""
    parts = [HEAD, figures_table(document(rows)), ADDING + "| field | what it means |\n|---|---|\n" + "".join(
        f"| `{name}` | {words} |\n" for name, words in fields())]
    parts.append("## Posted reports\n\nReal reports that a naive version gets wrong, and the cases that hold them; or why a "
                 "judge of recordings can't see them, and where they are tested instead.\n\n"
                 "| no. | what happened | posted in | cases |\n|---|---|---|---|\n"
                 + "".join(f"| {one.number:02} | {one.what} | {one.source} | {one.where} |\n" for one in POSTED))
    parts.append("## Cases\n\n`suspect`, `found`: seconds from the fault.\n\n"
                 "| case | expected | suspect | found | what happens | what was said |\n|---|---|---|---|---|---|\n"
                 + "".join(_line(row) for row in rows))
    return "\n".join(parts)


def _line(row: Row) -> str:
    found = row.stalled_after if row.stalled_after is not None else row.straggler_after
    return (f"| {row.name} | {row.expected} | {_seconds(row.suspect_after)} | {_seconds(found)} | "
            f"{_cell(row.title)} | {_cell(row.said)} |\n")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _cell(text: str, most: int = 220) -> str:
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
    return text if len(text) <= most else text[:most - 1].rstrip() + "…"


def written(rows: Sequence[Row]) -> dict[Path, str]:
    """Path to text of what a run makes."""
    return {PAGE: markdown(rows), KEPT: json.dumps(document(rows), indent=1) + "\n"}
