"""Recordings of jobs whose output holds words of a collective: some are stuck, some only look so."""
# ruff: noqa: E501 - posted lines are long

from __future__ import annotations

from typing import Any

from astraeus_protocol.readings import Said

from scorecard.lookalikes import nothing
from scorecard.people import FAULT, SITE_60S, gang
from scorecard.stalls import expect
from scorecard.world import FAR, World, every

Made = tuple[World, dict[str, Any], str]

CAUGHT = ("[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
          "timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for "
          "600020 milliseconds before timing out.")
OLD = ("[E ProcessGroupNCCL.cpp:587] [Rank 14] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
       "Timeout(ms)=1800000) ran for 1800834 milliseconds before timing out.")
STUCK = Said("stuck", "nccl", CAUGHT, rank=1, op="ALLREDUCE", seq=808, ran_ms=600020, enqueued=811, completed=807)
WORDS = {"rule": "collective_said", "worker": "1001", "rank": None}


def untied(count: int = 8, nodes: int = 4, **more: Any) -> World:
    """Ranks whose connections are not seen, and whose pulse says nothing: shared memory and RDMA, spinning threads."""
    world = gang(count, nodes, **more)
    for rank in world.ranks:
        for proc in rank.procs:
            proc.ties, proc.pulse_from = [], FAR
    return world


def said(world: World, word: Said = STUCK, at: float = FAULT, until: float = FAR, *, own: int | None = None) -> World:
    world.said.append((at, until, own, word))
    return world


def by_words_as_the_seed_says() -> Made:
    world = said(gang(4, 2, step_settings={"stall_after": "900"}, output=every(10, 120), end=900), at=240)
    return world, expect(
        "patience 15m, NCCL says it two minutes after the last output", "the specification", fault_at=240, after=600,
        within=625, suspect_within=20, **WORDS, says=[
            "Stalled: No progress for 12m: no output since 13:02 UTC; NCCL: rank 1 says \"Watchdog caught collective "
            "operation timeout\" at 13:04 UTC: ALLREDUCE #808 ran for 10m, enqueued 811, completed 807; no rank stands "
            "out"]), ""


def watchdog_fires_but_process_lives() -> Made:
    world = said(untied(output=every(5, FAULT)), Said("stuck", "nccl", OLD, rank=14, op="ALLREDUCE", ran_ms=1800834))
    return world, expect("an old watchdog speaks and does not end the program; GPUs spin on", "pytorch/pytorch#97191",
                         suspect_within=30, **WORDS, says=["ALLREDUCE ran for 30m; no rank stands out"]), ""


def gloo_without_a_rank() -> Made:
    line = ("[trainer22|6]:RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
            "operation to complete")
    world = said(untied(2, 2, gpus=False, output=every(5, FAULT)), Said("stuck", "gloo", line, op="recv"), own=1)
    return world, expect("gloo gives up, no rank in the text, CPUs only", "pytorch/gloo#511", suspect_within=30, **WORDS,
                         says=["Gloo: rank 1 says", "no rank stands out"]), ""


def barrier_names_the_missing() -> Made:
    line = "[Rank 0]: Ranks 5 failed to pass monitoredBarrier in 30000 ms"
    world = said(untied(output=every(5, FAULT)), Said("stuck", "c10d", line, rank=0, ranks=(5,)))
    return world, expect("the monitored barrier names rank 5", rule="collective_said", worker="1001-5", rank=5, pid=4005,
                         node="c3", suspect_within=30, says=[
                             "PyTorch: rank 0 says \"Ranks 5 failed to pass monitoredBarrier in 30000 ms\" at 13:02 UTC; "
                             "rank 5 (node c3, PID 4005) is missing"]), ""


def aborted_and_alive() -> Made:
    line = "RuntimeError: NCCL communicator was aborted on rank 3."
    world = said(untied(output=every(5, FAULT)), Said("aborted", "nccl", line, rank=3))
    return world, expect("a communicator was aborted, its processes live on quietly", suspect_within=30, **WORDS,
                         says=["NCCL: rank 3 says"]), ""


