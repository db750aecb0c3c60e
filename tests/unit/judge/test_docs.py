"""docs/rules.md and docs/report.md are true to the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from astraeus_controller import rules_docs
from astraeus_controller.recording import read
from astraeus_controller.rules import (
    collective_ras,
    collective_stuck,
    gpus_idle,
    metric,
    node_silent,
    nothing_runs,
    silent,
    spin_power,
    suspect,
    words,
)
from astraeus_controller.rules.limits import TABLE, markdown
from astraeus_protocol.report import REPORT_DECODER, Report

from .report_doc import DOC, with_tables

RULES = (DOC.parent / "rules.md").read_text(encoding="utf-8")


def test_numbers_are_the_tables() -> None:
    assert RULES.split("<!-- limits -->\n")[1] == markdown()


def test_the_man_page_is_the_tables() -> None:
    page = (DOC.parent.parent / rules_docs.MAN).read_text(encoding="utf-8")
    assert page == rules_docs.man(), "make docs"
    assert page.count(".TP\n.BR ") == len(TABLE)
    assert not re.search(r"^[.'](?![A-Za-z])", page, re.MULTILINE), "a line that is no command begins as one"
    assert rules_docs.rules_page(RULES) == RULES


def test_every_rule_has_its_heading() -> None:
    names = {collective_stuck.RULE, gpus_idle.RULE, gpus_idle.NEVER, metric.RULE, node_silent.RULE, silent.RULE,
             suspect.RULE, spin_power.RULE, words.RULE, collective_ras.RULE, nothing_runs.RULE}
    assert names <= set(re.findall(r"^#+ `(\w+)`$", RULES, re.MULTILINE))


def test_headings_that_the_code_speaks_of_are_there() -> None:
    """Once docstrings named headings that had been called otherwise for long."""
    root = DOC.parent.parent
    found = 0
    for path in [path for folder in ("controller", "monitor", "protocol", "cli")
                 for path in (root / folder).rglob("*.py")]:
        for page, heading in re.findall(r'docs/(\w+\.md), "([^"]+)"', path.read_text(encoding="utf-8")):
            headings = re.findall(r"^#+ (.+)$", (DOC.parent / page).read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {one.strip("`") for one in headings}, (path.name, heading)
            found += 1
    assert found > 5


def test_no_rule_holds_a_number_of_its_own() -> None:
    folder = Path(collective_stuck.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.name in ("limits.py", "picture.py", "say.py"):
            continue
        code = re.sub(r'""".*?"""|"[^"\n]*"|#.*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        # Places, halves, and how much evidence is kept are no thresholds.
        assert set(re.findall(r"\b\d+(?:\.\d+)?\b", code)) <= {"0", "1", "2", "0.0", "32", "64"}, path.name


def test_fields_are_those_of_the_wire_types() -> None:
    text = DOC.read_text(encoding="utf-8")
    assert text == with_tables(text)


def test_examples_can_be_read() -> None:
    text = DOC.read_text(encoding="utf-8")
    example, lines = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    report = REPORT_DECODER.decode(example)
    assert set(json.loads(example)) == set(Report.__struct_fields__), "the example shows every field of a report"
    assert report.jobs[0].steps[0].workers[0].processes[0].pulse_gone_s == 0
    assert [line.kind for line in read(lines.splitlines(keepends=True))] == [
        "meta", "config", "slurm", "job", "report"]
