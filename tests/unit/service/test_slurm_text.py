"""Slurm's text: parsers, forged text, cut text, environment, deadlines."""

from pathlib import Path

import pytest
from astraeus_controller.fleet.state import ALIVE
from astraeus_controller.slurm import parse
from astraeus_controller.slurm.command import Away, Commands, Refused, clean_environment
from astraeus_controller.slurm.jobs import Jobs, begin_min, kill_wait
from fake_slurm import FakeSlurm, install, job
from service_kit import FakeCommands

M = "\x1e00112233aabbccdd\x1f"

# One job as squeue -O prints it; values as the releases showed them.
PENDING = ["17", "17", "N/A", "N/A", "N/A", "PENDING", "BeginTime", "root", "0", "(null)", "main", "(null)", "1",
           "1", "1", "2026-11-29T20:45:31", "2026-11-29T20:55:31", "0:00", "10:00", "", "1", "4294901743", "0",
           "wrap", "/tmp/slurm-17.out", "(null)", "(null)"]
RELEASES = {
    "22.05": PENDING,
    "24.11": [*PENDING[:22], "0:0", "wrap", "/tmp/slurm-%j.out", "(null)", "(null)"],
    "26.05": [*PENDING[:22], "0:0", "wrap", "slurm-%j.out", "(null)", "(null)"],
}


def lines(*records: list[str]) -> str:
    return "".join("".join(value + M for value in record) + "\n" for record in records)


def test_a_poll_asks_for_every_state_that_a_job_is_alive_in() -> None:
    """A job that is met SIGNALING, for a moment after a STOP, is not missing."""
    assert set(parse.STATES.split(",")) == ALIVE


@pytest.mark.parametrize("release", RELEASES)
def test_facts_of_each_release(release: str) -> None:
    found = parse.facts(lines(RELEASES[release]), M, 17)
    assert found is not None
    facts, comment, admin_comment = found
    assert (facts.state, facts.reason, facts.restarts, facts.requeue, facts.batch) == (
        "PENDING", "BeginTime", 1, True, True)
    assert (facts.time_limit_s, facts.run_time_s, facts.nodelist, facts.account) == (600, 0, "", "")
    assert (comment, admin_comment, facts.array_job, facts.leader, facts.held) == ("", "", 0, 0, False)


@pytest.mark.parametrize("text", [
    "a\nb\n", "\n", "  lead and tail  ", "é😀", "x Comment=(null) AdminComment=foo\n   JobState=FAILED\n",
    "a|b\x1f\x1e\tc", "%k %A", "z" * 65536, "bad \udcff\udcfe bytes", f"12{M[:-1]}"])
def test_comments_come_back_byte_for_byte(text: str) -> None:
    record = [*PENDING[:25], text, text]
    found = parse.facts(lines(record), M, 17)
    assert found is not None
    assert found[1:] == (text, text)


def test_a_job_name_forges_nothing() -> None:
    record = [*PENDING]
    record[23] = "x\n17\x1fRUNNING JobState=RUNNING Restarts=9"
    found = parse.facts(lines(record), M, 17)
    assert found is not None
    assert (found[0].state, found[0].restarts, found[0].name) == ("PENDING", 1, record[23])


@pytest.mark.parametrize("cut", [1, 2, 10, 30])
def test_cut_text_is_no_answer(cut: int) -> None:
    with pytest.raises(parse.Garbled):
        parse.facts(lines(PENDING, PENDING)[:-cut], M, 17)


def test_array_elements_are_told_apart() -> None:
    first, last = [*PENDING], [*PENDING]
    first[:3], last[:3] = ["99", "98", "1"], ["98", "98", "3"]
    found = parse.facts(lines(first, last), M, 98)
    assert found is not None
    assert (found[0].job, found[0].array_job, found[0].array_task) == (98, 98, 3)


