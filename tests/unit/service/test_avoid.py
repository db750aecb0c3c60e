"""The guilty rank's node joins the job's excluded nodes in the one update while it is PENDING, and leaves again."""

from pathlib import Path
from typing import Any

import pytest
from astraeus_controller.actions import avoid
from astraeus_controller.actions.avoid import Avoidance, guilty_nodes
from astraeus_controller.actions.outside import Clocks
from astraeus_controller.actions.writer import Pace
from astraeus_controller.config import parse
from astraeus_controller.exclusions import Exclusions
from astraeus_controller.slurm import places as places_
from astraeus_controller.slurm.jobs import Jobs
from astraeus_controller.slurm.places import NodeRow
from astraeus_protocol.settings import Settings, settings_from
from fake_slurm import PARTITION
from service_kit import FakeCommands, finding
from test_restart import Bench, Died, Mortal, MortalStore, check_one_restart

AVOIDING = "[astraeus: stalled 14:02-14:14, rank 5 on c3, restarted 1/10, avoiding c3]"


def updates(bench: Bench) -> list[list[str]]:
    return [argv[2:] for argv in bench.slurm.called("scontrol", "update")]


def told(bench: Bench, kind: str) -> list[str]:
    return [event.message for event in bench.store.events(job=123) if event.kind == kind]


def again(bench: Bench, **values: Any) -> None:
    """Its next attempt is stalled, too."""
    bench.store.close_finding(bench.finding.key, "a new attempt began")
    restarts = bench.job["restarts"]
    bench.finding = finding(**({"key": f"again-{restarts}", "restarts": restarts} | values))
    bench.store.put_finding(bench.finding)


def requeued_by_its_user(bench: Bench) -> None:
    bench.job.update(state="PENDING", restarts=bench.job["restarts"] + 1, reason="BeginTime", waiting=1000)


async def looked(bench: Bench, commands: FakeCommands | None = None) -> None:
    """One look at what is to be taken back, by a controller that does nothing else."""
    store = bench.open()
    await Avoidance(jobs=Jobs(commands or FakeCommands(bench.slurm)), store=store, pace=Pace(0), emit=store.add_event,
                    most=2, clocks=Clocks(bench.time.wall, bench.time.steady, bench.time.sleep)).take_back()


async def test_one_update_for_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True, comment="mine", excluded="c[7-8]")
    await bench.life()
    assert updates(bench)[1] == [
        "jobid=123", "StartTime=now+10", "ExcNodeList=c[7-8],c3",
        "Comment=mine [astraeus: stalled 14:02-14:14, rank 5 on c3, restarted 1/10, cause=stalled, avoiding c3]",
        f"AdminComment={AVOIDING}"]
    assert len(updates(bench)) == 3
    assert told(bench, "scheduled") == [
        "Starts not before 14:14:30 UTC; avoids c3 beside c[7-8], which its user excludes"]
    assert (bench.job["comment"], bench.job["admin_comment"]) == ("mine", AVOIDING)
    # Slurm changes the list of pending jobs only: it stands while the attempt runs.
    assert (bench.job["state"], bench.job["excluded"]) == ("RUNNING", "c[7-8],c3")


@pytest.mark.parametrize("own", ["", "c8,c7", "c[7-8]"])
async def test_taken_back_when_it_is_pending_again(tmp_path: Path, own: str) -> None:
    bench = Bench(tmp_path, avoid=True, excluded=own)
    await bench.life()
    await looked(bench)
    assert bench.job["excluded"] != own
    requeued_by_its_user(bench)
    await looked(bench)
    assert bench.job["excluded"] == own
    assert updates(bench)[-1] == ["jobid=123", f"ExcNodeList={own}"]
    assert told(bench, "avoid_over") == ["Avoids c3 no longer"]
    sent = len(updates(bench))
    await looked(bench)
    assert (len(updates(bench)), Exclusions(bench.store).all()) == (sent, [])


