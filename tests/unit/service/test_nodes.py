"""Flagged nodes: what findings say of them, what stands in Slurm, and who may drain and clear them."""

from __future__ import annotations

import asyncio
import pwd
from types import SimpleNamespace
from typing import Any

import pytest
from astraeus_cli import nodes as cli
from astraeus_controller.actions.flag import flagged, of_finding, sentence
from astraeus_controller.actions.node_flags import NodeFlags
from astraeus_controller.actions.node_writer import Declined, NodeWriter
from astraeus_controller.actions.writer import Pace
from astraeus_controller.api.nodes import NodeApi
from astraeus_controller.api.problem import Problem
from astraeus_controller.config import parse
from astraeus_controller.history.store import Store
from astraeus_controller.slurm.nodes import Nodes
from astraeus_controller.trust.readers import READER, Reader
from astraeus_protocol.findings import Event, Finding
from fake_slurm import FakeSlurm
from service_kit import SINCE, FakeCommands, VirtualTime, finding

HEAT = "GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across the gang, 92 °C"
PIECE = ("[astraeus: GPU 3 slowed down by heat: 1386 MHz against 1980 MHz across the gang, 92 C (GPU-8f); run 123 at "
         "2026-11-30 14:14 UTC]")
REASON = "astraeus: " + PIECE.removeprefix("[astraeus: ").removesuffix("]")


def slow(number: int = 123, node: str = "c3", **details: Any) -> Finding:
    """A straggler by a GPU."""
    return finding(key=f"test/{number}/0/0/straggler/{number}-2", kind="straggler", rule="straggler", job=number,
                   run=str(number), worker=f"{number}-2", rank=2, node=node, said=HEAT, action="none",
                   details={"class": "gpu", "gpu": 3, "uuid": "GPU-8f", "signs": [
                       {"class": "gpu", "kind": "heat", "words": HEAT, "gpu": 3, "uuid": "GPU-8f"}]} | details)


class World:
    """Flags over a fake Slurm, in virtual time."""

    def __init__(self, action: str = "comment", mode: str = "act", **state: Any) -> None:
        self.slurm = FakeSlurm(**state)
        self.time = VirtualTime()
        self.config = parse(f'[watch]\nmode = "{mode}"\n[nodes]\nnode_action = "{action}"\n')
        self.store = Store(":memory:", self.time.wall)
        self.nodes = Nodes(FakeCommands(self.slurm))
        self.events: list[Event] = []
        self.flags = NodeFlags(
            self.config, NodeWriter(self.nodes, self.store, Pace(0), self.time.wall), self.store, self.events.append,
            self.time.wall, self.time.steady)

    def note(self, *findings: Finding, act: bool = True) -> None:
        for one in findings:
            self.flags.note(one, act)

    def bring(self, *names: str) -> None:
        async def all_of() -> None:
            for name in names or ("c3",):
                await self.flags._bring(name)
        asyncio.run(all_of())

    def comment(self, node: str = "c3") -> str:
        return self.slurm.node(node)["comment"]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def test_a_gpu_flags_its_node_with_a_piece_in_its_comment() -> None:
    world = World()
    world.slurm.node("c3")["comment"] = "rack 7 | line\ntwo  "
    world.note(slow())
    world.bring()
    assert world.comment() == f"rack 7 | line\ntwo   {PIECE}"
    assert world.events[0].message == f"Node c3 flagged: {HEAT}"
    world.bring()
    assert len(world.slurm.called("scontrol", "update")) == 1, "it is written only when it changes"
    world.flags.over(slow().key)
    world.note(slow(124))
    world.bring()
    assert world.comment() == "rack 7 | line\ntwo   " + PIECE.replace("run 123", "run 124").replace(
        "UTC]", "UTC; 2 times in 30 days]")
    assert asyncio.run(world.flags.clear("c3", "root")) == (
        False, "its flags are cleared; node c3 was not drained by Astraeus")
    assert (world.comment(), world.flags.all(), world.store.flags.marks()) == ("rack 7 | line\ntwo  ", [], [])
    assert world.kinds() == ["node_flagged", "node_flagged", "node_cleared"]


@pytest.mark.parametrize(("finding_", "kind"), [
    (slow(), "gpu"), (slow(signs=[{"class": "link", "kind": "down", "words": "rail mlx5_1: is DOWN"}]), "link"),
    (slow(signs=[{"class": "time", "kind": "iteration", "words": "t is 2 against 1 across the gang"}]), None),
    (slow(signs=[{"class": "weak", "kind": "hot", "words": "GPU 3 is close to its slowdown"}]), None),
    (finding(kind="at_risk"), None), (finding(), "stall"), (finding(action="list"), None), (finding(rank=None), None),
    (finding(details={"cause_kind": "deadlock"}), None), (finding(details={"cause_kind": "rank_gone"}), "stall"),
    (finding(details={"cause_kind": "gpu_lost", "cause": "GPU 1 is lost"}), "gpu"), (finding(kind="suspect"), None)])
