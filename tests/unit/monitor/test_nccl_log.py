"""Words of a log, as they were posted."""
# ruff: noqa: E501 - posted lines are long

from __future__ import annotations

import time

import pytest
from astraeus_monitor.sources.nccl_log import Log, told, words
from astraeus_protocol.readings import Work

MARK = "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] "
CAUGHT = ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, "
          "NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.")
BAR = "Epoch 0:   6%|██      | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6, global_step=3.2e+4]"


def one(text: str) -> tuple[object, ...] | None:
    found = list(words(text.encode()))
    assert len(found) <= 1, found
    return (found[0].kind, found[0].rank, found[0].op, found[0].seq, found[0].ran_ms) if found else None


@pytest.mark.parametrize(("text", "expected"), [
    ("[E ProcessGroupNCCL.cpp:587] [Rank 14] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
     "Timeout(ms)=1800000) ran for 1800834 milliseconds before timing out.", (14, "ALLREDUCE", None, 1800834)),
    ("RuntimeError: NCCL communicator was aborted on rank 7.  Original reason for failure was: [Rank 7] Watchdog caught "
     "collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1809147 milliseconds before "
     "timing out.", (7, "ALLREDUCE", None, 1809147)),
    ("[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
     "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800328 milliseconds before timing out.",
     (2, "ALLREDUCE", 2, 1800328)),
    ("[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=158046, "
     "OpType=GATHER, NumelIn=2867200, NumelOut=0, Timeout(ms)=600000) ran for 600027 milliseconds before timing out.",
     (1, "GATHER", 158046, 600027)),
    (MARK + CAUGHT, (1, "ALLREDUCE", 808, 600020)),
    (BAR + "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=96120, "
     "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.",
     (0, "ALLREDUCE", 96120, 25624887)),
    ("(worker 3) 12: " + MARK + CAUGHT, (1, "ALLREDUCE", 808, 600020)),
])
def test_a_timeout_of_every_age(text: str, expected: tuple[object, ...]) -> None:
    assert one(text + "\n") == ("stuck", *expected)


@pytest.mark.parametrize(("text", "enqueued", "completed"), [
    ("[rank1]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either "
     "an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.",
     811, 807),
    ("[rank118]:[E603 17:48:01.005538748 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 118]  failure "
     "detected by watchdog at work sequence id: 808 PG status: last enqueued work: 2398578, last completed work: 2398458",
     2398578, 2398458),
    ("[rank0]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 0] Timeout at NCCL work: 808, last enqueued NCCL work: 809, last "
     "completed NCCL work: 76280750235782912.", 809, None),
    ("[rank0]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 0] Timeout at NCCL work: 808, last enqueued NCCL work: 809, last "
     "completed NCCL work: -1.", 809, None),
])
def test_work_that_was_enqueued_and_completed(text: str, enqueued: int, completed: int | None) -> None:
    [found] = words(text.encode())
    assert (found.kind, found.seq, found.enqueued, found.completed) == ("stuck", 808, enqueued, completed)


