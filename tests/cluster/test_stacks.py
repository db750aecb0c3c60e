"""A rank that hangs on a lock while the others wait in a collective: their Python stacks tell it apart."""

from __future__ import annotations

import json
import time

from slurm_test_cluster import wait_for

from .conftest import Site


def test_a_rank_on_a_lock_and_where_the_others_are(site: Site) -> None:
    """Each main thread sleeps in the same futex: no state and no place tells them apart. What lies unread at the rank's
    connections may name it before its stack does; either way people see the line of its code."""
    job = site.gang("--stall-after=60s", ring="--by-thread --lock-on USR2")
    victim = site.cluster.rank_pid(job, 0, 5)
    hangs = time.monotonic()
    site.cluster.signal_rank(job, 0, 5, "USR2")

    site.wait_finding("suspects", job, timeout=60)
    named = wait_for(lambda: [f for kind in ("suspects", "stalled") for f in site.findings(kind, job)
                              if f["rank"] == 5], 20, every=0.5, what="rank 5 named",
                     saw=lambda: (site.history(job), site.api(f"/runs/{job}/stacks")))[0]
    assert time.monotonic() - hangs <= 75
    assert (named["worker"], named["machine"], named["pid"]) == (f"{job}-5", victim.node, victim.pid)

    # Its nodes report every 2 s by now: it is a matter of seconds.
    asked = time.monotonic()
    shown = site.cluster.run("ctl", ["astraeus", "stacks", str(job)])
    assert time.monotonic() - asked <= 15
    assert shown.rc == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith("7 ranks in Condition.wait (threading.py:"), shown.out
    assert " · rank 5 in Ring.next_batch (ring.py:" in lines[0] or " · rank 5 in next_batch (ring.py:" in lines[0]
    assert lines[2] == "ranks 0-4,6,7 on c[1-4]:"
    assert f"rank 5 on {victim.node}:" in lines
    answer = json.loads(site.cluster.run("ctl", ["astraeus", "stacks", str(job), "--last", "--json"]).out)
    assert (answer["done"], answer["waiting_for"], len(answer["processes"])) == (True, [], 8)
    [stuck] = [one for one in answer["processes"] if one["rank"] == 5]
    assert (stuck["pid"], stuck["machine"]) == (victim.pid, victim.node)
    assert [thread["count"] for thread in stuck["threads"]] == [1], "the thread that receives"

    native = json.loads(site.cluster.run("ctl", ["astraeus", "stacks", f"{job}.0", "--native", "--json"]).out)
    assert native["native"]
    [stuck] = [one for one in native["processes"] if one["rank"] == 5]
    assert any("libc" in frame for frame in stuck["frames"]), stuck

    stalled = site.wait_finding("stalled", job, timeout=60 + 30 - (time.monotonic() - hangs))
    assert (stalled["rank"], stalled["pid"]) == (5, victim.pid)
    wait_for(lambda: lines[0] in site.findings("stalled", job)[0]["stall"]["evidence"], 20, every=0.5,
             what="who is where in the finding", saw=lambda: site.findings("stalled", job))
    # Told from a collective that hangs: the others wait in theirs, its main thread for a lock, and no thread gets on.
    cause = wait_for(lambda: (told := site.findings("stalled", job)[0])["stall"]["cause_kind"] == "deadlock" and told,
                     45, every=0.5, what="the cause", saw=lambda: site.findings("stalled", job))["stall"]
    assert cause["cause"].startswith("deadlock in Python: rank 5 waits for a lock in ")
    assert "next_batch (ring.py:" in cause["cause"]
    assert cause["rests_on"]["where"] == lines[0]
    shown = site.cluster.run("ctl", ["astraeus", "evidence", str(stalled["id"])])
    assert shown.rc == 0, shown.err
    assert f"cause: {cause['cause']}" in shown.out
    assert f"where: {lines[0]}" in shown.out
    assert "ranks 0-4,6,7 on c[1-4]:" in shown.out
    assert any(line.startswith("    step ") for line in shown.out.splitlines()), "the end of its output"
    site.cluster.run("ctl", ["scancel", str(job)])
