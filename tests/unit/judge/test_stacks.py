"""Who is named by Python stacks, in which words, and when nobody is."""

from __future__ import annotations

import pytest
from astraeus_controller import rules
from astraeus_controller.rules import stacks
from astraeus_controller.rules.gang import Gang, gang_of
from astraeus_controller.rules.picture import StackView, WorkerView

from .views import odd, picture, process, worker

REDUCE = ("all_reduce (train.py:88)", "main (train.py:120)")
LOADER = ("next_batch (loader.py:41)", "main (train.py:119)")
JOIN = ("wait (threading.py:327)", "join (pool.py:9)", "main (train.py:130)")
QUEUE = ("wait (threading.py:327)", "get (queue.py:171)", "main (train.py:119)")


def at(rank: int, frames: tuple[str, ...] | None, s: float = 5, gone_s: float | None = 100.0,
       **more: object) -> WorkerView:
    """A rank that waits, and where."""
    stack = None if frames is None else StackView(frames, s)
    return worker(rank, processes=(process(4000 + rank, pulse=0.0, pulse_gone_s=gone_s, stack=stack),), **more)


def gang(*workers: WorkerView) -> Gang:
    found = gang_of(picture(*workers).job.steps[0])
    assert found
    return found


def named(*workers: WorkerView) -> list[int]:
    return [sign.member.worker.rank for sign in stacks.by_stacks(gang(*workers))]


def others(*, but: int, frames: tuple[str, ...] = REDUCE, count: int = 4) -> list[WorkerView]:
    return [at(rank, frames) for rank in range(count) if rank != but]


class TestByStacks:
    def test_by_the_leaf(self) -> None:
        assert named(*others(but=2), at(2, LOADER)) == [2]
        assert named(*others(but=2, count=8), at(2, LOADER), at(9, LOADER)) == [2, 9]

    def test_by_the_whole_stack_where_all_have_the_same_leaf(self) -> None:
        assert named(*others(but=2, frames=JOIN), at(2, QUEUE)) == [2]

    @pytest.mark.parametrize("why", ["halves", "three places", "all in one", "pair", "one not read", "one silent"])
    def test_nobody(self, why: str) -> None:
        found = {"halves": [at(0, REDUCE), at(1, REDUCE), at(2, LOADER), at(3, LOADER)],
                 "three places": [*others(but=2, count=6), at(2, LOADER), at(9, JOIN)],
                 "all in one": others(but=9),
                 "pair": [at(0, REDUCE), at(1, LOADER)],
                 "one not read": [*others(but=2, count=6), at(2, LOADER), at(9, None)],
                 "one silent": [*others(but=2, count=6), at(2, LOADER), at(9, None, state="stale")]}[why]
        assert named(*found) == []

    def test_only_behind_the_pulse_gate(self) -> None:
        healthy = [at(rank, REDUCE, gone_s=0.0) for rank in (0, 1, 3)]
        assert named(*healthy, at(2, LOADER)) == []
        unknown = [at(rank, REDUCE, gone_s=None) for rank in (0, 1, 3)]
        assert named(*unknown, at(2, LOADER)) == []

    def test_not_by_what_was_read_before_they_waited(self) -> None:
        assert named(*others(but=2), at(2, LOADER, s=101)) == []
        assert named(*others(but=2), at(2, LOADER, s=99)) == [2]

    def test_the_guilty_one_may_have_its_pulse(self) -> None:
        assert named(*others(but=2), at(2, LOADER, gone_s=0.0)) == [2]

    def test_a_stopped_rank_says_nothing_new(self) -> None:
        stopped = odd(2, "T")
        assert named(*others(but=2), stopped) == []
        [conclusion] = rules.judge(picture(*others(but=2, count=6), stopped))
        assert (conclusion.rank, "is stopped (state T)" in conclusion.said) == (2, True)


