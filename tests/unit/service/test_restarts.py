"""Which stalled jobs are restarted: declined once, asked again, in their pace, and never in a wave."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from astraeus_controller.actions import evidence
from astraeus_controller.actions.annotate import Annotations
from astraeus_controller.actions.outside import Clocks
from astraeus_controller.actions.restarts import Restarts
from astraeus_controller.actions.way import Stop
from astraeus_controller.actions.writer import Pace, Writer
from astraeus_controller.config import Restart, Watch, parse
from astraeus_controller.history.store import Store
from astraeus_controller.judging.incidents import Incidents, Turn
from astraeus_controller.rules.limits import BREAKER_WINDOW_S, INCIDENT_REST_S
from astraeus_controller.rules.picture import Picture, Policy
from astraeus_controller.slurm.jobs import Jobs
from astraeus_controller.slurm.types import JobFacts
from astraeus_protocol.findings import Finding, Incident
from fake_slurm import FakeSlurm, job
from service_kit import FakeCommands, VirtualTime, finding
from test_may_restart import picture, process, step, worker
from test_restart import Stops


class Bench:
    """The manager over a fake Slurm; ``shown`` is the picture of every job."""

    def __init__(self, *jobs: dict[str, object], toml: str = "") -> None:
        self.slurm = FakeSlurm(*(jobs or (job(123, comment="mine"),)))
        self.time = VirtualTime()
        self.slurm.clock = self.time.steady  # type: ignore[method-assign]
        self.store = Store(":memory:", self.time.wall)
        slurm = Jobs(FakeCommands(self.slurm))
        self.annotations = Annotations(Writer(slurm, self.store, Pace(0)), lambda *_: None, self.time.steady)
        self.shown = picture(step("0", *(worker(r) for r in range(8))))
        stops = Stops(self.slurm)
        stops.begin = lambda *_: None  # type: ignore[method-assign]
        config = parse('[watch]\nmode = "act"\n' + toml)
        self.incidents = Incidents(config, "test")
        self.restarts = Restarts(
            config, jobs=slurm, store=self.store, annotations=self.annotations,
            stops=stops, view=self, emit=self.store.add_event,
            clocks=Clocks(self.time.wall, self.time.steady, self.sleep))

    async def sleep(self, seconds: float) -> None:
        self.time.now += seconds
        await asyncio.sleep(0)

    def picture(self, number: int) -> Picture:
        return msgspec.structs.replace(self.shown, job=msgspec.structs.replace(self.shown.job, job=number))

    def watched_jobs(self) -> int:
        return 10

    def stalled_of(self, number: int) -> list[Finding]:
        return [f for f in self.store.open_findings() if f.job == number]

    def stalled_lately(self) -> int:
        return len(self.incidents.wave(self.time.wall()))

    def incident(self, number: int) -> Incident | None:
        return self.incidents.of(number)

    def turns(self, turns: list[Turn]) -> list[str]:
        for turn in turns:
            self.store.incidents.put(turn.incident)
        return [turn.kind for turn in turns]

    def stall(self, number: int = 123, **values: object) -> Finding:
        """On a node of its own."""
        one = finding(**{"job": number, "run": str(number), "worker": f"{number}-5", "key": f"k{number}",
                         "node": f"n{number}", "detected_at": self.time.wall()} | values)
        self.store.put_finding(one)
        self.turns(self.incidents.opened(one, self.time.wall(), self.watched_jobs()))
        self.restarts.want(one)
        return one

    def heal(self, one: Finding) -> list[str]:
        self.store.close_finding(one.key, "progress")
        self.restarts.drop(one.key)
        return self.turns(self.incidents.closed(one, self.time.wall()))

    async def wait(self, seconds: float) -> None:
        until = self.time.now + seconds
        await self.until(lambda: self.time.now > until, seconds + 60)

    async def until(self, true: Callable[[], object], seconds: float = 600) -> None:
        """Lets the loop run until it is true; virtual seconds."""
        end = self.time.now + seconds
        if not self.restarts._running:
            self.restarts.resume()  # the loop of the call before took its restarts with it
        task = asyncio.create_task(self.restarts.run())
        try:
            while not true():
                assert self.time.now < end, "not in time"
                await asyncio.sleep(0)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def kinds(self, number: int = 123) -> list[str]:
        return [e.kind for e in self.store.events(job=number)]

    def wanted(self, number: int = 123) -> str:
        return next((text for one, text, _ in self.store.all_wanted() if one == number), "")


async def test_restarted() -> None:
    bench = Bench()
    bench.stall()
    await bench.until(lambda: "restarted" in bench.kinds())
    assert bench.kinds() == ["restart_intended", "stopping", "requeued", "scheduled", "restarted"]
    assert bench.store.events(job=123)[0].message.startswith("Restart 1/10 intended: no output since 14:02 UTC")


async def test_declined_for_good() -> None:
    bench = Bench(job(123, requeue=0))
    one = bench.stall()
    await bench.until(lambda: bench.kinds())
    assert bench.store.events(job=123)[0].message == (
        "restart declined: it is not requeueable (--no-requeue, or JobRequeue=0)")
    assert bench.wanted().endswith(
        "rank 5 on n123, not restarted: it is not requeueable (--no-requeue, or JobRequeue=0)")
    asked = len(bench.slurm.called("squeue"))
    until = bench.time.now + 200
    await bench.until(lambda: bench.time.now > until)
    assert len(bench.slurm.called("squeue")) == asked
    assert bench.restarts.note(123).startswith("not restarted: ")
    bench.restarts.drop(one.key)


async def test_declined_for_now_is_asked_again() -> None:
    bench = Bench()
    bench.shown = picture(step("0", worker(0, processes=(process(traced=True),))))
    bench.stall()
    until = bench.time.now + 150
    await bench.until(lambda: bench.time.now > until)
    assert bench.kinds() == ["restart_declined"]
    assert 2 <= len(bench.slurm.called("squeue")) <= 4
    bench.shown = picture(step("0", worker(0)))
    await bench.until(lambda: "restarted" in bench.kinds())


async def test_a_run_that_asks_avoids_the_guilty_rank_s_node() -> None:
    bench = Bench()
    bench.shown = picture(step("0", *(worker(r) for r in range(8)),
                               policy=Policy(action="restart", mode="act", avoid_guilty=True)))
    bench.stall(node="c3")
    await bench.until(lambda: "restarted" in bench.kinds())
    assert bench.slurm.job(123)["excluded"] == "c3"
    bench.slurm.job(123).update(state="PENDING", restarts=2, waiting=1000)
    bench.shown = msgspec.structs.replace(bench.shown, job=msgspec.structs.replace(bench.shown.job, ended=True))
    await bench.restarts.avoidance.take_back()
    assert bench.slurm.job(123)["excluded"] == ""


async def test_pace() -> None:
    bench = Bench(*(job(n) for n in (1, 2)))
    began = bench.time.now
    bench.stall(1)
    bench.stall(2)
    await bench.until(lambda: "restarted" in bench.kinds(1) and "restarted" in bench.kinds(2))
    stops = [row[0] for row in bench.store.db.execute("SELECT begun_at FROM intents ORDER BY id")]
    assert stops[1] - stops[0] >= 30
    assert "restart_declined" not in bench.kinds(1) + bench.kinds(2)
    assert bench.time.now - began < 200


async def test_a_wave_stops_nothing() -> None:
    numbers = range(1, 7)
    bench = Bench(*(job(n) for n in numbers))
    for number in numbers:
        bench.stall(number)
    await bench.until(lambda: all("restart_declined" in bench.kinds(n) for n in numbers))
    assert bench.slurm.called("scontrol", "requeue") == []
    assert bench.store.events(job=3)[-1].message == (
        "restart declined: it is part of incident 1 (6 jobs stalled within 10m), so nothing is stopped")
    assert len(bench.store.incidents.all()) == 1


async def test_healed_before_the_decision() -> None:
    bench = Bench()
    bench.slurm.state["away"] = True
    one = bench.stall()
    until = bench.time.now + 20
    await bench.until(lambda: bench.time.now > until)
    bench.restarts.drop(one.key)
    bench.slurm.state["away"] = False
    until = bench.time.now + 20
    await bench.until(lambda: bench.time.now > until)
    assert bench.kinds() == []


async def test_nodes_of_the_last_attempt_still_completing() -> None:
    bench = Bench()
    bench.stall()
    await bench.until(lambda: "restarted" in bench.kinds())
    bench.store.close_finding("k123", "a new attempt began")
    bench.slurm.state["node_states"] = {"c2": "completing", "c1": "mixed"}
    one = finding(key="k123#2", restarts=1)
    bench.store.put_finding(one)
    bench.restarts.want(one)
    await bench.until(lambda: "restart_declined" in bench.kinds())
    assert bench.store.events(job=123)[-1].message.endswith("still completing (c2)")


async def test_another_finding_waits_for_a_restart_that_heals() -> None:
    """Two workers of a job stalled on their own: the one whose restart came to nothing takes not the other's."""
    bench = Bench()
    first = bench.stall()
    second = finding(key="second", worker="123-6", rank=6)
    bench.store.put_finding(second)
    bench.restarts.want(second)
    await bench.until(lambda: bench.restarts.owns(123))
    await bench.until(lambda: "restarted" in bench.kinds() or not bench.store.open_intents())
    assert second.key in bench.restarts._candidates
    bench.restarts.drop(first.key)