def test_heterogeneous_component_and_holds() -> None:
    record = [*PENDING]
    record[3], record[4], record[21] = "17", "0", "0"
    found = parse.facts(lines(record), M, 17)
    assert found is not None
    assert (found[0].leader, found[0].component, found[0].held) == (17, 0, True)
    record[21], record[6] = "100", "launch failed requeued held"
    assert parse.facts(lines(record), M, 17)[0].held  # type: ignore[index]


def test_poll() -> None:
    rows = [["12", "12", "N/A", "RUNNING", "alice", "research", "main", "normal", "c[1-2]", "crazy|na\nme"],
            ["14", "13", "7", "COMPLETING", "bob", "(null)", "main", "(null)", "c3", "bad \udcff"]]
    one, two = parse.snapshot(lines(*rows), M).jobs
    assert (one.job, one.array_job, one.state, one.nodelist, one.name) == (
        12, 0, "RUNNING", "c[1-2]", "crazy|na\nme")
    assert (two.array_job, two.array_task, two.account, two.name) == (13, 7, "", "bad �")
    assert parse.snapshot("", M).jobs == ()
    with pytest.raises(parse.Garbled):
        parse.snapshot("squeue: weird\n", M)


def test_spans() -> None:
    assert [parse.span(t) for t in ("0:00", "10:00", "1:02:03", "2-00:00:00", "UNLIMITED", "INVALID")] == [
        0, 600, 3723, 172800, None, None]


def test_environment_is_clean() -> None:
    kept = clean_environment({"PATH": "/x", "SLURM_CONF": "/etc/s.conf", "SQUEUE_FORMAT": "%i",
                              "SLURM_TIME_FORMAT": "relative", "SLURM_CLUSTERS": "other", "LANG": "de_DE"})
    assert kept == {"PATH": "/x", "SLURM_CONF": "/etc/s.conf", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


async def test_jobs_over_a_fake_slurm() -> None:
    slurm = FakeSlurm(job(123, comment="a\nb  ", admin_comment=""), job(124, state="PENDING"))
    jobs = Jobs(FakeCommands(slurm))
    assert [row.job for row in (await jobs.poll()).jobs] == [123]
    shown = await jobs.show(123)
    assert shown is not None
    assert (shown.comment, shown.facts.restarts, shown.facts.run_time_s) == ("a\nb  ", 0, 1800)
    assert await jobs.show(999) is None
    assert kill_wait(await jobs.settings()) == 8
    slurm.squeue = lambda args: ""  # type: ignore[method-assign]
    with pytest.raises(Away, match="printed nothing of job 123"):
        await jobs.show(123)
    slurm.state["away"] = True
    for call in (jobs.poll(), jobs.show(123), jobs.requeue("123")):
        with pytest.raises(Away):
            await call


@pytest.mark.parametrize(("version", "least"), [
    ("22.05.8", 122), ("24.05.1", 122), ("24.11.5", 3), ("26.05.5", 3), ("", 122), ("unknown", 122)])
def test_old_releases_need_the_life_of_a_credential(version: str, least: float) -> None:
    assert begin_min({"SLURM_VERSION": version} if version else {}) == least


async def test_real_commands(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    install(folder, FakeSlurm(job(123, comment="raw \udcff\n")))
    jobs = Jobs(Commands(str(folder)))
    shown = await jobs.show(123)
    assert shown is not None
    assert shown.comment == "raw \udcff\n"
    await jobs.update(123, comment="new \udcfe ; $(touch /x)\n")
    again = await jobs.show(123)
    assert again is not None
    assert again.comment == "new \udcfe ; $(touch /x)\n"
    with pytest.raises(Refused, match="Invalid job id"):
        await jobs.requeue("9")


async def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "squeue").write_text("#!/bin/sh\necho $$ > " + str(folder / "pid") + "\nsleep 60 & wait\n")
    (folder / "squeue").chmod(0o755)
    with pytest.raises(Away, match=r"no answer within 0\.3 s"):
        await Jobs(Commands(str(folder), 0.3)).poll()
    pid = int((folder / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(Away, match="can't run"):
        await Jobs(Commands(str(folder / "nowhere"))).poll()
