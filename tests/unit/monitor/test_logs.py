"""Whose words a job's output files hold, which files are read on, and what of them counts as output."""

from __future__ import annotations

import selectors

import msgspec
import pytest
from astraeus_monitor.clock import Clock
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.host.userfile import MAX_HOLDERS
from astraeus_monitor.probes.children import Probes
from astraeus_monitor.probes.follow import Counted, FileRead, FollowAsk
from astraeus_monitor.probes.look import File, SrunLook, TaskLook
from astraeus_monitor.rounds.follower import Followers
from astraeus_monitor.sources.nccl_log import Word
from astraeus_monitor.watch import logs
from astraeus_monitor.watch.logs import NO_INODE, SHARED, JobLogs

from .conftest import FakeProc
from .test_job import Lab, lab  # noqa: F401 - a fixture

WORD = Word("stuck", "nccl", "it timed out", rank=2, op="ALLREDUCE", seq=8)


def see(lab: Lab, files: dict[int, list[File]], shared: list[File] | None = None, seconds: float = 15) -> None:  # noqa: F811
    """A look that finds these files: by rank, and held by the step's srun."""
    lab.now += seconds
    step = lab.job.steps["0"]
    step.sruns = [(60, 60)] if shared else []
    tasks = [TaskLook("0", rank, [ProcLook(100 + rank, 100 + rank, 1, "python", "S", 0, 60.0, "python", 0, "", "",
                                           None)], found) for rank, found in files.items()]
    lab.job.see(tasks, [SrunLook("0", 60, 60, 1000, 1, shared)] if shared else [], lab.now)


def ask(lab: Lab, **more: bool) -> FollowAsk | None:  # noqa: F811
    """What is asked, as at a look at which no file is passed over."""
    for log in lab.job.logs.files.values():
        log.passed_over = True
    return lab.job.logs.ask(lab.job, lab.now, **more)


def answer(lab: Lab, asked: FollowAsk | None, *answers: FileRead | Counted, why: str = "") -> None:  # noqa: F811
    assert asked
    logs.take(lab.job, asked, list(answers), lab.now, why)