async def test_a_fault_in_one_decision_stops_no_other() -> None:
    bench = Bench(job(123), job(124))
    shown = bench.picture

    def broken(number: int) -> Picture:
        if number == 123:
            raise KeyError(number)
        return shown(number)

    bench.picture = broken  # type: ignore[method-assign]
    bench.stall(123)
    bench.stall(124)
    await bench.until(lambda: "restarted" in bench.kinds(124))
    assert bench.kinds(123) == []
    bench.picture = shown  # type: ignore[method-assign]
    await bench.until(lambda: "restarted" in bench.kinds(123))


def test_only_the_attempt_right_before_counts_as_the_one_before() -> None:
    """Attempt 0 made no progress and was restarted; attempt 1 ran and was preempted; attempt 2 made none."""
    bench = Bench()
    row = JobFacts(job=123, state="RUNNING", restarts=2, run_time_s=800, batch=True, requeue=True)
    bench.store.put_finding(finding())
    intent = evidence.new_intent(finding(), msgspec.structs.replace(row, restarts=0), number=1, budget=10,
                                 backoff_s=10, progressed_s=5, stop=Stop("TERM", 8), now=bench.time.wall())
    assert bench.store.begin(intent, bench.store.finding_id(finding().key) or 0)
    intent.outcome = "restarted"
    bench.store.reach(intent, "done")

    def before(restarts: int) -> float | None:
        return evidence.gather(
            finding(key="k", restarts=restarts), bench.shown, msgspec.structs.replace(row, restarts=restarts),
            bench.store, site=Restart(), watch=Watch(), now=bench.time.wall(), kill_wait_s=8, stalled_steps=set(),
            watched_jobs=9, completing_nodes=()).progressed_before_s

    assert (before(1), before(2)) == (5, None)


