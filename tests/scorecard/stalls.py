"""Recordings of jobs that are stalled."""

from __future__ import annotations

from typing import Any

from scorecard.people import (
    ASKED,
    FAULT,
    FUSE,
    METRIC,
    SITE_60S,
    alone,
    gang,
    launcher,
    on_storage,
    state,
    stuck,
    unseen,
)
from scorecard.world import FAR, Proc, Rank, World, every

Made = tuple[World, dict[str, Any], str]


def expect(title: str, source: str = "made up", **more: Any) -> dict[str, Any]:
    found = {"title": title, "source": source, "expect": "stalled", "fault_at": FAULT, "after": 60,
             "within": 80}
    return found | more


RANK_5 = {"worker": "1001-5", "rank": 5, "pid": 4005, "node": "c3", "rule": "collective_stuck"}


def member_stopped() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "T")
    return world, expect(
        "rank 5 of 8 is stopped by SIGSTOP, the others spin", **RANK_5, suspect_within=30, cause="rank stopped", says=[
            "Stalled: No progress for 60s: no output since 13:02 UTC; "
            "rank 5 (node c3, PID 4005) is stopped (state T) for 60s; 7 of 7 other ranks wait"]), ""


def spinning_survivors() -> Made:
    world = state(stuck(gang(4, 4, gpus=False), odd=(2,)), 2, "T")
    return world, expect(
        "four ranks without GPUs, rank 2 stopped, the survivors use 100 % of a core each",
        "ml-explore/mlx#4278", worker="1001-2", rank=2, suspect_within=30,
        says=["rank 2 (node c3, PID 4002) is stopped (state T)"]), ""


def zombie() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "Z")
    return world, expect("rank 5 is a zombie that nobody waits for", **RANK_5, suspect_within=30,
                         cause="rank gone: it is a zombie", says=["is a zombie (state Z)"]), ""


def gone_by_signal() -> Made:
    world = stuck(gang(), odd=(5,))
    world.ranks[5].exit = (FAULT, 9)
    return world, expect("rank 5 is killed, srun keeps the step", **RANK_5, suspect_within=30,
                         cause="rank gone: killed by signal 9 (KILL)",
                         says=["rank 5 (node c3, PID 4005) is gone: killed by signal 9 (KILL); 7 of 7"]), ""


def gone_with_code() -> Made:
    world = stuck(gang(), odd=(5,))
    world.ranks[5].exit = (FAULT, 3 << 8)
    return world, expect("rank 5 exits with code 3, the others wait for it", **RANK_5,
                         cause="rank gone: exited with code 3", says=["is gone: exited with code 3"]), ""


def in_d_state() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "D")
    return world, expect("rank 5 reads from a storage that does not answer", "aws/efs-utils#374", **RANK_5,
                         suspect_within=60, says=["is in uninterruptible sleep (state D)"],
                         cause="in uninterruptible sleep: storage or a driver does not answer"), ""


def local_process_stopped() -> Made:
    world = launcher()
    stuck(world)
    world.ranks[0].procs[2].gone.clear()
    world.ranks[0].procs[2].odd.append((FAULT, FAR, "T", None))
    return world, expect(
        "one of a launcher's four processes is stopped", worker="1001-0", rank=0, pid=4242, node="c1",
        suspect_within=30, says=["rank 0 · local process 2 (RANK=2, PID 4242) on c1 is stopped (state T)",
                                 "3 of 3 other processes wait"]), ""


def half_stopped() -> Made:
    world = stuck(gang(), odd=(0, 1, 2, 3))
    for rank in range(4):
        state(world, rank, "T")
    return world, expect("half of the gang is stopped: no minority, nobody is named", worker="1001",
                         cause="ranks stopped", rank=None, suspect_within=30, says=["no rank stands out"]), ""


def one_of_two_jobs_idle() -> Made:
    idle = World(job=1002, ranks=[alone(pid=5000, gpus=[1], busy=every(5, FAULT))],
                 output=every(10, FAULT))
    idle.ranks[0].procs[0].pulse_from = FAR
    works = World(ranks=[alone(gpus=[0], busy=every(5))], more=[idle])
    return works, expect("two 1-GPU jobs on a node without options, one idle and quiet", job=1002, rank=0,
                         worker="1002-0", rule="gpus_idle", action="alert",
                         says=["no output since 13:02 UTC; its GPU idle since 13:02 UTC"]), SITE_60S


