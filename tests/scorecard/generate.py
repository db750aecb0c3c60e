"""Writes the recordings: ``PYTHONPATH=tests python -m scorecard.generate``. The same bytes each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scorecard.causes import CAUSES
from scorecard.hung import HUNG
from scorecard.lookalikes import LOOKALIKES
from scorecard.outages import OUTAGES
from scorecard.ras import RAS
from scorecard.recording import record
from scorecard.said import SAID
from scorecard.stacks import STACKS
from scorecard.stalls import STALLS
from scorecard.stragglers import STRAGGLERS
from scorecard.world import World

Case = Callable[[], tuple[World, dict[str, Any], str]]
CASES: dict[str, Case] = {**STALLS, **LOOKALIKES, **OUTAGES, **HUNG, **STACKS, **SAID, **RAS, **CAUSES, **STRAGGLERS}


def recordings() -> dict[str, str]:
    """Name to text of every recording."""
    return {name: record(*case()) for name, case in CASES.items()}


def main() -> None:
    from scorecard.recorded import is_recorded
    from scorecard.score import FOLDER

    for old in FOLDER.glob("*.jsonl"):
        if old.stem not in CASES and not is_recorded(old):
            old.unlink()
    for name, text in recordings().items():
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