@pytest.mark.parametrize(("values", "state", "note", "why"), [
    ({"required": "c[1-4]"}, {}, "c3 not avoided: the job names its nodes (--nodelist)",
     "c3 is not avoided: the job names its nodes (--nodelist)"),
    ({"reservation": "mine"}, {}, "c3 not avoided: the job runs in a reservation",
     "c3 is not avoided: the job runs in a reservation"),
    ({}, {"partition": {f"c{n}": "mixed" for n in range(1, 5)}},
     "c3 not avoided: without it partition main has 3 usable nodes of its kind for this job, which needs 4",
     "c3 is not avoided: without it partition main has 3 usable nodes of its kind for this job, which needs 4"),
    ({"excluded": "c[6-8]"}, {"partition": PARTITION | {"c5": "drained"}},
     "c3 not avoided: without it partition main has 3 usable nodes of its kind for this job, which needs 4",
     "c3 is not avoided: without it partition main has 3 usable nodes of its kind for this job, which needs 4"),
    ({"excluded": "c[2-3]"}, {}, "c3 not avoided: its user excludes it already",
     "c3 is not avoided: its user excludes it already"),
    ({}, {"partition": {"d1": "idle"}}, "c3 not avoided: it is none of partition main's nodes",
     "c3 is not avoided: it is none of partition main's nodes"),
])
async def test_not_avoided_and_said(tmp_path: Path, values: dict[str, Any], state: dict[str, Any], note: str,
                                    why: str) -> None:
    bench = Bench(tmp_path, avoid=True, **values)
    bench.slurm.state |= state
    await bench.life()
    assert not any("ExcNodeList" in pair for pairs in updates(bench) for pair in pairs)
    assert told(bench, "scheduled") == [f"Starts not before 14:14:30 UTC; {why}"]
    assert bench.job["admin_comment"].endswith(f"restarted 1/10, {note.replace('[', '(').replace(']', ')')}]")
    assert (bench.outcome(), Exclusions(bench.store).all()) == ("restarted", [])


@pytest.mark.parametrize(("values", "why"), [
    ({"rank": None, "node": "c[1-4]"}, "no rank stands out"),
    ({"details": {"guilty_nodes": ["c2", "c3"]}}, "2 nodes are named")])
async def test_nobody_or_several_named(tmp_path: Path, values: dict[str, Any], why: str) -> None:
    bench = Bench(tmp_path, avoid=True)
    again(bench, **values)
    await bench.life()
    assert bench.job["excluded"] == ""
    assert told(bench, "scheduled") == [f"Starts not before 14:14:30 UTC; no node is avoided: {why}"]
    assert "avoid" not in bench.job["admin_comment"]


async def test_a_site_that_allows_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True)
    bench.most = 0
    await bench.life()
    assert bench.job["excluded"] == ""
    assert told(bench, "scheduled")[0].endswith("c3 is not avoided: the site lets no run avoid any (avoid_nodes = 0)")


async def test_not_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.life()
    assert bench.job["excluded"] == ""
    assert bench.slurm.called("sinfo") == []


async def test_restarted_again_it_avoids_both_and_never_more_than_the_bound(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True, excluded="c8")
    await bench.life()
    again(bench, node="c2", rank=2)
    await bench.life()
    assert bench.job["excluded"] == "c8,c3,c2"
    again(bench, node="c1", rank=0)
    await bench.life()
    assert bench.job["excluded"] == "c8,c2,c1"
    assert told(bench, "scheduled")[-1].endswith("; avoids c2, c1 beside c8, which its user excludes")
    requeued_by_its_user(bench)
    await looked(bench)
    assert bench.job["excluded"] == "c8"


async def test_the_oldest_is_let_go_where_the_partition_is_short(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True)
    bench.slurm.state["partition"] = {f"c{n}": "idle" for n in range(1, 6)}
    await bench.life()
    again(bench, node="c2", rank=2)
    await bench.life()
    assert bench.job["excluded"] == "c2"
    assert bench.job["admin_comment"].endswith("restarted 2/10, avoiding c2]")


