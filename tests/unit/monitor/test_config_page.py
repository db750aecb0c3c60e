"""docs/monitor.toml is what the table of keys says."""

from __future__ import annotations

from pathlib import Path

import pytest
from astraeus_monitor.main import main


def test_page_is_in_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) in (0, None)
    page = Path(__file__).parents[3] / "docs" / "monitor.toml"
    assert capsys.readouterr().out == page.read_text(), "make docs"
