"""Replies of real RAS servers of NCCL 2.24.3, 2.28.9 and 2.30.7, read as they are; ras-replies.tar.xz holds them."""

from __future__ import annotations

import contextlib
import functools
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from astraeus_monitor.sources.nccl_ras import NO_COMMS, ZEROED, RasWatch, Reply, Unread, compact, read_json
from astraeus_monitor.sources.ras_text import read_text
from astraeus_protocol.devices import Ras, RasComm, RasGroup, RasRank
from astraeus_protocol.ras import behind

ZERO = (b'OK\n{"nccl_version": "2.30.7", "communicators": [{"hash": "0x0", "secondary_hash": "0x0:0x0", "size": 0, '
        b'"ranks": [], "missing_ranks": [\n\n ]}]}\n')


@functools.cache
def replies() -> dict[str, bytes]:
    with tarfile.open(Path(__file__).with_name("ras-replies.tar.xz")) as held:
        return {one.name: file.read() for one in held if (file := held.extractfile(one))}


def told(name: str) -> Reply:
    return (read_json if ".json." in name else read_text)(replies()[name])


def seen(comm: RasComm) -> tuple[Any, ...]:
    """What is told of it, but for its id."""
    return ([(one.rank, one.host, one.why) for one in comm.missing], [(g.n, [r.rank for r in g.ranks]) for g in
            comm.groups if len(comm.groups) > 1 and 2 * g.n < comm.size], comm.states, sum(comm.errors.values()))


ONE = [(6, "127.0.0.2", "missing")]
DEAD = [(6, "127.0.0.2", "dead")]
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "healthy": [], "healthy_zero": [], "init_all": [], "nocomms_at_all": [],
    "abort_one": [([], [], {"RUNNING": 7, "ABORT": 1}, 0)],
    "async_error_one": [([], [], {"RUNNING": 8}, 1)],
    "async_error_three": [([], [], {"RUNNING": 8}, 3)],
    "finalize_part": [([], [], {"FINALIZE": 3, "RUNNING": 5}, 0)],
    "init_error_one": [([], [], {"RUNNING": 7, "INIT": 1}, 1)],
    "init_part": [([], [], {"RUNNING": 5, "INIT": 3}, 0)],
    "mismatch_half": [([], [], {"RUNNING": 8}, 0)],
    "mismatch_kind": [([], [(1, [7])], {"RUNNING": 8}, 0)],
    "mismatch_one_behind": [([], [(1, [3])], {"RUNNING": 8}, 0)],
    "mismatch_two_zero": [([], [(2, [3, 7])], {"RUNNING": 8}, 0)],
    "nocomm_one": [([], [], {"RUNNING": 7, "NOCOMM": 1}, 0)],
    "nocomm_most": [([], [], {"RUNNING": 2, "NOCOMM": 6}, 0)],
}


@pytest.mark.parametrize("version", ["v2_24_3", "v2_28_9", "v2_30_7"])
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_each_state_is_told_alike_in_every_form(case: str, version: str) -> None:
    found = [name for name in replies() if name.startswith(f"{version}.{case}.")]
    assert found
    for name in found:
        reply = told(name)
        want = EXPECTED[case]
        if version == "v2_24_3":  # tells of no error after the start, and has another word for who is no member
            if case.startswith("async_error"):
                want = []
            want = [(m, g, {{"NOCOMM": "UNKNOWN"}.get(k, k): n for k, n in states.items()}, e)
                    for m, g, states, e in want]
        assert [seen(comm) for comm in compact(reply).comms] == want, name
        assert reply.unknown == (NO_COMMS if case == "nocomms_at_all" else ""), name


@pytest.mark.parametrize("name", [n for n in sorted(replies()) if re.search(r"\.(sig|clean|fini)\w*2x4\.t", n)])
def test_one_rank_that_went_away(name: str) -> None:
    """Stopped, killed, left in good order: missing at once, dead after a minute."""
    seconds = float(re.search(r"\.t([\d.]+)s\.", name)[1])  # type: ignore[index]
    reply = compact(told(name))
    assert not reply.unknown
    [comm] = reply.comms
    found = [(one.rank, one.host, one.why) for one in comm.missing]
    if "json" in name or seconds != 62:
        assert found in ((DEAD, ONE) if 60 <= seconds < 66 else (DEAD,) if seconds > 66 else (ONE,)), name
    assert comm.missing_n == 1
    assert comm.missing[0].pid > 0, "2.24 names the process in another section"
    if "json" in name:
        assert comm.groups[0].counts == {"AllReduce": 100}