def gang_idle() -> Made:
    world = gang(busy=every(5, FAULT), step_settings={}, output=every(10, FAULT))
    return world, expect("a gang's GPUs idle and its output quiet, pulse present: nobody is named",
                         worker="1001", rank=None, rule="gpus_idle", says=[
                             "the GPUs of 8 of 8 ranks idle since 13:02 UTC; no rank stands out"]), SITE_60S


def never_began() -> Made:
    world = World(ranks=[alone(gpus=[0, 1], busy=None)], output=every(10, 30), step="batch")
    return world, expect("the GPUs were never busy, one line at the start", fault_at=30, worker="1001-0",
                         rule="never_began", says=["its 2 GPUs were never busy"],
                         cause="never began: its GPUs were never busy"), SITE_60S


def restart_asked() -> Made:
    world = state(stuck(gang(step_settings={"stall_after": "60", "restart_stalled": "1"}), odd=(5,)), 5, "T")
    return world, expect("as the first, with --restart-stalled", **RANK_5, action="restart"), ""


def silent_without_gpus() -> Made:
    world = World(ranks=[alone(cpu=every(5, FAULT))], output=every(10, FAULT), step_settings=dict(ASKED))
    return world, expect("a task without GPUs that asked: no output, no CPU", worker="1001-0", rule="silent",
                         says=["its processes use no CPU"]), ""


def as_the_seed_says() -> Made:
    """Patience 15 m; output at 14:02, the sign at 14:04: stalled at 14:14, after 12 m."""
    world = gang(4, 2, step_settings={"stall_after": "900"}, output=every(10, 120), end=870)
    stuck(world, 120, odd=(1,))
    for rank in (0, 2, 3):
        world.ranks[rank].procs[0].gone = [(240, FAR)]
    state(world, 1, "T", 240)
    return world, expect("patience 15m, the sign two minutes after the last output", "the specification",
                         fault_at=240, after=600, within=620, rank=1,
                         says=["Stalled: No progress for 12m: no output since 13:02 UTC"]), ""


def continued() -> Made:
    world = gang(end=360)
    stuck(world, FAULT, 240, odd=(5,))
    state(world, 5, "T", FAULT, 240)
    return world, expect("stopped for two minutes, then continued", **RANK_5, closed=["progress"]), ""


def stalled_twice() -> Made:
    world = gang(4, 2, end=480)
    for at, until in ((FAULT, 240.0), (330.0, FAR)):
        state(world, 3, "T", at, until)
        for rank in (0, 1, 2):
            world.ranks[rank].procs[0].gone.append((at + 2, until))
    first, second = every(10, FAULT, 240), every(10, 330)
    world.output = lambda t: first(t) if t < 300 else second(t)
    return world, expect("the same rank stalls, goes on and stalls again: two findings",
                         "intelligent-machine-learning/dlrover#1749", rank=3, count=2,
                         closed=["progress"]), ""


def requeued() -> Made:
    world = state(stuck(gang(4, 2, end=240), odd=(3,)), 3, "T")
    again = gang(4, 2, end=200, restarts=1, nonce="b")
    again.begin, again.end = 255, 420
    world.more.append(again)
    return world, expect("stalled, requeued, the next attempt prints", "rwth-i6/sisyphus#201", rank=3,
                         closed=["the job ended"]), ""


def clocks_wrong() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "T")
    world.skew = {"c1": 7200, "c2": -86400, "c3": 300}
    return world, expect("the nodes' time of day is wrong by hours", **RANK_5, suspect_within=30,
                         says=["no output since 13:02 UTC"]), ""


def reports_lost() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "T")
    world.lost = {"c1": [(140, 175)], "c3": [(125, 160)], "c4": [(130, 160)]}
    return world, expect("two of three reports of some nodes are lost during the stall", **RANK_5,
                         within=100), ""


def one_silent_beside() -> Made:
    world = state(stuck(gang(), odd=(5,)), 5, "T")
    world.lost = {"c4": [(100, FAR)]}
    return world, expect("rank 5 is stopped while another node is silent: that node is not blamed", **RANK_5,
                         node_silent=1, says=["5 of 7 other ranks wait"]), ""


