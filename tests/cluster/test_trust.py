"""Who may speak for a node and who may ask, on a real cluster: forged reports, tokens, a munged that is dead."""

from __future__ import annotations

import json

import pytest
from slurm_test_cluster import wait_for

from .conftest import RING, Site

API = "http://ctl:6832"
KEY = "/etc/astraeus/report.key"
MONITOR_LOG = "/var/log/astraeus/monitor.log"
FORGE = """
import base64, hashlib, hmac, json, os, subprocess, sys, time, urllib.request, urllib.error
job, prefix = int(sys.argv[1]), sys.argv[2:]
key, nonce = b"k" * 32, os.urandom(16).hex()
hello = f"astraeus-node 1 c1 {nonce} {key.hex()}"
argv = [*prefix, "munge", "--restrict-uid=root", "--ttl=60"]
made = subprocess.run(argv, input=hello, text=True, capture_output=True)
report = {"node": "c1", "boot": "b", "session": "s", "seq": 10**9, "nonce": nonce, "at": time.time(), "v": 1,
          "jobs": [{"job": job, "nonce": "n", "uid": os.getuid(), "stop_file": True}]}
body = json.dumps(report).encode()
at = str(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6)
mac = hmac.digest(key, f"report\\nc1\\n{nonce}\\n{at}\\n".encode() + body, "sha256").hex()
for credential in (made.stdout.strip(), ""):
    headers = {"Astraeus-Node": "c1", "Astraeus-Nonce": nonce, "Astraeus-Time": at, "Astraeus-Signature": "v2 " + mac}
    if credential:
        headers["Astraeus-Credential"] = credential
    try:
        print(urllib.request.urlopen(urllib.request.Request("http://ctl:6831/v1/report", body, headers)).status)
    except urllib.error.HTTPError as refused:
        print(refused.status, refused.read().decode().strip())
"""


def watched(site: Site, node: str, user: str = "alice") -> int:
    """A job of one task on the node that the controller knows."""
    job = site.submit(f"srun {RING}\n", "-N1", "-n2", "-w", node, "--stall-after=60s", "-o", f"/home/{user}/out-%j.txt",
                      user=user)
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    known(site, job)
    return job


def known(site: Site, job: int, timeout: float = 40) -> None:
    wait_for(lambda: site.api(f"/runs/{job}/progress")[0] == 200, timeout, every=0.5, what=f"job {job} is reported")


def test_a_jobs_user_can_not_speak_for_a_node(site: Site) -> None:
    """Not with a MUNGE credential of his own, as root in a user namespace neither, and not without one."""
    job = watched(site, "c1", user="bob")
    for prefix in ([], ["unshare", "-Ur"]):
        said = site.cluster.run("c1", ["python3", "-c", FORGE, str(job), *prefix], user="alice", check=True).out
        first, last = said.splitlines()[0], said.splitlines()[-1]
        if not prefix:
            assert first == "401 uid 1001 is not root, who alone speaks for a node"
        assert first.startswith("401 "), said
        assert last == "401 the signature is wrong; the node is to prove itself anew", said
    assert site.cluster.run("c1", ["ls", f"/run/astraeus/jobs/{job}/steps"], user="alice").rc != 0
    assert site.cluster.run("c1", ["cat", f"/run/astraeus/jobs/{job}/clock"], user="alice").rc != 0
    assert site.cluster.api(f"/runs/{job}/stacks", user="alice")[0] == 404
    assert site.cluster.api(f"/runs/{job}/progress")[0] == 200
    assert "report of c1 from" in site.cluster.controller_log()
    site.cluster.run("ctl", ["scancel", str(job)])


