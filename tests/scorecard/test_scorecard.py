"""Every recording gets its right verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scorecard.generate import CASES, recordings
from scorecard.recorded import cut, is_recorded, named
from scorecard.score import FOLDER, score


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_verdict(path: Path) -> None:
    row = score(path)
    assert not row.faults, f"{row.title}: " + "; ".join(row.faults)


def test_the_files_are_what_the_generator_writes() -> None:
    """``python -m scorecard.generate`` was run after the last change of it, and writes the same each time."""
    made = recordings()
    assert sorted(made) == sorted(path.stem for path in FOLDER.glob("*.jsonl") if not is_recorded(path))
    assert len(CASES) == len(made)
    for name, text in made.items():
        assert (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8") == text, name


def test_a_cut_holds_one_job_and_nothing_of_its_machine() -> None:
    def report(now: float, *jobs: int) -> dict[str, object]:
        data = {"node": "c1", "boot": "4f0c", "session": "x", "seq": 1, "nonce": "q", "cluster": "mine"}
        return {"kind": "report", "now": now, "data": data | {"jobs": [{"job": job} for job in jobs]}}

    lines = [{"kind": "meta", "now": 1, "data": {"v": 1, "cluster": "mine"}}, report(5, 6), report(20, 6, 7),
             *({"kind": "job", "now": 21, "data": {"job": job}} for job in (6, 7)),
             {"kind": "slurm", "now": 22, "data": {"jobs": [{"job": 6}, {"job": 7}]}}, report(40, 7)]
    kept = list(cut(map(json.dumps, lines), 7, 30))
    assert [(line["kind"], line["now"]) for line in kept] == [("meta", 1), ("report", 20), ("job", 21), ("slurm", 22)]
    assert kept[1]["data"] == {"node": "c1", "boot": "boot-c1", "session": "s-c1", "seq": 1, "nonce": "c1-1",
                               "cluster": "lab", "jobs": [{"job": 7}]}
    assert kept[3]["data"]["jobs"] == [{"job": 7}]
    assert named("torch by srun, dl_stop") == "torch-srun-dl-stop"
