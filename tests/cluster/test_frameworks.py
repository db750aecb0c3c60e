"""Real ranks: PyTorch over gloo, the MLX ring, Open MPI. What each fault leads to is the table in frameworks_kit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_test_cluster import wait_for

from .conftest import Site
from .frameworks_kit import GLOO, Fault, cancel_started, ends, heals, interpreter_of, processes, stalls, train

SHORT = ("sleep", "sigstop")
"""What `make test` takes, by srun."""


@pytest.fixture(autouse=True)
def nothing_is_left(site: Site) -> Iterator[None]:
    """A training of a scenario that failed would take the others' cores."""
    yield
    cancel_started(site)


def rows(launcher: str) -> list[object]:
    return [
        pytest.param(launcher, fault, id=f"{launcher}-{fault.name}",
                     marks=[] if launcher == "srun" and fault.name in SHORT else [pytest.mark.full])
        for fault in GLOO
    ]


@pytest.mark.parametrize(("launcher", "fault"), [*rows("srun"), *rows("torchrun")])
def test_gloo(site: Site, launcher: str, fault: Fault) -> None:
    training = train(site, "torch", launcher, fault=fault.name)
    training.fault()
    if fault.expect == "ended":
        ends(training)
        training.end(expect="nothing")
    elif fault.expect == "nothing":
        site.quiet_for([training.job], 75)
        training.end(expect="nothing")
    else:
        finding = stalls(training, fault.by, fault.evidence, fault.cause)
        more = {"cause": finding["stall"]["cause"]} if fault.cause else {}
        if fault.name == "sigstop":
            more |= heals(training)
        training.end(expect="stalled", by=fault.by, seen=fault.seen, **more)


@pytest.mark.full
def test_gloo_one_node_without_srun(site: Site) -> None:
    """torchrun starts eight workers from the batch script."""
    training = train(site, "torch", "one-node", fault="sigstop", ranks=8)
    training.fault()
    finding = stalls(training, "state", f"local process 2 (RANK=2, PID {training.victim.task_pid})")
    assert "7 of 7 other processes wait" in finding["stall"]["evidence"]
    healed = heals(training)
    training.end(expect="stalled", by="state", seen="T", **healed)


def test_mlx_ring_is_stopped_and_goes_on(site: Site) -> None:
    """Its survivors spin in recv and send; a sum that was begun before the stop ends after it."""
    training = train(site, "mlx-0.32.4", "srun")
    training.stop()
    finding = stalls(training, "state", "is stopped (state T)")
    assert "3 of 3 other ranks wait" in finding["stall"]["evidence"]
    healed = heals(training)
    text = site.cluster.read_file("ctl", f"/home/alice/out-{training.job}.txt")
    sums = {line.split()[-1] for line in text.splitlines() if line.startswith("step ")}
    assert sums == {"4.0000"}, "every sum of four ones is four: nothing was lost"
    training.end(expect="stalled", by="state", seen="T", **healed)


@pytest.mark.full
def test_mlx_ring_of_today_fails_when_a_rank_is_killed(site: Site) -> None:
    training = train(site, "mlx-0.32.4", "srun")
    training.stop("KILL")
    ends(training)
    assert "connection to a peer was lost" in site.cluster.read_file("ctl", f"/home/alice/out-{training.job}.txt")
    training.end(expect="nothing")


@pytest.mark.full
def test_mlx_ring_of_before_hangs_when_a_rank_is_killed(site: Site) -> None:
    """0.32.0: two survivors sit in a futex and one spins, for ever; the victim is the one that is gone."""
    training = train(site, "mlx-0.32.0", "srun")
    training.stop("KILL")
    finding = stalls(training, "state", "is gone: killed by signal 9 (KILL)")
    assert finding["rank"] == training.victim.rank
    training.end(expect="stalled", by="state", seen="gone")


@pytest.mark.full
@pytest.mark.parametrize(("fault", "by"), [("sleep", "wait"), ("spin", "wait"), ("lock", "frames")])
def test_mlx_ring(site: Site, fault: str, by: str) -> None:
    training = train(site, "mlx-0.32.4", "srun", fault=fault)
    training.fault()
    stalls(training, by)
    training.end(expect="stalled", by=by, seen=fault)


@pytest.fixture
def openmpi(site: Site) -> Site:
    interpreter_of(site, "mpi4py")
    site.cluster.install_openmpi()
    return site


@pytest.mark.parametrize("launcher", ["srun-pmix", pytest.param("mpirun", marks=pytest.mark.full)])
def test_open_mpi(openmpi: Site, launcher: str) -> None:
    """Survivors spin; on one node they share no connection, but memory."""
    training = train(openmpi, "mpi4py", launcher, fault="sigstop")
    training.fault()
    stalls(training, "state", "is stopped (state T)")
    healed = heals(training)
    training.end(expect="stalled", by="state", seen="T", **healed)


@pytest.mark.full
def test_open_mpi_fails_when_a_rank_is_killed(openmpi: Site) -> None:
    training = train(openmpi, "mpi4py", "srun-pmix", fault="sigkill")
    training.fault()
    ends(training)
    training.end(expect="nothing")


@pytest.mark.full
@pytest.mark.alone
def test_one_rank_reads_from_a_hung_store(site: Site) -> None:
    site.cluster.mount_store()
    training = train(site, "torch", "srun", fault="store")
    site.cluster.hang_store([training.victim.node])
    try:
        training.fault()
        stalls(training, "wait")
        wait_for(lambda: site.findings("stalled", training.job)[0]["stall"]["waits_on"], 60, every=1,
                 what="the store named", saw=lambda: site.findings("stalled", training.job))
        assert site.findings("stalled", training.job)[0]["stall"]["waits_on"] == ["store1:/export"]
    finally:
        site.cluster.heal_store()
    site.wait_event(training.job, "progress", timeout=60)
    training.end(expect="stalled", by="wait", seen="waits for storage")


@pytest.mark.full
@pytest.mark.alone
def test_a_hung_store_under_the_output_of_a_healthy_gang(site: Site) -> None:
    """What can't be looked at is unknown, and never silence: ranks that step with their output's file system hung are
    no stall, whatever they wrote before; reports go on in time."""
    site.cluster.mount_store()
    training = train(site, "torch", "srun", output="/mnt/store/out-%j.txt", options="--print-every 400")
    site.cluster.hang_store()
    try:
        site.quiet_for([training.job], 75)
        assert {worker["state"] for worker in site.progress(training.job)["workers"]} == {"Running"}
        assert [process["pulse_gone_s"] for process in processes(site, training.job)] == [0, 0, 0, 0]
    finally:
        site.cluster.heal_store()
    training.end(expect="nothing")
