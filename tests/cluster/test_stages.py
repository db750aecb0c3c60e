"""Every stage of a restart meets every fault: no intent is lost, each job is requeued once, nothing stays stopped.

The jobs of one test are held at their stages side by side and meet one fault together (stages_kit). A sample of
stages at which the controller is killed is in test_stages_and_users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from .conftest import Site
from .stages_kit import BATCH_NODES, RANK_NODES, STAGES, Held, controller_killed, gated, held, lasts

pytestmark = [pytest.mark.alone, pytest.mark.full]


@pytest.fixture(scope="module", autouse=True)
def _gate(site: Site) -> Iterator[None]:
    with gated(site):
        yield


def slurmctld_restarted(jobs: Held) -> None:
    jobs.cluster.stop_slurmctld()
    try:
        jobs.go_on()
        lasts(8, "slurmctld is away")
    finally:
        jobs.cluster.start_slurmctld()


def slurmd_restarted(nodes: Iterable[str]) -> Callable[[Held], None]:
    def fault(jobs: Held) -> None:
        jobs.cluster.on_each(nodes, jobs.cluster.stop_slurmd)
        try:
            jobs.go_on()
            lasts(5, "slurmd is away")
        finally:
            jobs.cluster.on_each(nodes, jobs.cluster.start_slurmd)
    return fault


def network_cut(nodes: Iterable[str]) -> Callable[[Held], None]:
    def fault(jobs: Held) -> None:
        jobs.cluster.on_each(nodes, jobs.cluster.cut_network)
        try:
            jobs.go_on()
            lasts(30, "the network is cut")
        finally:
            jobs.cluster.on_each(nodes, jobs.cluster.heal_network)
    return fault


def commands(word: str) -> Callable[[Held], None]:
    def fault(jobs: Held) -> None:
        jobs.cluster.command_fault(word)
        try:
            jobs.go_on()
            lasts(20, "Slurm's commands answer wrongly")
        finally:
            jobs.cluster.command_fault("")
    return fault


FAULTS: dict[str, Callable[[Held], None]] = {
    "controller_killed": controller_killed, "slurmctld_restarted": slurmctld_restarted,
    "slurmd_restarted_with_the_batch_script": slurmd_restarted(BATCH_NODES.values()),
    "slurmd_restarted_with_the_rank": slurmd_restarted(RANK_NODES.values()),
    "network_cut_at_the_batch_script": network_cut(BATCH_NODES.values()),
    "network_cut_at_the_rank": network_cut(RANK_NODES.values()),
    "commands_fail": commands("fail"), "answers_lost": commands("lost"), "answers_half": commands("half"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_stage_meets_every_fault(site: Site, fault: str) -> None:
    with held(site, STAGES) as jobs:
        FAULTS[fault](jobs)
        cut_off = fault.startswith(("slurmd", "network"))
        jobs.check_each(lambda job, stage: jobs.came_back_once(job, stage, reached=not cut_off))
