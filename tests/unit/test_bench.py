"""The bench: its figures and goals are those of the page and of the kept file; how it counts what a tree costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import __main__ as program
from bench.cost import cost_of
from bench.figures import GOALS, NAMES, OTHERS, Figures, Goal, document, holds, table
from bench.node import GPUS, LINKS, SOCKETS, THREADS_MAX, THREADS_MIN, _ring, _step_lines, threads_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "performance.md").read_text(encoding="utf-8")


def test_the_page_s_goals_are_the_table_s() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) (.+?) \| (.+?) \|$",
                      PAGE.partition("<!-- goals -->")[2].partition("<!-- /goals -->")[0], re.MULTILINE)
    assert [Goal(name, float(most), unit, what) for name, most, unit, what in rows] == list(GOALS)


def test_the_page_explains_every_figure() -> None:
    explained = PAGE.partition("<!-- /goals -->")[2]
    assert [name for name in NAMES if f"`{name}`" not in explained] == []


def test_the_kept_file_holds_every_figure_and_what_makes_it_believable() -> None:
    kept = json.loads((DOCS / "bench-monitor.json").read_text())
    assert set(kept) == {*NAMES, "goals", "machine", "spread", "beside"}
    assert all(isinstance(kept[name], float | int) and kept[name] > 0 for name in NAMES)
    assert kept["goals"] == {goal.name: goal.most for goal in GOALS}
    assert set(kept["machine"]) == {"date", "commit", "kernel", "cpu", "cores", "python", "load", "load_after"}
    assert set(kept["spread"]) >= {goal.name for goal in GOALS} - {"idle_wakes_per_min", "idle_pss_mib"}
    assert set(kept["beside"]) == {"8 ranks", "64 ranks"}


def test_goals_are_those_that_were_set() -> None:
    assert {goal.name: goal.most for goal in GOALS} == {
        "cpu_percent_8": 0.06, "pss_mib_8": 30, "cpu_percent_64": 0.4, "prolog_ms": 5, "spank_ms": 0.5,
        "idle_wakes_per_min": 1, "idle_pss_mib": 20}


def test_a_table_tells_ok_over_and_what_is_missing() -> None:
    figures = Figures()
    figures.put("cpu_percent_8", 0.0604)
    figures.median("prolog_ms", [9, 4.99, 5.01, 6, 1])
    lines = table(figures, {"spank": "spank_ms: needs a C compiler", "64": "no root"}).splitlines()
    by_name = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert by_name["cpu_percent_8"][:3] == ["0.060", "0.06", "ok"]
    assert by_name["prolog_ms"][:3] == ["5.010", "5", "OVER"]
    assert by_name["spank_ms"][:2] == ["-", "0.5"]
    assert lines[-2:] == ["not measured: spank_ms: needs a C compiler", "not measured: no root"]
    assert figures.spread["prolog_ms"] == {"runs": 5, "least": 1, "median": 5.01, "most": 9}


@pytest.mark.parametrize(("value", "good"), [(0.06, True), (0.0605, True), (0.0609, False), (0.07, False)])
def test_a_goal_is_met_to_its_third_digit(value: float, good: bool) -> None:
    assert holds(GOALS[0], value) is good


def test_a_document_needs_every_figure() -> None:
    figures = Figures(dict.fromkeys(NAMES, 1.0))
    assert list(document(figures, {}))[:len(NAMES)] == list(NAMES)
    del figures.values[OTHERS[0]]
    with pytest.raises(KeyError):
        document(figures, {})


def test_a_cost_counts_children_that_live_and_that_have_ended() -> None:
    """One burns 60 ms itself, one in a child that it waits for, one in a child that lives on."""
    burn = "import time\nwhile time.process_time() < 0.06: pass\n"
    code = (f"import subprocess, sys\nburn = {burn!r}\nexec(burn)\n"
            "subprocess.run([sys.executable, '-c', burn])\n"
            "child = subprocess.Popen([sys.executable, '-c', burn + 'print(1, flush=True); input()'], "
            "stdin=subprocess.PIPE)\nsys.stdin.read()\nchild.kill()\n")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        cost = cost_of(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert cost.processes == 2
    assert 0.17 < cost.cpu_s < 2
    assert 1 < cost.pss_mib <= cost.alone_mib < 200
    with pytest.raises(ProcessLookupError):
        cost_of(process.pid)


def test_what_a_machine_lacks_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(program.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert program.lacking("8") == (
        "cpu_percent_8 and pss_mib_8: run make bench as root, as Slurm runs Prolog and the monitor")
    monkeypatch.setattr(program.shutil, "which", lambda name: None)
    assert {program.lacking(part).partition(": ")[2] for part in program.PARTS} == {"needs a C compiler and make"}
    assert {name for names in program.PARTS.values() for name in names} == {goal.name for goal in GOALS}


def test_ranks_are_as_the_page_says() -> None:
    assert (threads_of(0, 8), threads_of(7, 8), threads_of(63, 64)) == (THREADS_MIN, THREADS_MAX, THREADS_MAX)
    ends = _ring(3)
    try:
        assert [len(mine) for mine in ends] == [SOCKETS] * 3
        here = {(end.getsockname(), end.getpeername()) for end in ends[0]}
        there = {(end.getpeername(), end.getsockname()) for end in ends[1]}
        assert len(here & there) == LINKS
    finally:
        for end in (end for mine in ends for end in mine):
            end.close()


def test_a_step_file_is_the_plugin_s() -> None:
    from astraeus_protocol.jobfile import parse_step_lines

    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    (word, step), *tasks = parse_step_lines(_step_lines(7, [os.getpid()] * 2))
    assert (word, step["step"], step["tasks"], step["stepd"]) == ("step", "0", "2", str(os.getpid()))
    assert float(step["at"]) == pytest.approx(before, abs=1)
    assert [word for word, _ in tasks] == ["task", "gpus"] * 2
    assert tasks[2][1]["rank"] == "1"
    assert tasks[3][1]["visible"] == str(GPUS // 2)