def test_text_of_many_gpus_and_of_a_resumed_process() -> None:
    [comm] = told("v2_30_7.multigpu_killed.status.txt").comms
    assert [one.rank for one in comm.missing] == [4, 5, 6, 7]
    assert {(one.host, one.pid) for one in comm.missing} == {("127.0.0.2", 12581)}
    assert told("v2_30_7.uneven_nodes.status.txt").of == 1
    others = told("v2_30_7.sigcont_after_dead.view1.txt").comms[0]
    assert [(one.rank, one.why) for one in others.missing] == [(0, "dead"), (1, "dead"), (3, "dead")]


def test_a_communicator_of_hash_zero_hides_others() -> None:
    assert read_json(ZERO).unknown == ZEROED
    row = replies()["v2_30_7.healthy.status.txt"].replace(b"         4         8         8   RUNNING",
                                                         b"         4         0         0    NOCOMM")
    assert read_text(row).unknown == ZEROED


@pytest.mark.parametrize("data", [b"", b"OK\n", b"{", b"ERROR: Unknown command STATUS\n", b"\xff\xfe{\x00",
                                  b'{"communicators": 3}', b'{"communicators": [{"hash": 1}]}'])
def test_what_is_no_reply(data: bytes) -> None:
    for read in (read_json, read_text):
        with pytest.raises(Unread):
            read(data)


def test_every_protocol_answer_is_read_or_refused() -> None:
    """ERROR lines, half reports, reports with other lines in them: never an exception of another kind."""
    for name, data in replies().items():
        if ".proto." in name:
            for read in (read_json, read_text):
                with contextlib.suppress(Unread):
                    read(data)


def test_a_cut_text_is_not_taken_for_a_whole_one() -> None:
    data = replies()["v2_30_7.mismatch_one_behind.status.txt"]
    with pytest.raises(Unread, match="cut off"):
        read_text(data[:data.index(b"Warnings")])


def test_who_is_behind() -> None:
    def low(name: str) -> list[int]:
        [comm] = compact(told(name)).comms
        return [rank.rank for group in behind(comm)[0] for rank in group.ranks]

    for form in ("json", "status"):
        assert low(f"v2_30_7.mismatch_one_behind.{form}.txt") == [3]
        assert low(f"v2_30_7.mismatch_two_zero.{form}.txt") == [3, 7]
    assert low("v2_30_7.mismatch_kind.json.txt") == [7], "as many operations, but not the same ones"


def look(*groups: RasGroup, missing: tuple[int, ...] = (), unknown: str = "") -> Ras:
    lost = [RasRank(rank, "n1", 100 + rank, "missing") for rank in missing]
    comm = RasComm("a", 8, lost, len(lost), list(groups), {"RUNNING": 8})
    return Ras(version="2.30.7", of=1, comms=[] if unknown else [comm], unknown=unknown)


def test_looks_are_counted_while_nothing_changes() -> None:
    watch, still, moved = RasWatch(), RasGroup(7, {"AllReduce": 6}), RasGroup(7, {"AllReduce": 7})
    late = RasGroup(1, {"AllReduce": 5})
    for at, said in ((10.0, look(still, late)), (40.0, look(still, late, missing=(6,))),
                     (70.0, look(unknown="port 1: Connection refused")), (100.0, look(still, late, missing=(6,)))):
        watch.see(said, at)
    record = watch.record(105.0)
    assert record is not None
    [comm] = record.comms
    assert (comm.looks, comm.still_s) == (3, 90.0), "counted up to the last look, not up to now"
    assert (comm.missing[0].looks, comm.missing[0].s, record.s) == (2, 65.0, 5.0)
    watch.see(look(moved, late), 130.0)
    record = watch.record(130.0)
    assert record is not None
    assert (record.comms[0].looks, record.comms[0].still_s, record.comms[0].missing) == (1, 0.0, [])
    watch.clear()
    assert watch.record(140.0) is None


def test_an_answer_of_thousands_of_ranks_stays_small() -> None:
    ranks = [RasRank(rank, f"10.0.0.{rank % 250}", 4000 + rank) for rank in range(2048)]
    comms = [RasComm(str(n), 2048, ranks, 2048, [RasGroup(1024, {"AllReduce": 1}, ranks[:1024]),
                                                 RasGroup(1024, {}, ranks[1024:])]) for n in range(99)]
    found = compact(Reply("2.30.7", of=99, comms=comms))
    assert len(found.comms) == 16
    assert max(len(comm.missing) for comm in found.comms) == 32