def words_and_more_words() -> Made:
    """What the watchdog writes while it ends a process is no progress."""
    world = said(untied(output=every(5, FAULT), end=400))
    quiet = world.output
    assert quiet
    world.output = lambda t: 240.0 if t >= 240 else quiet(t)
    world.said += [(FAULT, 240, None, Said("dying", "nccl", "x", rank=1)),
                   (240, FAR, None, Said("dying", "nccl", "taking the entire process down", rank=1))]
    return world, expect("stalled by words; two minutes later the watchdog says that it ends the process", **WORDS), ""


def goes_on_afterwards() -> Made:
    world = said(untied(output=every(10, 120), end=300))
    world.output = every(10, 120, 200)
    return world, expect("the collective was only slow: it goes on after a minute", after=60, within=80, **WORDS,
                         closed=["progress"]), ""


def normal_exit() -> Made:
    line = ("[rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was "
            "not called before program exit, which can leak resources.")
    return said(untied(output=every(5, FAULT)), Said("benign", "nccl", line, rank=0)), nothing(
        "a process group was not destroyed; what follows is quiet and busy", "pytorch/pytorch#126275"), ""


def store_noise() -> Made:
    line = ('[rank1]:[W1229 22:06:38.480071392 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to check the '
            '"should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe')
    return said(untied(output=every(1)), Said("ambiguous", "nccl", line, rank=1)), nothing(
        "rank 0 is gone with its store, the others complain each second", "xorbitsai/inference#4421"), ""


def relaunched() -> Made:
    world = said(untied(output=every(5, FAULT, 150), end=600), until=165)
    return world, nothing("a launcher starts its workers anew in the same log", "tianweiy/CenterPoint#224",
                          may_suspect=True), ""


def tokenises() -> Made:
    line = CAUGHT.replace("SeqNum=808", "SeqNum=2").replace("=9801523", "=1")
    return said(untied(4, 1, output=every(1), end=600), Said("stuck", "nccl", line, rank=2, op="ALLREDUCE", seq=2)), nothing(
        "rank 0 tokenises, its bar moves; the others' watchdogs speak", "hiyouga/LlamaFactory#2424",
        may_suspect=True), ""


def compiles() -> Made:
    line = "INFO [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
    return said(untied(output=every(60, 180), end=500), Said("ambiguous", "vllm", line, last_s=60)), nothing(
        "vLLM's line of a minute while it compiles, then a long quiet step", "vllm-project/vllm-ascend#9287"), ""


def went_on_for_long() -> Made:
    return said(untied(output=every(10, 480), end=900)), nothing(
        "a word of an hour ago, steps since; now a quiet evaluation", "NVIDIA/nccl#865", may_suspect=True), ""


def aborted_and_gone() -> Made:
    world = said(untied(output=every(5, FAULT)), Said("aborted", "nccl", "NCCL communicator was aborted on rank 3.", rank=3))
    world.ranks[3].exit = (FAULT + 5, 1 << 8)
    return world, nothing("a communicator was aborted and its process exited: a failure, no stall",
                          may_suspect=True), ""


def saves_a_checkpoint() -> Made:
    world = said(untied(output=every(5, FAULT), end=400))
    world.ranks[0].writing = [(FAULT - 20, FAR)]
    return world, nothing("a checkpoint takes longer than the collective's timeout", "meta-pytorch/torchtune#2093"), ""


def on_another_step_of_the_way() -> Made:
    return said(untied(output=every(5, FAULT), step_settings={}, end=400)), nothing(
        "words, but the site's patience of 10 min is not over", may_suspect=True), SITE_60S.replace("60s", "30m")


SAID = {f"{number}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    by_words_as_the_seed_says, watchdog_fires_but_process_lives, gloo_without_a_rank, barrier_names_the_missing,
    aborted_and_alive, words_and_more_words, goes_on_afterwards, normal_exit, store_noise, relaunched, tokenises,
    compiles, went_on_for_long, aborted_and_gone, saves_a_checkpoint, on_another_step_of_the_way), 121)}
