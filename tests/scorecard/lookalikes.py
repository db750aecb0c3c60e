"""Recordings of jobs that only look stalled. Nothing is to be said of them."""

from __future__ import annotations

from typing import Any

from scorecard.people import ASKED, FAULT, METRIC, SITE_60S, alone, gang, launcher, on_storage, state, stuck, unseen
from scorecard.world import FAR, Proc, Rank, World, every

Made = tuple[World, dict[str, Any], str]


def nothing(title: str, source: str = "made up", **more: Any) -> dict[str, Any]:
    return {"title": title, "source": source, "expect": "nothing"} | more


def busy_and_quiet() -> Made:
    world = World(ranks=[alone(gpus=[0, 1], busy=every(10))], output=every(10, 30))
    return world, nothing("GPUs busy, no output"), SITE_60S


def idle_and_printing() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 30))], output=every(20))
    return world, nothing("GPUs idle, a line every 20 s"), SITE_60S


def checkpoint() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 60, 240), writing=[(70, 240)])],
                  output=every(10, 60, 240))
    return world, nothing("idle and quiet for three minutes while a checkpoint is written",
                          "meta-pytorch/torchtune#2093"), SITE_60S


def gang_checkpoint() -> Made:
    world = gang(busy=every(5, 60, 240), step_settings={})
    stuck(world, 60, 240, odd=(0,))
    state(world, 0, "D", 62, 240)
    world.ranks[0].writing = [(61, 240)]
    return world, nothing("rank 0 writes a checkpoint in state D, the others wait at the barrier",
                          "huggingface/accelerate#2912"), SITE_60S


def evaluates_after_training() -> Made:
    world = gang(step_settings={"stall_after": "60"}, output=every(10, 120))
    world.words = [(136, FAR, "`Trainer.fit` stopped: `max_epochs=3` reached.")]
    return world, nothing("the training's last words, then an evaluation without a line, its GPUs busy"), ""


def seven_of_eight_finished() -> Made:
    ranks = [Rank(rank=i, node="c1", procs=[Proc(pid=4000 + i)]) for i in range(8)]
    for rank in ranks[:7]:
        rank.exit = (60.0, 0)
    return World(ranks=ranks, output=every(10, 60), step_settings=dict(ASKED)), nothing(
        "srun -n8 of independent tasks: seven finished, one quiet and busy"), ""


def members_exited_zero() -> Made:
    world = gang(4, 2)
    for rank in (0, 1, 2):
        world.ranks[rank].exit = (100.0 + 20 * rank, 0)
    world.output = every(10, 100)
    return world, nothing("three of a gang's four are finished, the last one works on quietly"), ""


def launcher_finishes() -> Made:
    world = launcher(output=every(10, 100))
    for i in (0, 1, 2):
        world.ranks[0].procs[i].odd.append((100.0 + 5 * i, FAR, "X", None))
    return world, nothing("three of a launcher's four processes end unseen, one works on"), ""


def launcher_zombies() -> Made:
    world = launcher(output=every(10, 100))
    for i in (1, 2, 3):
        world.ranks[0].procs[i].odd.append((100.0 + 5 * i, FAR, "Z", None))
    return world, nothing("a launcher waits for its first process, the finished others stay zombies"), ""


def all_stopped() -> Made:
    world = gang(stopped=[(120, FAR)])
    stuck(world, 120, FAR, odd=tuple(range(8)))
    for rank in range(8):
        state(world, rank, "T", 120)
    return world, nothing("every process of the job is stopped on all nodes"), ""


def suspended_by_slurm() -> Made:
    world = gang(stopped=[(120, 270)], slurm=[(120, "SUSPENDED"), (270, "RUNNING")], end=360)
    stuck(world, 120, 270, odd=tuple(range(8)))
    for rank in range(8):
        state(world, rank, "T", 120, 270)
    return world, nothing("scontrol suspend for two and a half minutes, then resume",
                          "rivosinc/prometheus-slurm-exporter"), ""


def time_slices() -> Made:
    slices = [(60.0 + 60 * i, 90.0 + 60 * i) for i in range(4)]
    world = gang(4, 2, stopped=slices, busy=every(5, 50, 310), end=360, step_settings={"stall_after": "150"})
    world.output = every(10, 50, 310)
    for rank in world.ranks:
        rank.procs[0].odd = [(a, b, "T", None) for a, b in slices]
        rank.procs[0].gone = [(90, 120), (150, 180)]
    return world, nothing("suspended and resumed every 30 s; quiet for 260 s, 140 s of them its own",
                          may_suspect=True), ""


