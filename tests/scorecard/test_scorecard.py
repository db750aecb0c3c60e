"""The scorecard itself: its files, its sentences, its figures and its ratchet. The cases: ``make scorecard``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from scorecard.__main__ import main
from scorecard.figures import BY_NAME, FIGURES, document, fallen, missed
from scorecard.generate import CASES, recordings
from scorecard.page import PAGE, figures_table, kept
from scorecard.recorded import cut, is_recorded, named
from scorecard.score import FOLDER, Row, score
from scorecard.sizes import CASES as SIZED
from scorecard.verdict import CaseFault, paths, read


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


def line(**more: object) -> str:
    return json.dumps({"kind": "verdict", "title": "x", "source": "made up", "expect": "nothing"} | more) + "\n"


@pytest.mark.parametrize(("text", "says"), [
    ("", "its first line is no verdict line"),
    ('{"kind": "meta"}\n', "its first line is no verdict line"),
    (line(expect="hung") + "{}\n", "its first line is no verdict line"),
    (line(gulity=5) + "{}\n", "gulity"),
    (line(expect="stalled", after=60, within=80) + "{}\n", "lacks fault_at, which a case that expects stalled needs"),
    (line(expect="straggler", fault_at=1, within=80, worker="1-2") + "{}\n", "lacks rank"),
    (line(), "no recording stands below its verdict line"),
])
def test_a_bad_case_is_named_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "1-mine.jsonl"
    path.write_text(text)
    with pytest.raises(CaseFault, match=r"1-mine\.jsonl") as fault:
        read(path)
    assert says in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_strangers_folder_is_run_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER / "01-member-stopped.jsonl").read_text()
    before = PAGE.read_text()
    (tmp_path / "mine.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert main(["--corpus", str(tmp_path)]) == 0
    assert "1 of 1 right" in capsys.readouterr().out
    (tmp_path / "mine.jsonl").write_text(text.replace('"rank": 5,', '"rank": 6,', 1))
    assert main(["--corpus", str(tmp_path)]) == 1
    assert "rank is 5, not 6" in capsys.readouterr().out
    (tmp_path / "mine.jsonl").write_text(text.splitlines()[0] + "\nnonsense\n")
    assert main(["--corpus", str(tmp_path)]) == 2
    assert "mine.jsonl, below its verdict line: line 1 is no line of a recording" in capsys.readouterr().err
    assert main(["--corpus", str(tmp_path / "none")]) == 2
    assert "holds no case" in capsys.readouterr().err
    assert PAGE.read_text() == before


def row(name: str) -> Row:
    return score(read(FOLDER / f"{name}.jsonl"))


def test_figures_count_what_they_say() -> None:
    rows = [row(name) for name in ("01-member-stopped", "08-half-stopped", "51-busy-and-quiet", "181-gpu-heat")]
    found = document(rows)
    assert (found["faults"], found["lookalikes"], found["wrong_actions"]) == (3, 1, 0)
    assert (found["precision"], found["recall"], found["right_rank"], found["named_wrongly"]) == (1, 1, 1, 0)
    assert (found["suspect_p90_s"], found["straggler_p90_s"]) == (15, 35)
    assert found["recorded"]["precision"] is None


def test_a_wrong_verdict_costs_its_figures(tmp_path: Path) -> None:
    text = (FOLDER / "01-member-stopped.jsonl").read_text().splitlines(keepends=True)
    verdict = json.loads(text[0])

    def rows(**more: object) -> Row:
        (tmp_path / "x.jsonl").write_text(json.dumps(verdict | more) + "\n" + "".join(text[1:]))
        return score(read(tmp_path / "x.jsonl"))

    alike = document([rows(expect="nothing")])
    assert (alike["wrong_actions"], alike["precision"]) == (1, 0)
    assert document([rows(rank=6)])["right_rank"] == 0
    assert document([rows(rank=None, pid=None)])["named_wrongly"] == 1
    early = document([rows(fault_at=verdict["fault_at"] + 70)])
    assert (early["wrong_actions"], early["recall"]) == (1, 0)
    assert document([rows(finished="Training completed")])["wrong_actions"] == 1


def test_the_ratchet_and_the_goals() -> None:
    now = kept()
    assert missed(now) == fallen(now, now) == []
    worse = now | {"precision": 0.97, "suspect_p90_s": 31.0}
    assert fallen(worse, now) == ["precision is 0.97, it was 1", "suspect_p90_s is 31 s, it was 30 s"]
    assert missed(worse) == ["precision is 0.97, its goal is 0.98", "suspect_p90_s is 31 s, its goal is 30 s"]
    assert fallen(now | {"recorded": now["recorded"] | {"faults": 3}}, now)[0].startswith("recorded: faults is 3")
    assert fallen(now, {}) == []
    assert missed(now | {"wrong_actions": 1}) == ["wrong_actions is 1, its goal is 0"]


def test_the_page_holds_the_kept_figures() -> None:
    assert figures_table(kept()) in PAGE.read_text(encoding="utf-8")
    assert {figure.name for figure in FIGURES} == set(kept()) - {"recorded"} == set(BY_NAME)


def test_causes_come_in_several_sizes_and_generators_know_no_rule() -> None:
    assert {int(name.rpartition("-")[2]) for name in SIZED} == {2, 8, 64, 256, 1024}
    for path in FOLDER.parent.glob("*.py"):
        if not path.name.startswith("test_") and path.name not in ("score.py", "__main__.py", "verdict.py"):
            assert "astraeus_controller" not in path.read_text(encoding="utf-8"), path.name
    assert sum(is_recorded(path) for path in paths(FOLDER)) >= 30