@pytest.mark.parametrize(("kind", "stack", "text"), [
    ("stuck", "nccl", "[rank3]:[E909 09:55:46.9 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Received a dump signal "
     "due to a collective timeout from  rank 5 and we will try our best to dump the debug info."),
    ("dying", "nccl", "[rank3]:[E ProcessGroupNCCL.cpp:577] [Rank 3] Some NCCL operations have failed or timed out. Due to"),
    ("dying", "nccl", "[rank3]:[E ProcessGroupNCCL.cpp:583] [Rank 3] To avoid data inconsistency, we are taking the entire "
     "process down."),
    ("dying", "nccl", "[E ProcessGroupNCCL.cpp:915] [Rank 3] NCCL watchdog thread terminated with exception: x"),
    ("dying", "nccl", "[rank3]:[F909 10:04:46 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0 Rank 3] [PG ID 0 PG GUID 0 Rank 3] Terminating "
     "the process after attempting to dump debug info, due to collective timeout or exception."),
    ("ambiguous", "nccl", "[rank4]:[E205 18:11:06.376 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT) Rank 4] "
     "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring"),
    ("aborted", "nccl", "RuntimeError: NCCL communicator was aborted on rank 3."),
    ("peer_gone", "nccl", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
     "prematurely."),
    ("peer_gone", "nccl", "gpu-1:5971:6015 [4] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer"),
    ("stuck", "gloo", "[trainer22|6]:RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
     "recv operation to complete"),
    ("peer_gone", "gloo", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:40222"),
    ("stuck", "c10d", "[Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 30000 ms"),
    ("stuck", "mlx", "[ring] Too many send/recv errors. Aborting..."),
    ("ambiguous", "xla", "This thread has been waiting for `Rendezvous` for 10 seconds and may be stuck. Expected 8 threads"),
    ("dying", "xla", "Termination timeout for `all-reduce` of 40 seconds exceeded. Exiting to ensure a consistent program"),
    ("ambiguous", "vllm", "(EngineCore_DP0 pid=323240) INFO 12-09 11:25:53 [shm_broadcast.py:466] No available shared memory "
     "broadcast block found in 60 seconds. This typically happens when some processes are hanging"),
    ("restart", "launcher", "INFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group"),
    ("benign", "nccl", "[rank0]:[W515 07:06:42.829549331 ProcessGroupNCCL.cpp:1117] WARNING: process group has NOT been "
     "destroyed before it is being destructed. On normal program exit"),
    ("benign", "nccl", "[rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
     "destroy_process_group() was not called before program exit, which can leak resources."),
    ("ambiguous", "nccl", "[rank1]:[W1229 22:06:38.480071392 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to "
     'check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'),
])
def test_classes(kind: str, stack: str, text: str) -> None:
    [found] = words(text.encode() + b"\n")
    assert (found.kind, found.stack) == (kind, stack)


@pytest.mark.parametrize("text", [
    "I1028 12:13:38.405081 632355 ProcessGroupNCCL.cpp:843] [Rank 0] NCCL watchdog thread started!",
    "[rank0]:[I909 09:55:46 ProcessGroupNCCL.cpp:893] [PG ID 0 Rank 0] ProcessGroupNCCL initialization options: "
    "TIMEOUT(ms): 600000, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: 480",
    "User: my log says " + CAUGHT,  # quoted without the mark
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(truncated",
    "bj-node:5971:6015 [4] NCCL INFO socketPollConnect: connect to 10.0.0.148<52333> returned Connection refused, retrying",
    "loss 0.3 timeout watchdog stuck hang",
    "",
])
def test_what_only_looks_like_it(text: str) -> None:
    assert one(text + "\n") is None


def test_ranks_that_are_named_and_ranks_that_a_label_tells() -> None:
    desync = (MARK + "Watchdog: \n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
              "\t   - [4, 6] joined but didn't finish collective #5 (count from 1)\n"
              "\t     [2] finished collective #4, but didn't join collective #5 (count from 1)\n")
    assert [(w.kind, w.ranks) for w in words(desync.encode())] == [("stuck", (2, 4, 6))]
    gloo = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation\n"
    assert [w.rank for w in words(f"13: {gloo}".encode())] == [13]
    assert [w.rank for w in words(gloo.encode())] == [None]
    assert [w.rank for w in words(f"13: {MARK}{CAUGHT}".encode())] == [1]  # the program's own rank goes over it


def test_one_ranks_words_add_up() -> None:
    log = Log()
    log.feed((MARK + CAUGHT + "\n" + MARK.replace("1", "7") + "failure detected by watchdog at work sequence id: 9 PG status: "
              "last enqueued work: 1, last completed work: 0\n" + MARK + "Exception (either an error or timeout) detected by "
              "watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.\n").encode())
    [word] = log.words.values()
    assert (word.rank, word.op, word.seq, word.enqueued, word.completed) == (1, "ALLREDUCE", 808, 811, 807)


def test_lines_end_with_cr_too_and_come_in_order() -> None:
    text = f"{BAR}\r{MARK}{CAUGHT}\rnothing\r\n[Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 30000 ms\n"
    found = list(words(text.encode()))
    assert [(w.stack, w.rank, w.ranks) for w in found] == [("nccl", 1, ()), ("c10d", 0, (4, 5))]
    assert found[0].line == MARK + CAUGHT


def test_the_proof_is_kept_and_a_restart_clears_it() -> None:
    stuck, dying = MARK + CAUGHT + "\n", "[E ProcessGroupNCCL.cpp:1] [Rank 2] Some NCCL operations have failed or timed out.\n"
    again = "INFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group\n"
    log = Log()
    for part in (stuck, MARK.replace("1", "7") + CAUGHT + "\n", dying):
        log.feed(part.encode())
    assert log.word is not None
    assert (log.word.kind, log.word.rank) == ("stuck", 1)  # the first time is kept
    log.feed(again.encode())
    assert log.word is None


def test_a_line_that_comes_in_pieces() -> None:
    log = Log()
    for letter in (BAR + MARK + CAUGHT).encode():
        log.feed(bytes([letter]))
    assert log.word is None  # it may yet go on
    log.end()
    assert log.word is not None
    assert log.word.ran_ms == 600020


def test_a_line_without_end_costs_little() -> None:
    text = b"[" * (4 << 20) + MARK.encode() + CAUGHT.encode() + b"[" * (4 << 20)
    began = time.process_time()
    [found] = words(text)
    assert found.seq == 808
    assert time.process_time() - began < 1


def test_fifteen_thousand_lines_a_second() -> None:
    """A look each 15 s finds 225,000 lines: they cost a small part of that time."""
    text = b"".join(b"step %d loss 0.123456 lr 1e-4 tokens 4096 time 0.123 s\n" % i for i in range(225_000))
    text += MARK.encode() + CAUGHT.encode() + b"\n"
    began = time.process_time()
    assert [w.seq for w in words(text)] == [808]
    assert time.process_time() - began < 1.5


def test_what_each_rank_enqueued_in_a_shared_file() -> None:
    """Of the default group alone, by the ranks of the whole program; the newest of each."""
    def line(rank: int, inside: str, enqueued: int, completed: int) -> bytes:
        return (f"[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1834] [{inside}] Timeout at NCCL work: 808, last "
                f"enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.\n").encode()
    log = Log()
    log.feed(line(3, "PG ID 0 PG GUID 0(default_pg) Rank 3", 811, 807)
             + line(5, "PG ID 0 PG GUID 0(default_pg) Rank 5", 807, 76280750235782912)
             + line(6, "PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) Rank 0", 12, 11)
             + line(3, "PG ID 0 PG GUID 0(default_pg) Rank 3", 812, 807) + line(1, "Rank 1", 811, -1))
    _, [word] = log.take()
    assert sorted(word.works, key=lambda work: work.rank) == [Work(1, 811), Work(3, 812, 807), Work(5, 807)]
    many = tuple(Work(rank, 900 - rank) for rank in range(200))
    told_of = told(many)
    assert (len(told_of), told_of[0], told_of[-1]) == (64, Work(199, 701), Work(0, 900))