async def test_the_next_restart_takes_back_what_it_no_longer_wants(tmp_path: Path) -> None:
    """The site's default was switched off meanwhile; still one update."""
    bench = Bench(tmp_path, avoid=True, excluded="c8")
    await bench.life()
    again(bench)
    sent = len(updates(bench))
    bench.avoid = False
    await bench.life()
    assert (bench.job["excluded"], len(updates(bench)) - sent) == ("c8", 3)
    assert told(bench, "scheduled")[-1].endswith("; avoids c3 no longer")
    assert Exclusions(bench.store).all() == []


async def test_what_its_user_sets_meanwhile_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True, excluded="c8")
    await bench.life()
    requeued_by_its_user(bench)
    bench.job["excluded"] = "c1,c3"
    await looked(bench)
    assert bench.job["excluded"] == "c1,c3"
    assert told(bench, "avoid_over") == ["Its user has set its excluded nodes anew (c1,c3): left so"]
    assert Exclusions(bench.store).all() == []


async def test_a_job_that_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """Requeued by hand while Slurm knows it, it has its own list again; forgotten, so is ours."""
    bench = Bench(tmp_path, avoid=True)
    await bench.life()
    bench.job["state"] = "CANCELLED"
    await looked(bench)
    requeued_by_its_user(bench)
    await looked(bench)
    assert bench.job["excluded"] == ""
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other", avoid=True)
    await other.life()
    del other.slurm.state["jobs"]["123"]
    await looked(other)
    assert Exclusions(other.store).all() == []


@pytest.mark.parametrize("short", [{"reason": "BadConstraints", "priority": 0}, {}])
async def test_while_it_waits_the_partition_gets_too_short(tmp_path: Path, short: dict[str, Any]) -> None:
    """Slurm would hold it for ever; with its own list again it starts."""
    bench = Bench(tmp_path, avoid=True, excluded="c8")
    whole = Bench(tmp_path / "whole", avoid=True, excluded="c8") if (tmp_path / "whole").mkdir() is None else bench
    await whole.life()
    update = next(n for n, argv in enumerate(whole.slurm.state["log"]) if "ExcNodeList=c8,c3" in argv)
    with pytest.raises(Died):
        await bench.life(Mortal(bench.slurm, update + 1, after=True))
    assert (bench.job["state"], bench.job["excluded"]) == ("PENDING", "c8,c3")
    bench.job["waiting"] = 1000
    await looked(bench)
    assert bench.job["excluded"] == "c8,c3"
    if short:
        bench.job.update(short)
    else:
        bench.slurm.state["partition"] = PARTITION | {f"c{n}": "down*" for n in range(4, 8)}
    await looked(bench)
    assert bench.job["excluded"] == "c8"
    assert told(bench, "avoid_over")[0].startswith("Avoids c3 no longer: ")


async def test_refused_by_slurm_it_is_not_claimed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, avoid=True, comment="mine")
    bench.slurm.state["refuses_nodes"] = True
    await bench.life()
    assert (bench.outcome(), bench.job["begin"], bench.job["excluded"]) == ("restarted", "now+10", "")
    assert "avoiding" not in bench.job["admin_comment"]
    assert told(bench, "scheduled")[0].endswith("Slurm refused ExcNodeList: Invalid node name specified for job 123")
    assert Exclusions(bench.store).all() == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(8, 20))
async def test_killed_at_a_command(tmp_path: Path, at: int, after: bool) -> None:
    """Of its second restart: whatever stood, and whatever was about to, its user's own list comes back."""
    bench = Bench(tmp_path, avoid=True, comment="mine", excluded="c8")
    await bench.life()
    again(bench, node="c2", rank=2)
    began = len(bench.slurm.state["log"])
    try:
        await bench.life(Mortal(bench.slurm, at, after=after))
        assert at > len(bench.slurm.state["log"]) - began
    except Died:
        await bench.life()
    assert (bench.job["requeued"], bench.job["excluded"], bench.job["comment"]) == (2, "c8,c3,c2", "mine")
    assert len(told(bench, "scheduled")) == 2
    requeued_by_its_user(bench)
    await looked(bench)
    assert (bench.job["excluded"], Exclusions(bench.store).all()) == ("c8", [])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