def test_what_speaks_of_a_node(finding_: Finding, kind: str | None) -> None:
    flag = of_finding(finding_, True)
    assert (flag and flag.kind) == kind


def test_a_guilty_rank_alone_is_noted_and_two_jobs_flag_the_node() -> None:
    world = World()
    world.note(finding())
    world.bring()
    assert (world.comment(), [of.flagged for of in world.flags.all()]) == ("", [False])
    world.note(finding(key="test/124/0/0/stalled/124-5", job=124, run="124", worker="124-5"))
    world.bring()
    assert world.comment().startswith("[astraeus: stalled: no output since 14:02 UTC; rank 5 (node c3, PID 4242) is ")
    assert world.comment().endswith("worker 124-5 at 2026-11-30 14:14 UTC; 2 times in 30 days]")
    world.note(finding(node="c4", key="test/124/0/0/stalled/124-5", job=124, run="124", worker="124-5"))
    world.bring()
    assert world.comment() == "", "the guilty rank turned out to be another one, on another node"
    world.note(finding(details={"cause_kind": "deadlock"}))
    assert [of.node for of in world.flags.all()] == ["c4"], "the cause turned out to be the job's own"
    assert len(sentence(flagged([of_finding(slow(signs=[{"class": "gpu", "words": "x" * 900}]), True)])[0])) < 330  # type: ignore[list-item]


@pytest.mark.parametrize(("before", "act", "action", "mode"), [
    ('{"tool": 1}', True, "comment", "act"), ("mine", False, "comment", "act"), ("mine", True, "none", "act")])
def test_what_is_left_alone(before: str, act: bool, action: str, mode: str) -> None:
    world = World(action, mode)
    world.slurm.node("c3")["comment"] = before
    world.note(slow(), act=act)
    world.bring()
    world.bring()
    assert (world.comment(), world.slurm.called("scontrol", "update")) == (before, [])
    assert world.kinds() == ["node_flagged"] + (["node_left"] if act and action == "comment" else [])


def test_old_flags_take_their_piece_along() -> None:
    world = World()
    world.note(slow())
    world.bring()
    world.time.now += 31 * 86400
    world.bring()
    assert (world.comment(), world.store.flags.marks()) == ("", [])


def test_a_person_drains_and_clears() -> None:
    world = World()
    world.note(slow())
    world.bring()
    assert asyncio.run(world.flags.drain("c3", "root")) == REASON
    assert (world.slurm.node("c3")["state"], world.slurm.node("c3")["reason"]) == ("draining", REASON)
    with pytest.raises(Declined, match="is draining already, by Astraeus"):
        asyncio.run(world.flags.drain("c3", "root"))
    assert asyncio.run(world.flags.clear("c3", "root")) == (
        True, "its flags are cleared; node c3 is back in service")
    assert world.slurm.node("c3") == {"state": "mixed", "reason": "none", "comment": ""}
    with pytest.raises(Declined, match="is not flagged"):
        asyncio.run(world.flags.clear("c3", "root"))


@pytest.mark.parametrize(("state", "reason"), [("drained", "bad fan"), ("down*", "Not responding"), ("failing", "x")])
def test_a_foreign_reason_is_never_touched(state: str, reason: str) -> None:
    world = World()
    world.note(slow())
    world.slurm.node("c3").update(state=state, reason=reason)
    with pytest.raises(Declined, match=f"{reason}; left as it is"):
        asyncio.run(world.flags.drain("c3", "root"))
    assert world.slurm.called("scontrol", "update") == []


def test_a_reason_that_somebody_wrote_over_ours_stays() -> None:
    world = World()
    world.note(slow())
    asyncio.run(world.flags.drain("c3", "root"))
    world.slurm.node("c3")["reason"] = "waiting for a part"
    resumed, said = asyncio.run(world.flags.clear("c3", "root"))
    assert (resumed, "stays draining, its reason is not ours: waiting for a part" in said) == (False, True)
    assert (world.slurm.node("c3")["state"], world.slurm.node("c3")["reason"]) == ("draining", "waiting for a part")


def test_who_drains_at_the_same_time_wins() -> None:
    world = World()
    world.note(slow())
    world.slurm.state["node_refused"] = "slurm_update error: Invalid node state specified"
    with pytest.raises(Declined, match="refused to drain c3"):
        asyncio.run(world.flags.drain("c3", "root"))
    assert world.store.flags.mark("c3").reason == ""


def test_nothing_is_drained_unless_something_is_known_and_may_be_written() -> None:
    world = World()
    with pytest.raises(Declined, match="nothing is known against node c3"):
        asyncio.run(world.flags.drain("c3", "root"))
    world = World(mode="observe")
    world.note(slow(), act=False)
    with pytest.raises(Declined, match="mode is observe"):
        asyncio.run(world.flags.drain("c3", "root"))
    asyncio.run(world.flags.clear("c3", "root"))
    assert (world.flags.all(), world.slurm.called("scontrol")) == ([], [])