async def test_a_decline_is_told_once_also_by_the_next_controller() -> None:
    bench = Bench(job(123, requeue=0))
    one = bench.stall()
    await bench.until(lambda: bench.kinds())
    bench.restarts.want(one)
    await bench.until(lambda: not bench.restarts._candidates)
    assert bench.kinds() == ["restart_declined"]
    assert bench.restarts.note(123).startswith("not restarted: ")


@pytest.mark.parametrize("stage", ["decided", "stopping", "requeuing"])
async def test_a_controller_started_anew_to_observe_stops_nothing(stage: str) -> None:
    bench = Bench()
    bench.restarts.config = parse('[watch]\nmode = "observe"\n')
    bench.store.put_finding(finding())
    shown = await bench.restarts.jobs.show(123)
    assert shown
    intent = evidence.new_intent(finding(), shown.facts, number=1, budget=10, backoff_s=10, progressed_s=700,
                                 stop=Stop("TERM", 8), now=bench.time.wall())
    assert bench.store.begin(intent, bench.store.finding_id(finding().key) or 0)
    bench.store.reach(intent, stage)
    bench.restarts.resume()
    await bench.until(lambda: not bench.store.open_intents())
    assert (bench.slurm.called("scontrol", "requeue"), bench.kinds()) == ([], ["restart_declined"])
    assert "observe mode" in bench.store.events(job=123)[0].message
    assert bench.slurm.called("scontrol", "update") == []
    assert (bench.wanted() == "" and not bench.annotations.pending(123)) is (stage == "decided")