async def test_killed_at_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
    bench = Bench(tmp_path, avoid=True, comment="mine", excluded="c8")
    monkeypatch.setattr("test_restart.CLOSING", AVOIDING)
    store = bench.open(MortalStore)
    store.at, store.late = at, after  # type: ignore[attr-defined]
    await check_one_restart(bench, lambda: bench.life(store=store))
    assert bench.job["excluded"] == "c8,c3"
    requeued_by_its_user(bench)
    await looked(bench)
    assert bench.job["excluded"] == "c8"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 5))
async def test_killed_while_it_is_taken_back(tmp_path: Path, at: int, after: bool) -> None:
    bench = Bench(tmp_path, avoid=True, excluded="c8")
    await bench.life()
    requeued_by_its_user(bench)
    with pytest.raises(Died):
        await looked(bench, Mortal(bench.slurm, at, after=after))
    await looked(bench)
    assert (bench.job["excluded"], Exclusions(bench.store).all()) == ("c8", [])
    assert told(bench, "avoid_over") == ["Avoids c3 no longer"]


@pytest.mark.parametrize(("values", "name"), [
    ({"array_job": 123, "array_task": 7}, "jobid=123_7"), ({"het": "123", "het_offset": "0"}, "jobid=123+0")])
async def test_an_array_element_and_a_component(tmp_path: Path, values: dict[str, Any], name: str) -> None:
    bench = Bench(tmp_path, avoid=True, **values)
    await bench.life()
    assert bench.job["excluded"] == "c3"
    starts = [argv for argv in updates(bench) if any("StartTime" in pair for pair in argv)]
    assert {argv[0] for argv in updates(bench) if argv not in starts} <= {name}
    if "het" in values:  # of one component it would leave the others at Slurm's two minutes
        assert starts == [["jobid=123", "StartTime=now+10"]]
    else:
        assert [argv[0] for argv in starts] == [name]


def test_who_is_named() -> None:
    assert guilty_nodes(finding()) == ["c3"]
    assert guilty_nodes(finding(details={"guilty_nodes": ["c3"]})) == ["c3"]
    assert guilty_nodes(finding(rank=None)) == []


def test_nodes_as_sinfo_prints_them() -> None:
    text = ("main|c1|idle~|16|64000|gpu:2|a,b\nmain|c2|mixed-|16|64000|gpu:2|(null)\nmain|c3|idle*|16|64000|gpu:2|a\n"
            "main|c4|reserved|16|64000|gpu:2|a\nmain|c5|mixed@|8|64000|gpu:2|a\nnonsense\n")
    rows = places_.nodes(text)
    assert [(row.name, row.usable) for row in rows] == [
        ("c1", True), ("c2", True), ("c3", False), ("c4", False), ("c5", False)]
    big, small = NodeRow("p", "a", "idle", 16, 64000, "gpu:2", "x"), NodeRow("p", "b", "idle", 8, 64000, "gpu:2", "y")
    assert big.serves_like(small, features=False)
    assert not big.serves_like(small, features=True)
    assert not small.serves_like(big, features=False)


def test_names_that_would_break_a_list() -> None:
    assert avoid.NAME.fullmatch("gpu-01.site_a")
    assert not any(avoid.NAME.fullmatch(bad) for bad in ("", "c[1-4]", "c1,c2", "c1 c2", "c1\n"))


def test_the_run_s_word_or_its_partition_s() -> None:
    config = parse('[partition.gpu]\navoid_guilty = true\n')
    assert config.policy("gpu", Settings()).avoid_guilty
    assert not config.policy("main", Settings()).avoid_guilty
    assert config.policy("main", settings_from({"avoid_guilty": "1"})).avoid_guilty