def test_by_policy_no_more_than_so_many_and_never_twice_for_one_flag() -> None:
    world = World("drain")
    world.note(slow(123, "c1"), slow(124, "c2"), slow(125, "c3"), finding(node="c4"),
               finding(node="c4", job=124, key="x"))
    world.bring("c1", "c2", "c3", "c4")
    states = {name: world.slurm.node(name)["state"] for name in ("c1", "c2", "c3", "c4")}
    assert states == {"c1": "draining", "c2": "draining", "c3": "mixed", "c4": "mixed"}
    assert [e.message for e in world.events if e.kind == "node_left"] == [
        "Node c3: not drained: c1, c2 drained already, max_drained is 2"]
    world.slurm.node("c1").update(state="mixed", reason="none")  # an admin resumes it
    world.bring("c1", "c3")
    world.bring("c1")
    assert [world.slurm.node(name)["state"] for name in ("c1", "c3")] == ["mixed", "draining"]
    assert world.store.flags.mark("c1").reason == ""


def test_what_is_over_is_not_drained_later() -> None:
    world = World("drain")
    world.note(slow())
    world.flags.over(slow().key)
    world.bring()
    assert (world.slurm.node("c3")["state"], world.comment() != "") == ("mixed", True)


# Over the API

NOBODY = pwd.getpwnam("nobody").pw_uid


def asked(uid: int, node: str = "c3", **query: str) -> Any:
    reader = Reader("nobody", uid, is_operator=uid == 0)
    return SimpleNamespace(path_params={"node": node}, query_params=query, scope={READER: reader})


def api(world: World, mine: set[int] | None = None) -> NodeApi:
    return NodeApi(world.flags, may_see=lambda request, job: request.scope[READER].is_operator or job in (
        mine or ()))


@pytest.mark.parametrize(("level", "status"), [("None", 403), ("Operator", 0), ("Administrator", 0)])
def test_operators_may(level: str, status: int) -> None:
    world = World(levels={"nobody": level})
    world.note(slow())
    if status:
        with pytest.raises(Problem, match="only root, SlurmUser, and users whom Slurm") as fault:
            asyncio.run(api(world).drain(asked(NOBODY)))
        assert fault.value.status == status
        assert world.slurm.called("scontrol", "update") == []
    else:
        assert asyncio.run(api(world).drain(asked(NOBODY)))["reason"] == REASON
        assert world.events[-1].message == f"Node c3 drained by nobody: {REASON}"


def test_bad_names_and_what_does_not_answer() -> None:
    world = World()
    for call in (api(world).drain, api(world).clear):
        with pytest.raises(Problem, match="is no name of a node") as fault:
            asyncio.run(call(asked(0, "c3;id")))
        assert fault.value.status == 400
        with pytest.raises(Problem) as fault:
            asyncio.run(call(asked(0)))
        assert fault.value.status == 409
    world.slurm.state["away"] = True
    world.note(slow())
    with pytest.raises(Problem) as fault:
        asyncio.run(api(world).drain(asked(0)))
    assert fault.value.status == 503


def test_the_list_tells_each_what_is_his() -> None:
    world = World()
    world.note(slow(), slow(124), finding(node="c4", job=125, run="125"))
    world.bring()
    (all_of,) = api(world).list(asked(0))["nodes"]
    assert (all_of["node"], all_of["gpu"], all_of["uuid"], all_of["times"], all_of["runs"], all_of["others"]) == (
        "c3", 3, "GPU-8f", 2, ["123", "124"], 0)
    assert (all_of["evidence"], all_of["commented"], all_of["drained"], len(all_of["flags"])) == (HEAT, True, False, 2)
    (some,) = api(world, {124}).list(asked(NOBODY))["nodes"]
    assert (some["runs"], some["others"], len(some["flags"]), some["evidence"]) == (["124"], 1, 1, HEAT)
    both = api(world).list(asked(NOBODY, all=""))["nodes"]
    assert [(one["node"], one["flagged"], one["evidence"]) for one in both] == [
        ("c3", True, HEAT), ("c4", False, "a run of another user stalled here")]


def test_flags_are_bounded() -> None:
    world = World()
    world.note(*(slow(200 + n) for n in range(80)))
    assert len(world.flags.of("c3")) == 64
    world.store.wall = lambda: SINCE + 400 * 86400
    world.store.forget()
    assert world.flags.all() == []


@pytest.mark.parametrize(("names", "folded"), [
    ((), ""), (("c3",), "c3"), (("c1", "c2", "c3", "c7"), "c[1-3,7]"),
    (("gpu-09", "gpu-10", "login"), "gpu-[09-10],login"),
    (("c9", "c10"), "c9,c10"), (("a1-b2", "a1-b3"), "a1-b[2-3]")])
def test_a_list_for_exclude(names: tuple[str, ...], folded: str) -> None:
    assert cli.fold(names) == folded