def after_suspension() -> Made:
    world = gang(4, 2, stopped=[(90, 150)], end=480)
    world.output = every(10, 90, 150)
    before, after = world.output, every(10, 240)
    world.output = lambda t: before(t) if t < 240 else after(t)
    for rank in world.ranks:
        proc = rank.procs[0]
        proc.odd.append((90, 150, "T", None))
        if rank.rank != 3:
            proc.gone.append((242, FAR))
    state(world, 3, "T", 240)
    return world, expect("suspended for a minute, well again, and then a rank is stopped", fault_at=240,
                         rank=3, suspect_within=30), ""


def all_independent_quiet() -> Made:
    ranks = [Rank(rank=i, node="c1", procs=[Proc(pid=4000 + i)], cpu=every(5, FAULT)) for i in range(4)]
    world = World(ranks=ranks, output=every(10, FAULT), step_settings=dict(ASKED))
    return world, expect("four independent tasks all fall silent: one finding for the step", worker="1001",
                         rank=None, rule="silent", says=["4 of 4 ranks use no CPU"]), ""


RESTART = {"stall_after": "60", "restart_stalled": "1"}


def finished_not_exited() -> Made:
    last = "[titan] 2026-10-07 13:02:00,118 - root - INFO - Training completed"
    world = stuck(gang(busy=every(5, FAULT), step_settings=dict(RESTART)))
    world.words = [(FAULT + 16, FAR, last)]
    return world, expect(
        "a training is over and its gang hangs at exit: told, and not to be restarted", "modelscope/ms-swift#7992",
        worker="1001", rank=None, rule="gpus_idle", action="restart", finished=last,
        says=[f'finished but not exited: last words "{last}" at 13:02 UTC']), ""


def words_in_the_middle() -> Made:
    world = stuck(gang(step_settings=dict(RESTART)), at=180, odd=(5,))
    before, after = every(10, 60), every(10, 180)
    world.output = lambda t: before(t) if t < 100 else after(t)
    world.words = [(76, 110, "`Trainer.fit` stopped: `max_epochs=3` reached.")]
    state(world, 5, "T", 180)
    return world, expect(
        "words of an end in the middle of a run (the first of two trainings), and then a rank is stopped",
        **RANK_5, fault_at=180, suspect_within=30, action="restart"), ""


def all_on_one_mount() -> Made:
    world = on_storage(stuck(gang(), odd=tuple(range(8))), range(8), letter="D")
    return world, expect(
        "all ranks wait for one NFS mount whose server is gone: the storage is said and nobody is named",
        "nfs-ganesha/nfs-ganesha#1327", worker="1001", rank=None, rule="collective_stuck", waits_on=["store1:/export"],
        suspect_within=60, says=["no output since 13:02 UTC; 8 of 8 ranks wait for storage: store1:/export "
                                 "(mounted at /data, nfs4); no rank stands out"]), ""


def one_on_a_mount() -> Made:
    world = on_storage(stuck(gang(), odd=(5,)), [5], FUSE)
    return world, expect(
        "rank 5 waits in S for a FUSE file system that does not answer, the others for it", "aws/efs-utils#374",
        **RANK_5, suspect_within=60, waits_on=["store1:/export"],
        says=["rank 5 (node c3, PID 4005) waits for storage: store1:/export (mounted at /data, fuse.sshfs) for 60s; "
              "7 of 7 other ranks wait"]), ""


def mount_back() -> Made:
    world = on_storage(stuck(gang(end=480), until=300, odd=tuple(range(8))), range(8), FUSE, until=295)
    return world, expect("all ranks wait for a mount, which answers again after three minutes", worker="1001",
                         rank=None, waits_on=["store1:/export"], closed=["progress"]), ""


def metric_unchanged() -> Made:
    world = gang(step_settings=dict(METRIC), output=every(10))
    world.ranks[0].metric = every(5, FAULT)
    return world, expect(
        "the metric stands still; a heartbeat thread prints on, GPUs and pulses go on", "kubernetes/test-infra#8567",
        rule="metric_unchanged", worker="1001", rank=None, says=[
            "Stalled: No progress for 60s: metric step unchanged at 120 since 13:02 UTC; no rank stands out"]), ""


