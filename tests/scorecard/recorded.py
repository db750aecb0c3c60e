"""Cuts one job's part out of a recording of many, as a case of the scorecard:

PYTHONPATH=tests python -m scorecard.recorded RECORDING VERDICTS

RECORDING is what `astraeus-controller record` wrote while tests/cluster/test_frameworks.py ran with
ASTRAEUS_VERDICTS=VERDICTS; that file has a line for each of its trainings. Cases are numbered from 201 on; one whose
name is there already is written anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorecard.score import FOLDER

FIRST = 201
"""Numbers below are the generator's."""


def is_recorded(path: Path) -> bool:
    return int(path.stem.partition("-")[0]) >= FIRST


def cut(lines: Iterable[str], job: int, until: float) -> Iterator[dict[str, Any]]:
    """The recording's lines that concern the job, up to ``until`` (its own clock), with what would tell whose machine
    it was on taken out. From its first report on: a gang's ties are sent once."""
    for text in lines:
        line = json.loads(text)
        kind, data = line["kind"], line["data"]
        if kind == "meta":
            data["cluster"] = "lab"
        elif line["now"] > until:
            return
        elif kind == "job" and data["job"] != job:
            continue
        elif kind in ("slurm", "report"):
            data["jobs"] = [part for part in data.get("jobs", []) if part["job"] == job]
            if not data["jobs"]:
                continue
        if kind == "report":
            node = data["node"]
            data |= {"boot": f"boot-{node}", "session": f"s-{node}", "nonce": f"{node}-{data['seq']}", "cluster": "lab"}
        yield line


def named(title: str) -> str:
    """"torch by srun, sleep" is torch-srun-sleep."""
    return re.sub(r"[^a-z0-9.]+", "-", title.replace(" by ", " ").lower()).strip("-")


def verdict_line(row: dict[str, Any]) -> dict[str, Any]:
    """What the scorecard holds the recording against."""
    own = ("job", "until", "seen_at")
    kept = {key: value for key, value in row.items() if key not in own}
    return {"kind": "verdict", "source": "recorded: real ranks in a Slurm step"} | kept


def main(arguments: list[str]) -> int:
    recording, verdicts = map(Path, arguments)
    there = {path.stem.partition("-")[2]: path for path in FOLDER.glob("*.jsonl") if is_recorded(path)}
    number = max([FIRST - 1, *(int(path.stem.partition("-")[0]) for path in there.values())])
    for text in verdicts.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        name = named(row["title"])
        if name not in there:
            number += 1
            there[name] = FOLDER / f"{number}-{name}.jsonl"
        with recording.open(encoding="utf-8") as lines:
            kept = [verdict_line(row), *cut(lines, row["job"], row["until"])]
        there[name].write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept),
                               encoding="utf-8")
        print(f"{there[name].name}: {there[name].stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
