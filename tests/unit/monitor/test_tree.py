"""Which processes count as worker processes, through a look at a fake /proc."""

from __future__ import annotations

from astraeus_monitor.host.tree import judge
from astraeus_monitor.probes.look import Ask, Memory, TaskAsk, TaskLook, look

from .conftest import FakeProc

NOW = 1000.0


def see(proc: FakeProc, pid: int, launchers: dict[tuple[int, int], bool] | None = None) -> TaskLook:
    ask = Ask(1, [TaskAsk("0", 0, pid, pid)], [], NOW, {}, launchers or {})
    return next(line for line in look(proc, ask, Memory()) if isinstance(line, TaskLook))


def workers(proc: FakeProc, pid: int, launchers: dict[tuple[int, int], bool] | None = None) -> list[int]:
    return sorted(p.pid for p in see(proc, pid, launchers).procs if p.worker)


def test_a_task_that_is_the_only_process(proc: FakeProc) -> None:
    proc.add(10)
    assert workers(proc, 10) == [10]


def test_a_shell_is_a_wrapper(proc: FakeProc) -> None:
    proc.add(10, comm="bash", env={"RANK": "3"})
    proc.add(11, 10, env={"RANK": "3"})
    assert workers(proc, 10) == [11]


def test_a_shell_without_ranks_around_python_and_tee(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(11, 10)
    proc.add(12, 10, comm="tee")
    assert workers(proc, 10) == [11]


def test_a_shell_that_sleeps_between_short_commands(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(11, 10, comm="sleep", start=int(NOW * 100) - 100)
    assert workers(proc, 10) == [10]


def test_a_program_that_has_lived_ten_seconds_counts(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(11, 10, comm="solver", start=int(NOW * 100) - 1500)
    assert workers(proc, 10) == [11]


def test_torchrun_like_agent_with_an_inherited_rank(proc: FakeProc) -> None:
    proc.add(10, comm="bash", env={"PMIX_RANK": "0"})
    proc.add(11, 10, comm="python3", cmd="python3 -m torch.distributed.run train.py", env={"PMIX_RANK": "0"})
    for n in range(4):
        proc.add(20 + n, 11, cmd="python3 train.py", env={"PMIX_RANK": "0", "RANK": str(n)})
    assert workers(proc, 10) == [20, 21, 22, 23]


def test_helpers_of_a_script_that_sets_its_own_rank(proc: FakeProc) -> None:
    """Seen on real ranks: train.py under srun sets RANK, ran a program, and the program was taken for the rank."""
    proc.add(10, cmd="python3 train.py")
    proc.add(11, 10, comm="sleep", env={"RANK": "2"}, start=int(NOW * 100) - 1500)
    proc.add(12, 10, comm="wandb-core", env={"RANK": "2"}, start=int(NOW * 100) - 1500)
    assert workers(proc, 10) == [10]
    proc.add(13, 11, comm="sh", env={"RANK": "2"})
    assert workers(proc, 10) == [10]


def test_spawned_data_loaders_of_a_script_that_sets_its_own_rank(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 train.py")
    for n in range(2):
        proc.add(11 + n, 10, cmd="python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)",
                 env={"RANK": "2"}, start=int(NOW * 100) - 1500)
    assert workers(proc, 10) == [10]


def test_programs_that_a_python_launcher_gives_ranks(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 -m torch.distributed.run --no-python ./solver")
    for n in range(2):
        proc.add(11 + n, 10, comm="solver", env={"RANK": str(n)}, start=int(NOW * 100) - 1500)
    assert workers(proc, 10) == [11, 12]


def test_a_rank_that_was_met_before_its_exec(proc: FakeProc) -> None:
    """Until then it shows its launcher's arguments and variables, under the name that it keeps."""
    memory, ask = Memory(), Ask(1, [TaskAsk("0", 0, 10, 10)], [], NOW, {}, {})

    def found() -> dict[int, str]:
        task = next(line for line in look(proc, ask, memory) if isinstance(line, TaskLook))
        return {p.pid: p.rank for p in task.procs if p.worker}

    proc.add(10, cmd="python3 launcher.py", image=7000)
    proc.add(20, 10, cmd="python3 ring.py", env={"RANK": "0"}, image=7100)
    proc.add(21, 10, cmd="python3 launcher.py", image=7000)
    assert found() == {20: "RANK=0"}
    proc.add(21, 10, cmd="python3 ring.py", env={"RANK": "1"}, image=7200)
    assert found() == {20: "RANK=0", 21: "RANK=1"}


def test_agent_with_one_child(proc: FakeProc) -> None:
    proc.add(11, cmd="python3 -m torch.distributed.run train.py", env={"PMIX_RANK": "0"})
    proc.add(12, 11, cmd="python3 train.py", env={"PMIX_RANK": "0", "RANK": "0"})
    assert workers(proc, 11) == [12]


def test_data_loaders_carry_their_parents_rank(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 train.py", env={"RANK": "2"})
    for n in range(3):
        proc.add(11 + n, 10, cmd="python3 train.py", env={"RANK": "2"})
    assert workers(proc, 10) == [10]


def test_data_loaders_inherit_the_gpu(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 train.py", fds={5: "/dev/nvidia0", 6: "/dev/nvidiactl"})
    proc.add(11, 10, cmd="python3 train.py", fds={5: "/dev/nvidia0"})
    proc.add(12, 10, cmd="python3 train.py", fds={5: "/dev/nvidia0"})
    assert workers(proc, 10) == [10]


def test_gpu_holders_come_before_ranks(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 agent.py", env={"RANK": "0"}, fds={5: "/dev/nvidiactl"})
    proc.add(11, 10, cmd="python3 train.py", env={"RANK": "0"}, fds={5: "/dev/nvidia0"})
    proc.add(12, 10, cmd="python3 train.py", env={"RANK": "0"}, fds={5: "/dev/nvidia1"})
    proc.add(13, 10, comm="nvidia-smi", fds={5: "/dev/nvidia1"})
    assert workers(proc, 10) == [11, 12]


def test_a_launcher_that_forks_four_workers(proc: FakeProc) -> None:
    proc.add(9, comm="bash")
    proc.add(10, 9, cmd="python3 launch.py")
    for n in range(4):
        proc.add(11 + n, 10, cmd="python3 launch.py")
    assert workers(proc, 9) == [11, 12, 13, 14]
    assert workers(proc, 9, {(10, 10): False}) == [10]  # it was seen to work itself


def test_a_launcher_that_runs_another_program(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 launch.py")
    proc.add(11, 10, cmd="python3 train.py")
    proc.add(12, 10, cmd="python3 -c from multiprocessing.resource_tracker import main")
    assert workers(proc, 10) == [11]


def test_a_trainer_with_foreign_children(proc: FakeProc) -> None:
    proc.add(10, cmd="python3 train.py")
    proc.add(11, 10, comm="wandb-core", start=1)
    assert workers(proc, 10) == [10]


def test_a_foreign_starter_around_python(proc: FakeProc) -> None:
    proc.add(10, comm="mystarter")
    proc.add(11, 10)
    assert workers(proc, 10) == [11]


def test_a_batch_script_that_only_runs_srun_has_none(proc: FakeProc) -> None:
    proc.add(10, comm="bash", env={"SLURM_PROCID": "0"})
    proc.add(11, 10, comm="bash")
    proc.add(12, 11, comm="srun")
    proc.add(13, 12, comm="srun")
    assert workers(proc, 10) == []


def test_a_batch_script_with_srun_and_python(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(12, 10, comm="srun")
    proc.add(14, 10)
    assert workers(proc, 10) == [14]


def test_a_zombie_is_no_worker_process(proc: FakeProc) -> None:
    proc.add(10, comm="bash")
    proc.add(11, 10, state="Z")
    proc.add(12, 10)
    assert workers(proc, 10) == [12]


def test_a_reused_pid_is_not_looked_at(proc: FakeProc) -> None:
    proc.add(10, start=999)
    assert see(proc, 10).procs == []


def test_judge() -> None:
    assert judge(0, [200, 190, 210, 200]) is True
    assert judge(1000, [300, 300]) is False
    assert judge(0, [0, 0]) is None  # nothing runs: it can't be told
    assert judge(10, [1200, 1300]) is None  # a trainer that waits for its loaders, or a launcher that polls


MPI = {"PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0"}


def test_ranks_below_open_mpis_daemon(proc: FakeProc) -> None:
    """On the nodes beside mpirun's own, srun starts a daemon, and that the ranks; here one behind a script, with data
    loaders."""
    for top, daemon in ((10, "orted"), (110, "prted")):
        proc.add(top, comm=daemon, env={"PMIX_RANK": "1"})
        proc.add(top + 1, top, cmd="python3 train.py", env=MPI)
        proc.add(top + 2, top, comm="bash", cmd="bash rank.sh", env={**MPI, "PMIX_RANK": "1"})
        proc.add(top + 3, top + 2, cmd="python3 train.py", env={**MPI, "PMIX_RANK": "1"})
        proc.add(top + 4, top + 3, cmd="python3 train.py", env={**MPI, "PMIX_RANK": "1"})
        assert workers(proc, top) == [top + 1, top + 3]


def test_ranks_below_mpirun_in_a_batch_script(proc: FakeProc) -> None:
    proc.add(10, comm="slurm_script", exe="/usr/bin/bash")
    proc.add(11, 10, comm="mpirun", cmd="mpirun -n 4 python3 train.py")
    proc.add(12, 11, comm="srun", cmd="srun --nodes 1 orted")  # starts the daemon of the other node
    proc.add(13, 12, comm="srun", cmd="srun --nodes 1 orted")
    for n in range(2):
        proc.add(20 + n, 11, cmd="python3 train.py", env={**MPI, "PMIX_RANK": str(n)})
    assert workers(proc, 10) == [20, 21]


def test_torchruns_workers_and_their_data_loaders(proc: FakeProc) -> None:
    proc.add(10, comm="torchrun", exe="/usr/bin/python3", cmd="python3 torchrun train.py", env={"PMIX_RANK": "0"})
    for n in range(2):
        env = {"PMIX_RANK": "0", "RANK": str(n)}
        proc.add(20 + n, 10, comm="pt_main_thread", exe="/usr/bin/python3", cmd="python3 train.py", env=env)
        proc.add(30 + n, 20 + n, comm="pt_data_worker", exe="/usr/bin/python3", cmd="python3 train.py", env=env)
        proc.add(40 + n, 20 + n, exe="/usr/bin/python3", env=env,
                 cmd="python3 -c from multiprocessing.spawn import spawn_main --multiprocessing-fork")
    assert workers(proc, 10) == [20, 21]
