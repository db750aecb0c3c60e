"""The tagged piece: its form, and that what others wrote stays byte for byte."""

import asyncio

import pytest
from astraeus_controller.actions import annotate, piece
from astraeus_controller.actions.writer import Pace, Wanted, Writer
from astraeus_controller.history.store import Store
from astraeus_controller.slurm.jobs import Jobs
from fake_slurm import FakeSlurm, job
from hypothesis import given
from hypothesis import strategies as st
from service_kit import SINCE, FakeCommands, finding

OPEN = "[astraeus: stalled since 14:02 UTC, rank 5 on c3]"


def test_texts() -> None:
    one = finding()
    assert piece.piece(piece.open_text([one])) == OPEN
    assert annotate.stalled([one], "restarting 1/10, cause=stalled").comment == (
        "stalled since 14:02 UTC, rank 5 on c3, restarting 1/10, cause=stalled")
    assert annotate.over(one, SINCE + 1740, "restarted 1/10") == Wanted(
        "", "stalled 14:02-14:31, rank 5 on c3, restarted 1/10")
    assert piece.open_text([one, finding(key="x", rank=7)]) == "stalled since 14:02 UTC, rank 5 on c3 and 1 more"
    assert piece.open_text([finding(rank=None, worker="123.1", step="1")]) == (
        "stalled since 14:02 UTC, step 1, no rank stands out")
    over = finding(rank=None, details={"finished": "Training done"})
    assert piece.open_text([over]) == "stalled since 14:02 UTC, no rank stands out, finished but not exited"
    assert piece.open_text([over, one]).endswith("no rank stands out and 1 more")
    assert piece.closing_text(one, SINCE + 86400, "job ended").startswith("stalled 11-30 14:02-14:02,")


@given(st.text())
def test_a_piece_is_one_plain_short_line(text: str) -> None:
    mine = piece.piece(text)
    assert mine.startswith("[astraeus: ")
    assert mine.endswith("]")
    assert len(mine) <= 400
    assert all(" " <= c <= "~" for c in mine)
    assert not set("|]\n") & set(mine[:-1])


@given(st.text(), st.text())
def test_what_others_wrote_comes_back(others: str, said: str) -> None:
    mine = piece.piece(said)
    if mine not in others:
        assert piece.split(piece.with_piece(others, mine), [mine]) == (others, mine)
    assert piece.split(piece.with_piece(others, ""), [mine]) == piece.split(others, [mine])


@pytest.mark.parametrize("theirs", [
    "note [astraeus: stalled since 14:02 UTC, rank 0 on c1]", "note [astraeus: broken off", "[astraeus:", "x ]"])
def test_a_forged_piece_is_theirs(theirs: str) -> None:
    assert piece.split(theirs, [OPEN, ""]) == (theirs, "")
    assert piece.split(piece.with_piece(theirs, OPEN), [OPEN]) == (theirs, OPEN)


def test_written_on_behind_ours() -> None:
    assert piece.split(f"a {OPEN} b", [OPEN]) == ("a b", OPEN)
    assert piece.split(f"a{OPEN}", [OPEN]) == (f"a{OPEN}", "")


class Bench:
    """A writer over a fake Slurm."""

    def __init__(self, **values: object) -> None:
        self.slurm = FakeSlurm(job(123, **values))
        self.store = Store(":memory:")
        self.writer = Writer(Jobs(FakeCommands(self.slurm)), self.store, Pace(0))
        self.job = self.slurm.job(123)

    async def put(self, comment: str, admin: str, start: str = "") -> object:
        return await self.writer.write(123, Wanted(comment, admin), {"start_time": start} if start else {})


@pytest.mark.parametrize("theirs", [
    "", "mine", "tail  ", "[astraeus: stalled since 00:00, rank 0 on nowhere]", "[astraeus: x] text",
    "a\nb\n", "é😀", "x" * 60000, "forged [astraeus: stalled since 14:02 UTC, rank 0 on c1]",
    "broken [astraeus: no end", "raw \udcff bytes"])
async def test_there_and_back(theirs: str) -> None:
    bench = Bench(comment=theirs, admin_comment=theirs)
    await bench.put("stalled since 14:02 UTC, rank 5 on c3", "stalled since 14:02 UTC, rank 5 on c3")
    assert bench.job["comment"] == (f"{theirs} {OPEN}" if theirs else OPEN)
    assert bench.job["admin_comment"] == bench.job["comment"]
    assert len(bench.slurm.called("scontrol", "update")) == 1
    await bench.put("stalled since 14:02 UTC, rank 5 on c3", "stalled since 14:02 UTC, rank 5 on c3")
    assert len(bench.slurm.called("scontrol", "update")) == 1
    await bench.put("", "stalled 14:02-14:31, rank 5 on c3, progress again")
    assert bench.job["comment"] == theirs
    assert bench.job["admin_comment"].removeprefix(f"{theirs} " if theirs else "") == (
        "[astraeus: stalled 14:02-14:31, rank 5 on c3, progress again]")
    await bench.put("", "")
    assert bench.job["admin_comment"] == theirs


