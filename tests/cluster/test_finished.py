"""Finished but not exited: told and not restarted; the same words in the middle of a run change nothing."""

from __future__ import annotations

from slurm_test_cluster import wait_for

from .conftest import RING, Site

ASKS = ("--stall-after=30s", "--restart-stalled", "--open-mode=append")


SIZE = ("-N4", "-n8", "--ntasks-per-node=2", "-o", "/home/alice/out-%j.txt")


def test_a_gang_that_hangs_at_exit_is_not_restarted_and_one_that_went_on_is(site: Site) -> None:
    last = "[titan] 2026-10-07 13:02:00,118 - root - INFO - Training completed"
    half = "`Trainer.fit` stopped: `max_epochs=3` reached."
    over = site.submit(f"srun --label {RING} --steps 200 --print-every 5 --last-words '{last}'\n", *SIZE, *ASKS,
                       "-J", "over")
    # Long enough quiet behind the words for them to be read, and then the second training begins.
    on = site.submit(f"srun {RING} --print-every 5 --say-at 150 '{half}' --pause 26 --short-if-restarted 20\n",
                     *SIZE, *ASKS, "-J", "on")

    def words(job: int) -> str:
        return next((s["finished"]["line"] for s in site.progress(job)["steps"] if s["finished"]), "")

    for job in (over, on):
        site.cluster.wait_state(job, "RUNNING", timeout=90)
        site.settled(job, ranks=8)
    wait_for(lambda: words(on) == half, 90, every=0.5, what="words in the middle of a run",
             saw=lambda: site.progress(on))
    wait_for(lambda: words(on) == "", 60, every=0.5, what="words that more output followed",
             saw=lambda: site.progress(on))
    assert site.findings("stalled", on) == []
    site.cluster.signal_rank(on, 0, 5, "STOP")

    stalled = site.wait_finding("stalled", over, timeout=90)
    assert f'finished but not exited: last words "0: {last}" at ' in stalled["stall"]["evidence"]
    assert stalled["stall"]["action"] == "restart"
    declined = site.wait_event(over, "restart_declined", timeout=30)
    assert declined["message"] == (f"restart declined: the training is over (its last words: 0: {last}); "
                                   "another attempt would do it all again")
    wait_for(lambda: "not restarted: the training is over" in site.comment(over), 30, what="the job's comment",
             saw=lambda: site.comment(over))

    stalled = site.wait_finding("stalled", on, timeout=90)
    assert "finished" not in stalled["stall"]["evidence"]
    wait_for(lambda: int(site.cluster.scontrol_show_job(on)["Restarts"]) == 1, 90, every=0.5, what="the requeue",
             saw=lambda: site.history(on))
    shown = site.cluster.scontrol_show_job(over)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
    assert "stopping" not in site.kinds(over)
    assert len(site.findings("stalled", over)) == 1, "it holds its nodes all the same"
    site.cluster.run("ctl", ["scancel", str(over), str(on)])
