"""Every recording gets its right verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from scorecard.generate import CASES, recordings
from scorecard.recorded import is_recorded
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