def metric_and_a_stopped_rank() -> Made:
    world = state(stuck(gang(step_settings=dict(METRIC)), odd=(5,)), 5, "T")
    world.ranks[0].metric = every(5, FAULT)
    return world, expect(
        "the metric stands still because rank 5 is stopped", worker="1001-5", rank=5, pid=4005, node="c3",
        rule="metric_unchanged", says=["metric step unchanged at 120 since 13:02 UTC; "
                                       "rank 5 (node c3, PID 4005) is stopped (state T) for"]), ""


def to_nobody_idle() -> Made:
    world = unseen(World(ranks=[alone(gpus=[0, 1], busy=every(5, FAULT))], output=None), "null", every(5, FAULT))
    return world, expect(
        "output to /dev/null; nothing is written any more and the GPUs are idle", worker="1001-0", rule="gpus_idle",
        says=["nothing written since 13:02 UTC (its output goes to /dev/null); its 2 GPUs idle"]), SITE_60S


def to_nobody_without_gpus() -> Made:
    world = unseen(World(ranks=[alone(cpu=every(5, FAULT))], output=None, step_settings=dict(ASKED)), "null",
                   every(5, FAULT))
    return world, expect("output to /dev/null, no GPU: nothing is written and no CPU used", worker="1001-0",
                         rule="silent", says=["nothing written since 13:02 UTC"]), ""


def gang_to_nobody() -> Made:
    world = state(stuck(gang(output=None), odd=(5,)), 5, "T")
    world.output = None
    return unseen(world, "null", every(3)), expect(
        "all ranks print to /dev/null and write something else all the time; rank 5 is stopped", **RANK_5,
        suspect_within=30, says=["its output goes to /dev/null; rank 5 (node c3, PID 4005) is stopped (state T)"]), ""


def gang_to_nobody_but_the_first() -> Made:
    world = state(stuck(gang(output=None), odd=(5,)), 5, "T")
    world.output, world.ranks[0].output = None, every(10, FAULT)
    return unseen(world, "null", every(3), range(1, 8)), expect(
        "only rank 0 prints to a file, the others to /dev/null", **RANK_5, suspect_within=30,
        says=["no output since 13:02 UTC; rank 5"]), ""


def srun_out_of_sight() -> Made:
    world = unseen(gang(4, 2, output=None, busy=every(5, FAULT)), "pipe", every(5, FAULT))
    for rank in world.ranks:
        rank.procs[0].gone.append((FAULT + 2, FAR))
    return world, expect("srun runs on a login node: nobody there tells of its file, and nobody writes anything",
                         worker="1001", rule="gpus_idle",
                         says=["nothing written since 13:02 UTC (its output can't be seen)"], suspect_within=60), ""


def into_a_fifo() -> Made:
    world = unseen(World(ranks=[alone(gpus=[0], busy=every(5, FAULT))], output=None), "fifo", every(5, FAULT))
    return world, expect("output into a FIFO whose reader is not seen", worker="1001-0", rule="gpus_idle",
                         says=["nothing written since 13:02 UTC (its output goes to a FIFO)"]), SITE_60S


def onto_a_terminal() -> Made:
    world = unseen(World(ranks=[alone(gpus=[0], busy=every(5, FAULT))], output=None, step="batch"), "pty",
                   every(5, FAULT))
    return world, expect("output onto a terminal that somebody else holds", worker="1001-0", rule="gpus_idle",
                         says=["nothing written since 13:02 UTC (its output goes to a terminal)"]), SITE_60S


STALLS = {f"{number:02}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    member_stopped, spinning_survivors, zombie, gone_by_signal, gone_with_code, in_d_state,
    local_process_stopped, half_stopped, one_of_two_jobs_idle, gang_idle, never_began, restart_asked,
    silent_without_gpus, as_the_seed_says, continued, stalled_twice, requeued, clocks_wrong, reports_lost,
    one_silent_beside, after_suspension, all_independent_quiet, finished_not_exited, words_in_the_middle,
    all_on_one_mount, one_on_a_mount, mount_back, metric_unchanged, metric_and_a_stopped_rank, to_nobody_idle,
    to_nobody_without_gpus, gang_to_nobody, gang_to_nobody_but_the_first, srun_out_of_sight, into_a_fifo,
    onto_a_terminal), 1)}