async def test_a_wave_that_is_over_holds_nobody_back() -> None:
    """The decline is not the last word: once the incident is over the job that still hangs is restarted."""
    numbers = range(1, 7)
    bench = Bench(*(job(n) for n in numbers))
    stalls = [bench.stall(number) for number in numbers]
    await bench.until(lambda: all("restart_declined" in bench.kinds(n) for n in numbers))
    await bench.wait(INCIDENT_REST_S + BREAKER_WINDOW_S)  # the breaker's window is over, the outage is not
    assert bench.slurm.called("scontrol", "requeue") == []
    for one in stalls[1:]:
        assert bench.heal(one) == []
    await bench.wait(INCIDENT_REST_S - 60)
    assert bench.turns(bench.incidents.look(bench.time.wall())) == []
    await bench.wait(60)
    assert bench.turns(bench.incidents.look(bench.time.wall())) == ["close"]
    began = bench.time.now
    await bench.until(lambda: "restarted" in bench.kinds(1), 900)
    assert bench.time.now - began <= 180
    assert bench.kinds(1).count("restart_declined") == 1
    assert bench.slurm.job(2)["requeued"] == 0


async def test_a_run_with_a_signal_of_its_own() -> None:
    bench = Bench()
    asked = Policy(action="restart", mode="act", stop_signal="USR1", stop_grace=40)
    bench.shown = picture(step("0", *(worker(r) for r in range(8)), policy=asked))
    bench.stall()
    await bench.until(lambda: "signalled" in bench.kinds())
    gone = [worker(r, state="exited", exit_status=0) for r in range(8)]
    bench.shown = picture(step("0", *gone, policy=asked))
    began = bench.time.now
    bench.restarts.resume()
    await bench.until(lambda: "requeued" in bench.kinds())
    assert bench.time.now - began < 10
    assert bench.kinds()[:4] == ["restart_intended", "stopping", "signalled", "requeued"]
    assert bench.slurm.job(123)["signals"][:3] == [["batch", "STOP"], ["CONT"], ["USR1"]]


async def test_a_batch_process_that_is_the_training_is_stopped_by_slurm() -> None:
    bench = Bench()
    asked = Policy(action="restart", mode="act", stop_signal="USR1", stop_grace=40)
    bench.shown = picture(step("batch", worker(0, pid=7, processes=(process(pid=7),)), policy=asked))
    one = finding(step="batch")
    bench.store.put_finding(one)
    bench.restarts.want(one)
    await bench.until(lambda: "restarted" in bench.kinds())
    assert bench.store.events(job=123)[0].message.endswith(
        "its batch process is the training itself, which can't be frozen: it gets TERM and KillWait's 30s, "
        "not USR1@40s")
    assert (bench.slurm.called("scancel"), bench.slurm.job(123)["requeued"]) == ([], 1)