def time_slices_patience() -> Made:
    """Quiet from 55 to 300 s, of which two minutes are suspended: 125 s of its own, under its patience."""
    slices = [(60.0 + 60 * i, 90.0 + 60 * i) for i in range(4)]
    world = World(ranks=[alone(gpus=[0], busy=every(5, 55, 300))], output=every(5, 55, 300),
                  stopped=slices, step_settings={"stall_after": "150"}, end=360)
    return world, nothing("the same with one task: suspended time leaves its clock"), ""


def silent_node() -> Made:
    world = gang(4, 2, lost={"c2": [(60, FAR)]})
    return world, nothing("a node stops to report, the gang prints on", node_silent=1), ""


def silent_holder() -> Made:
    world = gang(4, 2, lost={"c1": [(60, FAR)]}, busy=every(5, 60))
    stuck(world, 60)
    return world, nothing("the node that holds the output is silent: how old it is can't be known",
                          node_silent=1, may_suspect=True), ""


def block_buffered() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(10))], output=every(280), end=420)
    return world, nothing("output comes in one burst every 280 s, GPUs busy",
                          "lyulyul/shine-cluster#57"), SITE_60S


def debugger() -> Made:
    world = stuck(gang(), odd=(5,))
    state(world, 5, "t")
    world.ranks[5].procs[0].traced = [(115, FAR)]
    return world, nothing("rank 5 is held by a debugger, the others wait"), ""


def restart_in_place() -> Made:
    world = launcher()
    rank = world.ranks[0]
    for old in rank.procs:
        old.odd.append((120, FAR, "X", None))
        old.until = 200
    new = [[500 + i, 500 + (i - 1) % 4] for i in range(4)]
    rank.procs += [Proc(pid=5000 + i, rank=str(i), ties=new[i], born=130) for i in range(4)]
    world.output = every(10, 120, 140)
    return world, nothing("a launcher starts all its processes anew in place"), ""


def gpu_unknown() -> Made:
    world = World(ranks=[alone(gpus=[0, 1], busy=every(5, 30), unreadable=[1])], output=every(10, 30))
    return world, nothing("one GPU's utilisation can't be read (MIG)",
                          "nvidia_gpu_exporter, h100-mig"), SITE_60S


def left_out_by_name() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 30))], output=every(10, 30), step="batch",
                  facts={"name": "spawner-jupyterhub"})
    return world, nothing("a notebook server with an idle GPU"), SITE_60S


def no_stall_watch() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 30))], output=every(10, 30),
                  job_settings={"no_stall_watch": "1"})
    return world, nothing("--no-stall-watch"), SITE_60S


def interactive() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 30))], output=every(10, 30), facts={"batch": False})
    return world, nothing("salloc: a GPU job without a batch script"), SITE_60S


def step_without_gpus() -> Made:
    side = World(ranks=[alone(node="c1", cpu=every(5, 30))], output=every(10, 30), job_settings=dict(ASKED),
                 step_settings=dict(ASKED))
    side.ranks.append(Rank(rank=1, node="c1", procs=[Proc(pid=4100)], cpu=every(5, 30)))
    holder = World(job=1001, step="0", ranks=[alone(gpus=[0, 1], busy=every(5))])
    # One job, two steps: the GPU-less one takes the job's options by inheritance, which is no asking.
    def job_at(node: str, t: float) -> Any:
        main, other = holder.job_at(node, t), World.job_at(side, node, t)
        if main is None or other is None:
            return None
        other.steps[0].step = "1"
        main.settings = dict(ASKED)
        main.steps += other.steps
        return main
    side.job_at = job_at  # type: ignore[method-assign]
    return side, nothing("a step without GPUs beside the one that trains, idle and silent"), ""


def metric_named() -> Made:
    world = gang(step_settings=dict(METRIC))
    state(stuck(world, odd=(5,)), 5, "T")
    return world, nothing("a progress metric is named and nobody serves it: it alone would tell"), ""


def metric_moves() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 30), metric=every(20))], output=every(10, 30),
                  step_settings=dict(METRIC))
    return world, nothing("the metric changes, GPUs idle and no output: an optimiser on the CPU"), ""