@pytest.mark.parametrize("theirs", ['{"a": 1}', "[1, 2]", "JS1:x"])
async def test_another_tools_text_is_left_alone(theirs: str) -> None:
    bench = Bench(comment=theirs)
    outcome = await bench.put("s", "s")
    assert list(outcome.skipped) == ["comment"]  # type: ignore[attr-defined]
    assert bench.job["comment"] == theirs
    assert bench.job["admin_comment"] == "[astraeus: s]"
    await bench.put("", "")
    assert (bench.job["comment"], bench.job["admin_comment"]) == (theirs, "")


async def test_refused_for_its_length() -> None:
    bench = Bench(comment="x" * 1000, admin_comment="short")
    bench.slurm.state["comment_max"] = 1024
    outcome = await bench.put("y" * 100, "y" * 100)
    assert "too long" in outcome.skipped["comment"]  # type: ignore[attr-defined]
    assert bench.job["comment"] == "x" * 1000
    assert bench.job["admin_comment"] == f"short [astraeus: {'y' * 100}]"


async def test_somebody_writes_in_between() -> None:
    bench = Bench(comment="old")
    bench.slurm.state["at_look"] = {"2": {"comment": "new by its user"}}
    await bench.put("s", "s")
    assert bench.job["comment"] == "new by its user [astraeus: s]"
    assert bench.store.pieces(123, "comment") == ("[astraeus: s]", "")


async def test_after_the_end_by_sacctmgr() -> None:
    bench = Bench(comment="mine", admin_comment="")
    await bench.put("s", "s")
    bench.job |= {"state": "CANCELLED", "end": "2026-11-30T14:31:00"}
    assert (await bench.put("", "c")).state == "completing"  # type: ignore[attr-defined]
    assert (await bench.put("", "c")).state == "done"  # type: ignore[attr-defined]
    assert bench.job["recorded"] == {"Comment": "mine", "AdminComment": "[astraeus: c]"}


async def test_accounting_without_comments_gets_none() -> None:
    bench = Bench(comment="mine")
    bench.slurm.state["job_comment"] = False
    await bench.put("s", "s")
    bench.job |= {"state": "COMPLETED", "end": "2026-11-30T14:31:00"}
    await bench.put("", "c")
    await bench.put("", "c")
    assert bench.job["recorded"] == {"Comment": "", "AdminComment": "[astraeus: c]"}


async def test_quotes_stay_out_of_sacctmgr() -> None:
    bench = Bench(comment="it's", admin_comment='say "x"')
    await bench.put("s", "s")
    bench.job |= {"state": "COMPLETED", "end": "2026-11-30T14:31:00"}
    await bench.put("", "c")
    outcome = await bench.put("", "c")
    assert set(outcome.skipped) == {"comment", "admin_comment"}  # type: ignore[attr-defined]
    assert bench.slurm.called("sacctmgr") == []


async def test_begin_time_travels_with_the_comments() -> None:
    bench = Bench(state="PENDING", waiting=1000)
    await bench.put("s", "s", "now+10")
    (update,) = bench.slurm.called("scontrol", "update")
    assert update[2:] == ["jobid=123", "StartTime=now+10", "Comment=[astraeus: s]", "AdminComment=[astraeus: s]"]


async def test_a_component_is_not_the_whole_heterogeneous_job() -> None:
    bench = Bench(het="123", het_offset="0")
    await bench.put("s", "")
    assert bench.slurm.called("scontrol", "update")[0][2] == "jobid=123+0"


async def test_a_job_taken_over_by_a_restart_while_another_is_written() -> None:
    """The restart drops what was due; the loop goes on without it."""
    slurm, store = FakeSlurm(job(123), job(124)), Store(":memory:")
    annotations = annotate.Annotations(Writer(Jobs(FakeCommands(slurm)), store, Pace(0)), lambda *_: None)
    annotations.want(123, Wanted("a", "a"))
    annotations.want(124, Wanted("b", "b"))
    write = annotations.writer.write

    async def taken_over(number: int, wanted: Wanted) -> object:
        if number == 123:
            await annotations.settle(124, Wanted("restarting", ""))
        return await write(number, wanted)

    annotations.writer.write = lambda number, wanted, also=None: (  # type: ignore[method-assign]
        write(number, wanted) if wanted.comment == "restarting" else taken_over(number, wanted))
    task = asyncio.create_task(annotations.run())
    async with asyncio.timeout(5):
        while annotations.pending(123) and not task.done():
            await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    assert slurm.job(124)["comment"] == "[astraeus: restarting]"
