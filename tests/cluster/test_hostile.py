"""What a job's user puts in a monitor's way: nothing of root's is read or ended, stalls are found in time."""

from __future__ import annotations

import time

from slurm_test_cluster import wait_for

from .conftest import Site

ENDLESS = """
import socket
there = socket.create_server(("127.0.0.1", 9777))
while True:
    one, _ = there.accept()
    try:
        one.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
        while True:
            one.sendall(b"# no end to it\\n" * 4096)
    except OSError:
        pass
"""
ATTACK = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206
got, tried, seen = [], 0, set()
end = time.time() + 60
while time.time() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as file:
                name = file.read()
            if os.stat(f"/proc/{pid}").st_uid == os.getuid() or not name.startswith("astraeus"):
                continue
        except OSError:
            continue
        tried += 1
        seen.add(pid)
        try:
            os.kill(int(pid), 9)
            got.append(f"killed {pid}")
        except OSError:
            pass
        if libc.ptrace(PTRACE_SEIZE, int(pid), 0, 0) == 0:
            got.append(f"traced {pid}")
        for what in ("mem", "environ", "fd"):
            try:
                os.listdir(f"/proc/{pid}/fd") if what == "fd" else open(f"/proc/{pid}/{what}", "rb").read(1)
                got.append(f"read {what} of {pid}")
            except OSError:
                pass
    time.sleep(0.05)
print("tried", tried > 100, "got", got[:5], flush=True)
"""


def unknown(site: Site, job: int, source: str) -> list[str]:
    """Why the source is unknown for the job's workers."""
    return [one["reason"] for w in site.progress(job)["workers"] for one in w["unknown"] if one["source"] == source]


def python(text: str) -> str:
    """A batch script that is this program."""
    return f"python3 -u - <<'EOF'{text}EOF\n"


def test_a_hostile_user_costs_nobody_anything(site: Site) -> None:
    one = ("-N1", "-n1", "--stall-after=30s", "-o", "/home/alice/out-%j.txt")
    site.cluster.run("ctl", "ln -sfn /etc/shadow /home/alice/link; rm -f /home/alice/pipe; mkfifo /home/alice/pipe",
                     user="alice", check=True)
    metric = "--progress-metric=step"
    linked = site.submit("sleep 600\n", *one, metric, "--metrics-file=/home/alice/link")
    piped = site.submit("sleep 600\n", *one, metric, "--metrics-file=/home/alice/pipe")
    endless = site.submit(python(ENDLESS), *one, metric, "--metrics-port=9777")
    fifo = site.submit("exec 1<>/home/alice/pipe 2>&1\nwhile sleep 1; do echo x >/dev/null; done\n", *one)
    sparse = site.submit("rm -f /home/alice/sparse\ntruncate -s 10G /home/alice/sparse\n"
                         "exec >>/home/alice/sparse 2>&1\n"
                         "for i in 1 2 3; do echo 'Training completed'; sleep 1; done\nsleep 600\n", *one)
    attack = site.submit(python(ATTACK), *one)
    victim = site.gang("--stall-after=30s", "-o", "/home/bob/out-%j.txt", user="bob")
    monitors = {node: site.cluster.monitor_pid(node) for node in site.cluster.nodes}
    stopped = time.monotonic()
    site.cluster.signal_rank(victim, 0, 5, "STOP")
    stalled = site.wait_finding("stalled", victim, timeout=50)
    assert stalled["worker"] == f"{victim}-5"
    assert time.monotonic() - stopped <= 45, "late"
    for job, source, reason in ((linked, "metric", "/home/alice/link: Permission denied"),
                                (piped, "metric", "/home/alice/pipe is no regular file"),
                                (endless, "metric", "port 9777 answers with more than 1 MiB"),
                                (fifo, "output", "output goes to a FIFO")):
        wait_for(lambda job=job, source=source, reason=reason: unknown(site, job, source) == [reason], 60, every=1,
                 what=f"{source} of job {job} unknown: {reason}", saw=lambda job=job: site.progress(job))
    site.wait_finding("stalled", sparse, timeout=60)
    site.cluster.wait_state(attack, "COMPLETED", timeout=120)
    assert site.cluster.read_file("ctl", f"/home/alice/out-{attack}.txt").split("\n")[0] == "tried True got []"
    assert {node: site.cluster.monitor_pid(node) for node in site.cluster.nodes} == monitors
    site.cluster.run("ctl", ["scancel", *map(str, (linked, piped, endless, fifo, sparse, victim))])