def test_a_token_and_both_curl_lines_from_another_host(site: Site) -> None:
    job = site.submit(f"srun {RING}\n", "-N1", "-n2", "-J", "llm-trust", "--stall-after=60s",
                      "-o", "/home/alice/out-%j.txt")
    site.cluster.wait_state(job, "RUNNING", timeout=60)
    known(site, job)
    lines = f"""
export ASTRAEUS_API={API} ASTRALYX_API={API}
ASTRALYX_TOKEN=$(astraeus token) || exit 1
curl -sS "$ASTRALYX_API/stalls" -H "Authorization: Bearer $ASTRALYX_TOKEN"; echo
curl -sS "$ASTRALYX_API/runs/llm-trust/progress" -H "Authorization: Bearer $ASTRALYX_TOKEN"; echo
curl -sS -o /dev/null -w '%{{http_code}}\\n' "$ASTRALYX_API/stalls"
curl -sS -X POST "$ASTRALYX_API/nodes/c2/drain" -H "Authorization: Bearer $ASTRALYX_TOKEN"; echo
astraeus progress {job} | head -1
"""
    wait_for(lambda: site.api("/runs/llm-trust/progress")[0] == 200, 40, every=1, what="its name is known")
    said = site.cluster.run("c2", lines, user="alice", check=True).out.splitlines()
    assert set(json.loads(said[0])) >= {"stalled", "stragglers", "coverage"}
    assert json.loads(said[1])["run"] == str(job)
    assert said[2] == "401"
    assert json.loads(said[3])["status"] == 403
    assert said[4].startswith(f"{job} llm-trust: RUNNING")
    site.cluster.run("ctl", ["scancel", str(job)])


@pytest.mark.alone
def test_the_controller_serves_without_root_and_its_actor_ends_with_it(site: Site) -> None:
    controller = site.cluster.controller_pid()
    rows = site.cluster.run("ctl", "ps -eo user:20=,pid=,args= | grep '[b]in/astraeus-controller'").out
    users = {int(row.split()[1]): row.split()[0] for row in rows.splitlines()}
    assert users.pop(controller) == "astraeus"
    (actor,) = users
    assert users[actor] == "root"
    site.cluster.kill_controller("KILL")
    wait_for(lambda: site.cluster.run("ctl", ["test", "-d", f"/proc/{actor}"]).rc != 0, 5, every=0.1, what="its end")
    site.cluster.start_controller()


@pytest.mark.alone
def test_munged_is_killed_and_the_controller_starts_anew(site: Site) -> None:
    """A node goes on under its key; a controller that has forgotten it hears of the node once munged is back."""
    first, second = watched(site, "c3"), watched(site, "c4")
    site.cluster.run("c3", "kill -9 $(pgrep -o munged)", check=True)
    try:
        before = site.api("/healthz")[1]["reports"]
        wait_for(lambda: site.api("/healthz")[1]["reports"] >= before + 4, 60, every=1, what="reports go on")
        assert site.api(f"/runs/{first}/progress")[0] == 200
        site.cluster.kill_controller("KILL")
        site.cluster.start_controller()
        known(site, second)  # no report is lost: the next one comes with a proof
        wait_for(lambda: "munge makes no credential" in site.cluster.logs("c3", MONITOR_LOG, 50), 30, every=1,
                 what="c3 says why it is not heard")
        assert site.api(f"/runs/{first}/progress")[0] == 404
    finally:
        site.cluster.run("c3", "rm -f /run/munge/*; runuser -u munge -- /usr/sbin/munged", check=True)
    known(site, first)
    site.cluster.run("ctl", ["scancel", str(first), str(second)])


@pytest.mark.alone
def test_shared_keys_in_munges_place_rotate_without_a_gap(site: Site) -> None:
    """A site on auth/slurm: the nodes get the new key first, the controller when it has it, then the old one goes."""
    old, new = "o" * 48 + "\n", "n" * 48 + "\n"

    def keys(text: str, *hosts: str) -> None:
        for host in hosts:
            site.cluster.copy_in(host, KEY, text, mode=0o600)

    def started_anew(job: int) -> None:
        site.cluster.kill_controller("KILL")
        site.cluster.start_controller()
        known(site, job)
    try:
        job = watched(site, "c2")
        keys(old, "ctl", *site.cluster.nodes)
        started_anew(job)
        keys(old + new, *site.cluster.nodes)
        started_anew(job)  # refused with the new key, taken with the old one
        keys(old + new, "ctl")
        keys(new, *site.cluster.nodes)
        started_anew(job)
        keys(new, "ctl")
        started_anew(job)
    finally:
        for host in site.cluster.hosts:
            site.cluster.run(host, ["rm", "-f", KEY])
        site.cluster.kill_controller("KILL")
        site.cluster.start_controller()
    known(site, job)  # with MUNGE again
    site.cluster.run("ctl", ["scancel", str(job)])
