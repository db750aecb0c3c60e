"""Recordings are read back as they were written, and a bad one is refused by its line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from astraeus_controller import recording
from astraeus_controller.config import Config, Watch
from astraeus_controller.recording import RecordingFault, Writer, read
from astraeus_controller.replay import replay
from astraeus_controller.slurm.types import JobFacts, JobRow, Snapshot
from astraeus_protocol.devices import Gpu
from astraeus_protocol.report import Job, Process, Report, Step, Worker


def write(minutes: int = 4) -> str:
    """A GPU job that falls silent at second 60."""
    file = io.StringIO()
    writer = Writer(file)
    writer.meta("lab", 100.0, 1_791_378_000.0)
    writer.config('[watch]\nstall_after = "60s"\nstall_action = "restart"\n', 100.0, 1_791_378_000.0)
    for t in range(0, minutes * 60, 15):
        now, wall = 100.0 + t, 1_791_378_000.0 + t
        quiet = max(0.0, t - 60.0)
        task = Worker(rank=0, pid=42, writing_s=0, output_s=quiet, processes=[Process(pid=42, start=1)],
                      gpus=[Gpu(index=0, busy=0.0, idle_s=quiet, ever_busy=True)])
        job = Job(job=7, nonce="n", gpus=[0], steps=[Step(step="batch", workers=[task])])
        writer.report(Report(node="c1", boot="b", session="s", seq=t, nonce=str(t), at=wall, jobs=[job]), now, wall)
        if t == 15:
            writer.job(JobFacts(job=7, state="RUNNING", batch=True, name="llm"), now, wall)
            writer.slurm(Snapshot(jobs=(JobRow(job=7, state="RUNNING"),)), now, wall)
    return file.getvalue()


def lines(**more: Any) -> list[str]:
    return write(**more).splitlines(keepends=True)


def test_round_trip() -> None:
    found = list(read(lines()))
    assert [line.kind for line in found[:3]] == ["meta", "config", "report"]
    assert found[0].data == recording.Meta(v=1, cluster="lab", started=1_791_378_000.0)
    assert isinstance(found[2].data, Report)
    assert (found[2].now, found[2].wall) == (100.0, 1_791_378_000.0)


def test_replay_says_findings_and_would_be_actions() -> None:
    said = list(replay(lines()))
    assert [(c["kind"], c.get("action")) for c in said] == [
        ("open", None), ("action", "annotate"), ("action", "restart")]
    assert said[0]["now"] == 220.0
    assert said[0]["finding"]["worker"] == "7-0"
    assert said[0]["event"]["message"] == (
        "Stalled: No progress for 60s: no output since 13:01 UTC; its GPU idle since 13:01 UTC")
    assert (said[1]["would"], said[2]["key"]) == (False, "lab/7/0/batch/stalled/7-0")


def test_another_configuration_goes_over_the_recordings_own() -> None:
    assert list(replay(lines(), Config(watch=Watch(stall_after="5m")))) == []


def test_replay_twice_is_the_same() -> None:
    assert list(replay(lines())) == list(replay(lines()))


def test_unknown_kinds_empty_lines_and_a_cut_end_are_left_out() -> None:
    found = lines()
    spoiled = ['{"kind":"verdict","expect":"stalled"}\n', "\n", *found, found[-1][:40]]
    assert len(list(read(spoiled))) == len(found)


@pytest.mark.parametrize(("text", "words"), [
    ("no json\n", "line 2 is no line of a recording"),
    ('{"kind":"report","data":{"node":3}}\n', "line 2 is no line of a recording"),
    ('{"kind":"meta","data":{"v":2,"cluster":"x","started":0}}\n',
     "line 2: a recording of format 2; this version reads format 1"),
])
def test_bad_lines_are_refused(text: str, words: str) -> None:
    with pytest.raises(RecordingFault, match=words):
        list(read([lines()[0], text]))
