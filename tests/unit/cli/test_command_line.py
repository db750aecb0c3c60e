"""``astraeus`` without a controller, with hostile names, and how long it takes."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from astraeus_cli import main as cli
from astraeus_cli import text

NOW = datetime(2026, 11, 29, 14, 14, tzinfo=UTC)
STALL = {"run": "123", "run_name": "llm", "job": 123, "worker": "123-5", "machine": "c3",
         "stall": {"since": "2026-11-29T14:02:00Z", "evidence": "no output since 14:02 UTC; rank 5 …"}}


def test_lines() -> None:
    answer = {"stalled": [STALL], "suspects": [STALL | {"worker": "124-1", "run_name": ""}]}
    assert list(text.stalls(answer, NOW)) == [
        "STALLED  123-5 (run 123 llm, on c3) since 14:02: no output since 14:02 UTC; rank 5 …",
        "SUSPECT  124-1 (run 123, on c3) since 14:02: no output since 14:02 UTC; rank 5 …"]
    told = STALL | {"id": 17, "incident": 3, "stall": STALL["stall"] | {"cause": "rank \x1bstopped"}}
    assert next(text.stalls({"stalled": [told]}, NOW)).endswith(
        "; rank 5 …; cause: rank \\x1bstopped; evidence 17; incident 3")
    yesterday = STALL | {"stall": {"since": "2026-11-28T23:50:00Z", "evidence": "x"}}
    assert "since 2026-11-28 23:50: x" in next(text.stalls({"stalled": [yesterday]}, NOW))


def test_hostile_names_do_nothing() -> None:
    assert text.safe("a\x1b]0;x\x07\nb\u202ec\ud800") == "a\\x1b]0;x\\x07\\nb\\u202ec\\ud800"


def test_spans() -> None:
    assert [text.span(s) for s in (0, 59, 119, 120, 7199, 7200, 172800, None)] == [
        "0s", "59s", "119s", "2m", "119m", "2h", "2d", "-"]


def test_table_leaves_out_empty_columns() -> None:
    assert list(text.table(("A", "B", "C"), [["1", "-", "x"], ["22", "-", "-"]])) == ["A   C", "1   x", "22  -"]


def test_last_words_of_a_step() -> None:
    step = {"step": "0", "tasks": 8, "watched": True, "stall_after_s": 1800, "action": "restart", "ended": False,
            "last_output_at": "2026-11-29T14:02:00Z", "finished": None}
    answer = {"run": "123", "run_name": "llm", "restarts": 0, "ended": False, "state": "RUNNING", "machines": "c1",
              "reason": "x", "silent_machines": [], "workers": [], "steps": [step]}
    line = "  step 0: 8 tasks, stalled after 30m, restart; last output 12m ago"
    assert list(text.progress(answer, NOW))[1] == line
    step["finished"] = {"line": "Training\x1b[0m done", "since": "2026-11-29T14:02:00Z"}
    assert list(text.progress(answer, NOW))[1] == line + '; finished but not exited: last words "Training\\x1b[0m done"'


def test_rails_of_which_something_is_off() -> None:
    words = "rail mlx5_1: is DOWN, \x1b[31mPolling"
    rails = [{"node": f"c{n}", "off": [words] if n != 2 else []} for n in range(1, 16)]
    answer = {"run": "1", "run_name": "", "restarts": 0, "ended": False, "state": "RUNNING", "machines": "c1",
              "reason": "", "steps": [], "silent_machines": [], "workers": [], "rails": rails[:2],
              "rails_unknown": [{"node": "c3", "reason": "mlx5_0 does not answer"}]}
    assert list(text.progress(answer, NOW))[1:] == [
        "  c1: rail mlx5_1: is DOWN, \\x1b[31mPolling", "  c3: rails unknown: mlx5_0 does not answer"]
    assert list(text.progress(answer | {"rails": rails}, NOW))[-1] == "  and 3 rails more; --json shows all"


def test_incidents() -> None:
    jobs = [{"run": "120_4", "stalled": False}, {"run": "124", "stalled": True}]
    one = {"incident": 3, "opened_at": "2026-11-29T14:02:05Z", "closed_at": None, "jobs": jobs, "others": 2,
           "said": "4 jobs wait on store1:/\x1bexport"}
    assert text.incidents({"incidents": [one]}, NOW) == [
        "INCIDENT 3  since 14:02: 4 jobs wait on store1:/\\x1bexport: 124, 2 of other users; no longer stalled: 120_4"]
    over = one | {"closed_at": "2026-11-29T14:31:00Z", "others": 0}
    assert text.incidents({"incidents": [over]}, NOW) == [
        "INCIDENT 3  since 14:02-14:31, over: 4 jobs wait on store1:/\\x1bexport: 120_4, 124"]


def test_history() -> None:
    events = {"events": [{"at": "2026-11-29T14:14:05Z", "worker": "123-5", "run": "123", "message": "Stalled: a\nb"}]}
    assert list(text.history(events)) == ["2026-11-29 14:14:05  123-5  Stalled: a\\nb"]
    [event] = events["events"]
    told = {"events": [event | {"kind": "stalled", "details": {"stall": {"cause": "rank stopped"}}}]}
    assert list(text.history(told)) == ["2026-11-29 14:14:05  123-5  Stalled: a\\nb; cause: rank stopped"]


def test_no_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRAEUS_SOCKET", str(tmp_path / "none"))
    assert cli.main(["stalls"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"astraeus: no controller answers on {tmp_path}/none; ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [["progress", "abc"], ["progress"], ["nothing"], [], ["history", "1.2.3"]])
def test_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(args)
    assert left.value.code == 2
    assert capsys.readouterr().err


def test_quick(tmp_path: Path) -> None:
    """An answer is promised within 150 ms; the start of the interpreter is most of it."""
    code = ("import time; t = time.perf_counter(); from astraeus_cli import main; "
            f"main.main(['stalls', '--socket', '{tmp_path}/none']); print(time.perf_counter() - t)")

    def took() -> float:
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
        return float(out.stdout)

    assert any(took() < 0.15 for _ in range(15))  # the best of some, so that other work on the machine does not count