class TestPrompt:
    @pytest.mark.parametrize(("frame", "prompt"), [
        ("Pdb.interaction (pdb.py:363)", True), ("Pdb._cmdloop (pdb.py:322)", True),
        ("InteractiveShell.interaction (IPython/core/debugger.py:297)", True),
        ("PyDB.do_wait_suspend (pydevd.py:2188)", True),
        ("do_wait_suspend (debugpy/_vendored/pydevd/pydevd.py:9)", True),
        ("Pdb._runscript (pdb.py:1585)", False), ("cmdloop (shell.py:3)", False)])
    def test_a_person_at_it(self, frame: str, prompt: bool) -> None:
        stack = StackView(("select (selectors.py:1)", frame, "main (train.py:3)"), 5.0)
        assert stacks.at_prompt(stack, 6.0) == prompt
        assert not stacks.at_prompt(stack, 4.0), "it has moved since"
        assert not stacks.at_prompt(stack, None)


class TestSaid:
    def test_suspect(self) -> None:
        found = rules.judge(picture(*[at(rank, REDUCE, output_s=200.0) for rank in (0, 1, 3)],
                                    at(2, LOADER, output_s=200.0)))
        [conclusion] = [one for one in found if one.verdict == "suspect"]
        assert (conclusion.worker, conclusion.rank, conclusion.node, conclusion.pid) == ("123-2", 2, "c2", 4002)
        assert conclusion.said == (
            "no output since 14:10 UTC; rank 2 (node c2, PID 4002) stands out by its Python stack: 3 ranks in "
            "all_reduce (train.py:88) · rank 2 in next_batch (loader.py:41); 3 of 3 other ranks wait")
        assert conclusion.evidence["stacks"] == [{"ranks": "0,1,3", "frames": list(REDUCE)},
                                                 {"ranks": "2", "frames": list(LOADER)}]

    def test_nobody_stands_out(self) -> None:
        found = rules.judge(picture(*[at(rank, REDUCE, output_s=200.0) for rank in range(4)]))
        [conclusion] = [one for one in found if one.verdict == "suspect"]
        assert conclusion.said.endswith("4 of 4 ranks wait; no rank stands out")

    def test_halves_are_said_and_name_nobody(self) -> None:
        found = rules.judge(picture(*[at(rank, REDUCE if rank < 2 else LOADER, output_s=1000.0, cpu_idle_s=1000.0)
                                      for rank in range(4)]))
        [conclusion] = [one for one in found if one.verdict == "stalled"]
        assert conclusion.rank is None
        assert conclusion.said.endswith(
            "no rank stands out; 2 ranks in all_reduce (train.py:88) · ranks 2,3 in next_batch (loader.py:41)")

    def test_beside_what_named_somebody(self) -> None:
        others_in_two = [at(0, REDUCE), at(1, REDUCE), at(3, LOADER)]
        [conclusion] = rules.judge(picture(*others_in_two, odd(2, "T")))
        assert conclusion.rank == 2
        assert conclusion.said.endswith(
            "3 of 3 other ranks wait; 2 ranks in all_reduce (train.py:88) · rank 3 in next_batch (loader.py:41)")

    def test_places(self) -> None:
        groups = stacks.grouped([("a", JOIN), ("b", JOIN), ("c", QUEUE)])
        assert [(one.place, one.members) for one in groups] == [
            ("wait (threading.py:327) under join (pool.py:9)", ("a", "b")),
            ("wait (threading.py:327) under get (queue.py:171)", ("c",))]
        assert stacks.joined([("f", list("01234")), ("g", ["6", "7"]), ("h", ["8"])]) == (
            "5 ranks in f · ranks 6,7 in g · rank 8 in h")

    @pytest.mark.parametrize(("there", "text"), [
        (["3", "0", "1", "2", "4", "6", "7"], "0-4,6,7"), (["5"], "5"), (["0.1", "0.2"], "0.1,0.2"), ([], "")])
    def test_fold(self, there: list[str], text: str) -> None:
        assert stacks.fold(there) == text

    def test_names_of_a_launchers_processes(self) -> None:
        assert stacks.names([(0, 0, "0"), (0, 1, "1")]) == ["0", "1"]
        assert stacks.names([(0, 0, ""), (0, 1, "")]) == ["0.0", "0.1"]
        assert stacks.names([(5, 0, "9"), (6, 0, "9")]) == ["5", "6"]
