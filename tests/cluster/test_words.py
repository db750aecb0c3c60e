"""What a run's own output says: PyTorch's words of a collective that is stuck, and lines that are no progress."""

from __future__ import annotations

import re

from slurm_test_cluster import wait_for

from .conftest import Site

WORDS = ("[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
         "timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 "
         "milliseconds before timing out.")
BEFORE = "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
# Ranks that share no connection and use 7 % of a core while they hang: no other rule has anything to say of them.
HANGS = f"""
srun -N2 -n4 --label python3 -u -c '
import os, time
for step in range(20):
    print("step", step, "loss 0.3"); time.sleep(1)
if os.environ["SLURM_PROCID"] == "1":
    print("Epoch 0:   6%|", end="\\r"); print("Epoch 0:   7%|{WORDS}")
while True:
    end = time.monotonic() + 0.07
    while time.monotonic() < end: pass
    time.sleep(0.93)
'
"""
BEATS = """
srun -n1 python3 -u -c '
import time
for step in range(10):
    print("step", step, "loss 0.3"); time.sleep(1)
for beat in range(10000):
    print("heartbeat", beat); time.sleep(2)
'
"""


def test_words_of_a_stuck_collective(site: Site) -> None:
    # Another attempt's words in the same file are not this one's.
    site.cluster.run("ctl", ["su", "alice", "-c", f"echo '{BEFORE}' > /home/alice/words.txt"])
    job = site.submit(HANGS, "-N2", "-n4", "-o", "/home/alice/words.txt", "--stall-after=45s", "--open-mode=append")
    site.cluster.wait_state(job, "RUNNING", timeout=90)
    early = site.wait_finding("suspects", job, timeout=90)
    assert "NCCL: rank 1 says" in early["stall"]["evidence"], early
    stalled = site.wait_finding("stalled", job, timeout=90)
    said = stalled["stall"]["evidence"]
    said = re.sub(r"[0-9]{2}:[0-9]{2} UTC", "HH:MM UTC", said)
    assert said == ('no output since HH:MM UTC; NCCL: rank 1 says "Watchdog caught collective operation timeout" at '
                    "HH:MM UTC: ALLREDUCE #808 ran for 10m; no rank stands out")
    event = site.wait_event(job, "stalled", timeout=10)
    details = event["details"]["stall"]
    assert details["rule"] == "collective_said", details
    step = next(s for s in site.progress(job)["steps"] if s["step"] == "0")
    assert [(one["kind"], one["rank"]) for one in step["said"]] == [("stuck", 1)]
    site.cluster.run("ctl", ["scancel", str(job)])


def test_a_heartbeat_is_output_unless_the_run_says_otherwise(site: Site) -> None:
    size = ("-n1", "-o", "/home/alice/out-%j.txt", "--stall-after=45s")
    ignored = site.submit(BEATS, *size, "--ignore-output=^heartbeat [0-9]+$")
    counted = site.submit(BEATS, *size)
    for job in (ignored, counted):
        site.cluster.wait_state(job, "RUNNING", timeout=90)
    stalled = site.wait_finding("stalled", ignored, timeout=150)
    assert stalled["stall"]["evidence"].startswith("no output since"), stalled

    def beats() -> str:
        return next((s["chatter"]["line"] for s in site.progress(counted)["steps"] if s["chatter"]), "")

    wait_for(lambda: beats().startswith("heartbeat "), 90, every=1, what="the heartbeat as chatter",
             saw=lambda: site.progress(counted))
    assert site.findings("stalled", counted) == []
    site.cluster.run("ctl", ["scancel", str(ignored), str(counted)])
