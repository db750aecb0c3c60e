"""``astraeus stacks``: its lines, its waiting, its exit status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from astraeus_cli import client, stacks
from astraeus_cli import main as cli

NOW = datetime(2026, 11, 29, 14, 14, tzinfo=UTC)
STEP = {"step": "0", "said": "7 ranks in all_reduce (train.py:88) · rank 5 in next_batch (loader.py:41)", "unknown": [],
        "groups": [{"ranks": "0-4,6,7", "count": 7, "machines": "c[1-4]", "frames": [
                       "all_reduce (train.py:88)", "m (t:1)"]},
                   {"ranks": "5", "count": 1, "machines": "c3", "frames": ["next_batch (loader\x1b.py:41)"]}]}
ANSWER: dict[str, Any] = {
    "run": "123", "job": 123, "ask": "a1", "at": "2026-11-29T14:13:00Z", "native": False, "done": True,
    "machines": ["c1", "c3"], "waiting_for": [], "steps": [STEP], "processes": [], "unknown": []}


def test_groups() -> None:
    assert list(stacks.lines(ANSWER, NOW)) == [
        "7 ranks in all_reduce (train.py:88) · rank 5 in next_batch (loader.py:41)", "",
        "ranks 0-4,6,7 on c[1-4]:", "    all_reduce (train.py:88)", "    m (t:1)", "",
        "rank 5 on c3:", "    next_batch (loader\\x1b.py:41)", "read at 14:13 UTC; --json shows all threads"]
    assert stacks.verdict(ANSWER) == 0


def test_what_is_not_there() -> None:
    missing = ANSWER | {"done": False, "waiting_for": ["c3"], "steps": [STEP | {"groups": [], "unknown": [
        {"ranks": "5", "count": 1, "reason": "a debugger holds it"}]}],
        "unknown": [{"machine": "c1", "reason": "py-spy is not installed"}]}
    assert list(stacks.lines(missing, NOW))[1:] == [
        "rank 5: unknown: a debugger holds it", "c1: unknown: py-spy is not installed",
        "not there yet: c3 (asked at 14:13 UTC; astraeus stacks 123 --last shows it once it has come)",
        "read at 14:13 UTC; --json shows all threads"]
    assert stacks.verdict(missing) == 4
    assert stacks.verdict(ANSWER | {"steps": []}) == 4


def test_it_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, str]] = []

    def get(path: str, where: str, method: str = "GET") -> Any:
        asked.append((method, path))
        return ANSWER | ({} if len(asked) > 2 else {"done": False, "waiting_for": ["c3"]})

    monkeypatch.setattr(client, "get", get)
    monkeypatch.setattr(stacks, "EVERY_S", 0.01)
    assert cli.main(["stacks", "123.0", "--native"]) == 0
    assert asked == [("POST", "/runs/123.0/stacks?native"), *[("GET", "/runs/123.0/stacks?ask=a1")] * 2]
    assert cli.main(["stacks", "123", "--last", "--json"]) == 0
    assert asked[-1] == ("GET", "/runs/123/stacks")
    assert '"ask": "a1"' in capsys.readouterr().out


def test_it_waits_for_what_is_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [client.Problem(423, "busy"), client.Problem(423, "busy"), ANSWER]

    def get(path: str, where: str, method: str = "GET") -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(client, "get", get)
    monkeypatch.setattr(stacks, "EVERY_S", 0.01)
    assert cli.main(["stacks", "123", "--json"]) == 0
    answers += [client.Problem(404, "none")]
    assert cli.main(["stacks", "123"]) == 3


def test_a_time_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["stacks", "123", "--wait", "0"])
    assert "write seconds, 1 to 600" in capsys.readouterr().err