def metric_unread() -> Made:
    world = World(ranks=[alone(metric=every(5, FAULT), unread=[(130, FAR)])], output=every(10, FAULT),
                  step_settings=dict(METRIC))
    return world, nothing("the endpoint stopped answering: what it would say is not known",
                          "prometheus/prometheus#11433"), ""


def completing() -> Made:
    world = stuck(gang(4, 2, slurm=[(125, "COMPLETING")]), odd=(3,))
    world.ranks[3].exit = (120, 1 << 8)
    return world, nothing("a rank failed and Slurm is ending the job", may_suspect=True), ""


def long_barrier() -> Made:
    world = gang(4, 2, output=every(40), gap=40.0)
    for rank in world.ranks:
        rank.procs[0].gone = [(80, 105), (160, 185), (200, 235)]
    return world, nothing("all wait at a barrier for half a minute, output every 40 s"), ""


def before_the_first_step() -> Made:
    world = gang(gpus=False, output=every(10, 20), step_settings={"stall_after": "600"})
    for rank in world.ranks:
        rank.procs[0].pulse_from = FAR
    state(world, 0, "D", 40, 200)
    return world, nothing("rank 0 loads for minutes in state D before the first collective",
                          "rwth-i6/sisyphus#176"), ""


def stopped_but_not_missed() -> Made:
    world = state(gang(output=every(10, FAULT)), 5, "T")
    return world, nothing("a member is stopped and the others keep their pulse: they don't wait for it"), ""


def caught_once_on_storage() -> Made:
    world = gang()
    for at in (125, 200, 260):
        on_storage(world, [5], at=at, until=at + 12, letter="D")
    return world, nothing("a healthy rank is met once and again while it reads from NFS"), ""


def slow_storage() -> Made:
    world = gang(output=every(40), gap=40.0)
    for at in (125, 205):
        on_storage(world, range(8), at=at, until=at + 35)
    for rank in world.ranks:
        rank.procs[0].gone = [(125, 160), (205, 240)]
    return world, nothing("all ranks read the next data set for half a minute from a slow store"), ""


def to_nobody_and_writes() -> Made:
    world = unseen(World(ranks=[alone(gpus=[0], busy=every(5, 60))], output=None), "null", every(20))
    return world, nothing("GPUs idle, a line to /dev/null every 20 s"), SITE_60S


def to_nobody_and_unread() -> Made:
    world = World(ranks=[alone(gpus=[0], busy=every(5, 60), to="null")], output=None)
    return world, nothing("GPUs idle, output to /dev/null, and what is written can't be told"), SITE_60S


def srun_out_of_sight_prints() -> Made:
    world = unseen(gang(4, 2, output=None, busy=every(5, 60)), "pipe", every(20))
    return world, nothing("srun on a login node, GPUs idle, the ranks write"), ""


def errors_in_a_file_words_in_a_fifo() -> Made:
    world = unseen(World(ranks=[alone(gpus=[0], busy=every(5, 60), output=every(10, 30))], output=None), "fifo",
                   every(20))
    return world, nothing("a file that holds the errors only is quiet, the FIFO beside it is not"), SITE_60S


def gang_to_nobody_at_a_barrier() -> Made:
    world = gang(output=None)
    stuck(world, 100, 150, odd=(0,))
    world.output = None
    state(world, 0, "D", 102, 150)
    return unseen(world, "null", every(3)), nothing("all print to /dev/null; rank 0 is in D for 48 s at a barrier",
                                                    may_suspect=True), ""


LOOKALIKES = {f"{number:02}-{case.__name__.replace('_', '-')}": case for number, case in enumerate((
    busy_and_quiet, idle_and_printing, checkpoint, gang_checkpoint, seven_of_eight_finished,
    members_exited_zero, launcher_finishes, launcher_zombies, all_stopped, suspended_by_slurm, time_slices,
    time_slices_patience, silent_node, silent_holder, block_buffered, debugger, restart_in_place, gpu_unknown,
    left_out_by_name, no_stall_watch, interactive, step_without_gpus, metric_named, completing, long_barrier,
    before_the_first_step, stopped_but_not_missed, evaluates_after_training, caught_once_on_storage, slow_storage,
    metric_moves, metric_unread, to_nobody_and_writes, to_nobody_and_unread, srun_out_of_sight_prints,
    errors_in_a_file_words_in_a_fifo, gang_to_nobody_at_a_barrier), 51)}