def test_words_of_a_workers_own_file_and_of_one_that_all_share(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/out-2", 12, 50)], 3: [File("/out-3", 13, 50)]}, [File("/out", 11, 500)])
    asked = ask(lab)
    assert asked
    assert [(one.ino, one.offset, one.pos, one.tasks) for one in asked.files] == [
        (11, None, 500, 4), (12, None, 50, 0), (13, None, 50, 0)]
    answer(lab, asked, FileRead(11, 500, b"x"), FileRead(12, 50), FileRead(13, 50))
    assert ask(lab) is None  # nothing moved
    see(lab, {2: [File("/out-2", 12, 90)], 3: [File("/out-3", 13, 50)]}, [File("/out", 11, 500)])
    asked = ask(lab)
    assert asked
    assert [(one.ino, one.offset) for one in asked.files] == [(12, 50)]
    answer(lab, asked, FileRead(12, 90, words=[WORD]))
    lab.now += 5
    told = lab.record().steps[0]
    assert (told.said, told.workers[1].said) == ([], [])
    [said] = told.workers[0].said
    assert (said.kind, said.s, said.rank, said.op, said.seq) == ("stuck", 5, 2, "ALLREDUCE", 8)
    see(lab, {2: [File("/out-2", 12, 95)]})
    answer(lab, ask(lab), FileRead(12, 95, words=[msgspec.structs.replace(WORD, seq=9, completed=7)]))
    [said] = lab.record().steps[0].workers[0].said
    assert (said.s, said.last_s, said.seq, said.completed) == (20, 0, 8, 7)  # the first is kept, with what came later


def test_a_restart_in_one_file_clears_the_words_of_all(lab: Lab) -> None:  # noqa: F811
    files = {2: [File("/a", 12, 50)], 3: [File("/b", 13, 50)]}
    see(lab, files)
    answer(lab, ask(lab), FileRead(12, 50, words=[WORD]), FileRead(13, 50))
    assert lab.job.logs.marks() == [("0", "2", "stuck")]
    see(lab, files | {3: [File("/b", 13, 80)]})
    answer(lab, ask(lab), FileRead(13, 80, restarted=True))
    assert lab.job.logs.marks() == []


def test_renamed_rotated_and_behind(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/log", 12, 50)]})
    answer(lab, ask(lab), FileRead(12, 50, behind=True))
    asked = ask(lab, looked=False)
    assert asked
    assert [(one.ino, one.offset, one.settle) for one in asked.files] == [(12, 50, False)]
    answer(lab, asked, FileRead(12, 60, rest=True))
    assert ask(lab, looked=False) is None
    see(lab, {2: [File("/log.1", 12, 50)]})  # renamed: it goes on
    asked = ask(lab)
    assert asked
    assert [(one.ino, one.path, one.offset, one.settle) for one in asked.files] == [(12, "/log.1", 60, True)]
    answer(lab, asked, FileRead(12, 60))
    see(lab, {2: [File("/log", 77, 5)]})
    asked = ask(lab)
    assert asked
    assert [(one.ino, one.offset) for one in asked.files] == [(77, 0)]  # another one in its place is read whole


@pytest.mark.parametrize(("answers", "why", "unknown"), [
    ([], "no answer before the deadline", ["no answer before the deadline"]),
    ([FileRead(12, fault="Permission denied")], "", ["Permission denied"]),
    ([FileRead(12, 90, skipped=512 << 20)], "",
     ["the output grew faster than it is read: 512 MiB of it were left out"]),
])
def test_what_could_not_be_read_is_said(lab: Lab, answers: list[FileRead | Counted], why: str,  # noqa: F811
                                        unknown: list[str]) -> None:
    see(lab, {2: [File("/log", 12, 50)]})
    answer(lab, ask(lab), *answers, why=why)
    assert [u.reason for u in lab.record().steps[0].unknown if u.source == "nccl_log"] == unknown
    if not answers or answers[0].fault:
        assert ask(lab) is not None  # it is tried again


def test_steps_that_share_a_file(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/log", 12, 50)]})
    other = lab.job.steps["1"] = type(lab.job.steps["0"])("1", dict(lab.header) | {"step": "1"}, lab.now, 5)
    other.files, other.sruns = [File("/log", 12, 50)], [(61, 61)]
    assert ask(lab) is None
    assert SHARED in [u.reason for u in lab.record().steps[0].unknown]


def test_a_file_that_others_left_no_time_for_comes_first(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/fast", 12, 50)], 3: [File("/slow", 13, 50)]})
    answer(lab, ask(lab), FileRead(12, 50), FileRead(13, 50))
    for first, second in ((12, 13), (13, 12), (12, 13)):
        see(lab, {2: [File("/fast", 12, int(lab.now))], 3: [File("/slow", 13, int(lab.now))]})
        asked = ask(lab)
        assert asked
        assert [one.ino for one in asked.files] == [first, second]
        left = lab.job.logs.files[second].offset or 0
        answer(lab, asked, FileRead(first, int(lab.now), behind=True), FileRead(second, left, behind=True))


def test_a_kernel_that_tells_no_inodes(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/a", 0, 50)], 3: [File("/b", 0, 50)]})
    assert ask(lab) is None
    assert [u.reason for u in lab.record().steps[0].unknown if u.source == "nccl_log"] == [NO_INODE]


def test_of_many_holders_so_many_are_told_as_are_asked(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/log", 12, 50)]})
    lab.job.steps["0"].workers[2].tree = [(pid, pid) for pid in range(100, 9000)]
    asked = ask(lab)
    assert asked
    assert len(asked.files[0].holders) == MAX_HOLDERS


def test_what_fails_in_one_jobs_files_ends_no_loop(lab: Lab, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
                                                  capfd: pytest.CaptureFixture[str]) -> None:
    selector, clock = selectors.DefaultSelector(), Clock()
    followers = Followers(Proc(), selector, clock, Probes(selector, clock), lambda: None)
    monkeypatch.setattr(lab.job.logs, "ask", lambda *_, **more: 1 // 0)
    followers.follow(lab.job)
    assert "following its output failed: ZeroDivisionError" in capfd.readouterr().err
    selector.close()


def test_lines_that_are_no_progress_leave_the_age_alone(lab: Lab, proc: FakeProc) -> None:  # noqa: F811
    lab.job.facts = lab.job.facts | {"ignore_output": "%5Eheartbeat"}
    lab.job.logs.site = ("TCPStore",)
    place = [50]

    def grows(*answers: FileRead | Counted, why: str = "") -> float | None:
        place[0] += 10
        see(lab, {2: [File("/log", 12, place[0])]})
        asked = ask(lab)
        assert asked
        answer(lab, asked, *answers, why=why)
        return lab.record().steps[0].workers[0].output_s

    see(lab, {2: [File("/log", 12, place[0])]})
    asked = ask(lab)
    assert asked
    assert asked.files[0].ignore == ("TCPStore", "^heartbeat")
    answer(lab, asked, FileRead(12, 50), Counted(12))
    read = FileRead(12, 60)
    assert grows(read, Counted(12)) == 15
    assert grows(read, Counted(12, True)) == 0
    assert grows(FileRead(12, 60, rest=True), Counted(12, undecided=True)) == 15
    lab.now += 15
    answer(lab, ask(lab), read, Counted(12, True))  # it was the beginning of a line that counts
    assert lab.record().steps[0].workers[0].output_s == 15
    assert grows(FileRead(12, fault="Permission denied"), Counted(12, undecided=True)) == 0  # bytes came all the same
    assert grows(FileRead(12, 70, skipped=1), Counted(12)) == 0
    assert grows(FileRead(12, 70, behind=True), Counted(12)) == 15
    lab.job.facts.pop("uid")  # nobody can be asked
    assert ask(lab) is None
    logs.count(lab.job, {})
    assert lab.record().steps[0].workers[0].output_s == 0
    lab.job.facts["uid"] = "1001"
    for _ in range(logs.PATTERN_MISSES):  # patterns that take too long: the plain age counts, and it is said
        assert grows(read, why="no answer before the deadline") == 0
    assert [u.reason for u in lab.record().steps[0].unknown if u.source == "ignore_output"] == [
        "all output counts: it takes too long"]
    place[0] += 10
    see(lab, {2: [File("/log", 12, place[0])]})
    asked = ask(lab)
    assert asked
    assert asked.files[0].ignore == ()


def test_what_was_heard_outlives_the_monitor(lab: Lab) -> None:  # noqa: F811
    see(lab, {2: [File("/log", 12, 50)]})
    answer(lab, ask(lab), FileRead(12, 50, b"\xff\x00", words=[WORD]))
    again = JobLogs()
    again.load(msgspec.json.decode(msgspec.json.encode(lab.job.logs.save())))
    assert again.files[12] == msgspec.structs.replace(lab.job.logs.files[12], positions=None)


def test_what_was_asked_when_the_monitor_was_killed_is_asked_again(lab: Lab) -> None:  # noqa: F811
    lab.job.facts = lab.job.facts | {"ignore_output": "heartbeat"}
    see(lab, {2: [File("/log", 12, 50)]})
    answer(lab, ask(lab), FileRead(12, 50), Counted(12))
    see(lab, {2: [File("/log", 12, 90)]})
    assert ask(lab) is not None  # its last words, and no answer before the end
    saved = msgspec.json.decode(msgspec.json.encode(lab.job.save()))
    lab.job.logs.files.clear()
    lab.job.steps["0"].workers[2].growth.held = None
    lab.job.load(saved)
    see(lab, {2: [File("/log", 12, 90)]})
    asked = ask(lab)
    assert asked
    assert [(one.ino, one.offset) for one in asked.files] == [(12, 50)]
    answer(lab, asked, FileRead(12, 90, words=[WORD]), Counted(12, True))
    told = lab.record().steps[0].workers[0]
    assert ([one.kind for one in told.said], told.output_s) == (["stuck"], 15)


def test_of_a_file_that_grows_on_each_second_look_is_enough(lab: Lab) -> None:  # noqa: F811
    asked = []
    for at in (50, 60, 70, 80, 80):
        see(lab, {2: [File("/log", 12, at)]})
        one = lab.job.logs.ask(lab.job, lab.now)
        asked.append([file.pos for file in one.files] if one else [])
        if one:
            answer(lab, one, FileRead(12, at, b""))
    assert asked == [[50], [], [70], [], [80]], "its end is read once it stands still"
