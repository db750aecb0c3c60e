"""What a quiet process waits for: channel and call, the mount behind them, for how long; never a guess."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from astraeus_monitor.host import calls
from astraeus_monitor.host.stores import Mount, family_of, parse_mounts, store_of
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.probes.waits import WaitSeen, WaitWatch, look_at_waits
from astraeus_monitor.rounds.looks import Looks
from astraeus_monitor.sources.process import ProcessWatch
from astraeus_monitor.watch.job import JobWatch

from .conftest import FakeProc
from .test_job import FACTS, STEP
from .test_probes import Rig

TABLE = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:5 / /dev rw,nosuid shared:2 - tmpfs devtmpfs rw
30 22 0:44 / /data rw,relatime shared:7 master:3 - nfs4 store1:/export rw,vers=4.2
31 22 0:45 /deep /my\\040scratch rw - lustre 10.0.0.1@o2ib:/lfs rw
32 22 0:46 / /mnt/store rw - fuse.storefs store2:/b rw
33 22 0:46 / /mnt/store/again/deep rw - fuse.storefs store2:/b rw
not a line
"""
MOUNTS = parse_mounts(TABLE.encode())
BY_ID = {mount.id: mount for mount in MOUNTS}
X86, ARM = "x86_64", "aarch64"
NO_FD = "0xffffffffffffff9c"


@pytest.mark.parametrize(("line", "machine", "told"), [
    ("0 0x7 0x7f00 0x1000 0x0 0x0 0x0 0x7ffe 0x7fd5\n", X86, ("read", 7)),
    (f"257 {NO_FD} 0x7f00 0x0 0x0 0x0 0x0 0x7ffe 0x7fd5", X86, ("openat", None)),
    ("63 0x7 0x7f00 0x1000 0x0 0x0 0x0 0x7ffe 0x7fd5", ARM, ("read", 7)),
    ("262 0x5 0x7f00 0x7f10 0x1000 0x0 0x0 0x7ffe 0x7fd5", X86, ("newfstatat", 5)),
    ("262 0x5 0x7f00 0x7f10 0x0 0x0 0x0 0x7ffe 0x7fd5", X86, ("newfstatat", None)),
    ("202 0x55d0 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7fd5", X86, ("futex", None)),
    ("1 0xffffffffffffffff 0x1 0x1 0x0 0x0 0x0 0x7ffe 0x7fd5", X86, ("write", None)),
    ("-1 0x7ffe 0x7fd5", X86, (calls.FAULT, None)),
    ("running", X86, ("", None)),
    ("", X86, ("", None)),
    ("600 0x1 0x1 0x1 0x0 0x0 0x0 0x7ffe 0x7fd5", X86, ("system call 600", None)),
    ("0 0x1 0x1 0x1 0x0 0x0 0x0 0x7ffe 0x7fd5", "riscv64", ("system call 0", None)),
])
def test_a_call_and_its_open_file(line: str, machine: str, told: tuple[str, int | None]) -> None:
    assert calls.parse(line, machine) == told


def test_a_mount_table() -> None:
    assert BY_ID[30] == Mount(30, "0:44", "/data", "nfs4", "store1:/export")
    assert (BY_ID[31].at, BY_ID[31].source) == ("/my scratch", "10.0.0.1@o2ib:/lfs")
    assert len(MOUNTS) == 6


@pytest.mark.parametrize(("channel", "family"), [
    ("request_wait_answer", "fuse"), ("rpc_wait_bit_killable", "nfs"), ("nfs_set_open_stateid_locked", "nfs"),
    ("ptlrpc_set_wait", "lustre"), ("ceph_mdsc_wait_request", "ceph"), ("folio_wait_bit_common", ""),
    ("percpu_rwsem_wait", ""), ("poll_schedule_timeout.constprop.0", None), ("futex_do_wait", None),
    ("wait_woken", None), ("anon_pipe_read", None), ("do_signal_stop", None), ("locks_lock_inode_wait", None),
    ("wait_for_partner", None), ("hrtimer_nanosleep", None)])
def test_which_channels_are_storage(channel: str, family: str | None) -> None:
    assert family_of(channel) == family


@pytest.mark.parametrize(("channel", "mount_id", "kind", "source"), [
    ("rpc_wait_bit_killable", 30, "nfs4", "store1:/export"),
    ("rpc_wait_bit_killable", None, "nfs4", "store1:/export"),  # by its path: the only NFS there is
    ("rpc_wait_bit_killable", 22, "nfs4", "store1:/export"),  # an overlay's file, say: NFS lies below
    ("request_wait_answer", None, "fuse.storefs", "store2:/b"),  # mounted at two places, but one store
    ("folio_wait_bit_common", 32, "fuse.storefs", "store2:/b"),
    ("folio_wait_bit_common", 22, "ext4", "/dev/vda1"),
    ("folio_wait_bit_common", None, "", ""),
    ("folio_wait_bit_common", 99, "", ""),  # a pipe's: in no table
    ("rwsem_down_read_slowpath", 23, "", ""),  # a device
    ("wait_woken", 30, "", ""),
    ("ceph_mdsc_wait_request", None, "ceph", ""),  # unmounted lazily: storage, but which is not known
])
def test_which_mount_is_waited_for(channel: str, mount_id: int | None, kind: str, source: str) -> None:
    told, mount = store_of(channel, mount_id, MOUNTS)
    assert (told, mount.source if mount else "") == (kind, source)


def test_of_two_stores_of_a_family_none_is_guessed() -> None:
    two = [*MOUNTS, Mount(40, "0:60", "/home", "nfs", "store9:/home")]
    assert store_of("rpc_wait_bit_killable", None, two) == ("nfs", None)
    assert store_of("rpc_wait_bit_killable", 40, two)[1] == two[-1]


def test_where_one_of_two_places_is_named_it_is_the_shorter() -> None:
    mount = store_of("request_wait_answer", None, reversed(MOUNTS))[1]
    assert mount is not None
    assert mount.at == "/mnt/store"


class WaitingProc(FakeProc):
    """``channels``: PID to its channels, one a sample, the last for ever."""

    def wait(self, pid: int, *channels: str, call: str = f"257 {NO_FD} 0x1 0x0 0x0 0x0 0x0 0x7f 0x7f",
             mnt_id: int | None = None) -> None:
        home = self.path / str(pid)
        (home / "wchan").write_text(channels[0])
        (home / "syscall").write_text(call)
        (home / "mountinfo").write_text(TABLE)
        if not (home / "ns" / "mnt").is_symlink():
            os.symlink("mnt:[1]", home / "ns" / "mnt")
        if mnt_id is not None:
            (home / "fdinfo" / "7").write_text(f"pos:\t0\nflags:\t0100000\nmnt_id:\t{mnt_id}\nino:\t5\n")


@pytest.fixture
def waiting(tmp_path: Path) -> WaitingProc:
    proc = WaitingProc(tmp_path / "proc")
    for pid in (10, 11):
        proc.add(pid)
    return proc


def one_look(proc: WaitingProc, *pids: int, procs: list[ProcLook] | None = None, before: dict | None = None,
             change: object = None) -> list[WaitSeen]:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if callable(change):
            change(len(pauses))

    known = {} if before is None else before
    found = list(look_at_waits(proc, [(pid, pid) for pid in pids], procs or [], known, sleep))
    known["pauses"] = len(pauses)  # type: ignore[index]
    return found


def test_what_all_samples_agree_on_is_told(waiting: WaitingProc) -> None:
    waiting.wait(10, "rpc_wait_bit_killable", call="0 0x7 0x1 0x1 0x0 0x0 0x0 0x7f 0x7f", mnt_id=30)
    waiting.wait(11, "futex_do_wait", call="202 0x1 0x80 0x0 0x0 0x0 0x0 0x7f 0x7f")
    found = {wait.pid: wait for wait in one_look(waiting, 10, 11)}
    assert (found[10].channel, found[10].call, found[10].mount, found[10].at, found[10].kind) == (
        "rpc_wait_bit_killable", "read", "store1:/export", "/data", "nfs4")
    assert (found[11].channel, found[11].call, found[11].mount, found[11].kind) == ("futex_do_wait", "futex", "", "")


def test_a_sample_elsewhere_tells_of_nothing(waiting: WaitingProc) -> None:
    waiting.wait(10, "request_wait_answer")

    def works(sample: int) -> None:
        waiting.wait(10, "0" if sample == 3 else "request_wait_answer")

    assert one_look(waiting, 10, change=works) == []
    waiting.wait(10, "0")
    assert one_look(waiting, 10) == []
    assert one_look(waiting, 99) == []


def test_who_has_not_run_since_needs_no_further_samples(waiting: WaitingProc) -> None:
    known: dict = {}
    waiting.wait(10, "request_wait_answer")
    one_look(waiting, 10, before=known)
    assert known.pop("pauses") == 4
    assert one_look(waiting, 10, before=known)[0].mount == "store2:/b"
    assert known.pop("pauses") == 0
    (waiting.path / "10" / "status").write_text("Name:\tx\nvoluntary_ctxt_switches:\t1\n")
    assert one_look(waiting, 10, before=known)[0].mount == "store2:/b"
    assert known.pop("pauses") == 4


def test_a_data_loaders_wait_stands_for_its_process(waiting: WaitingProc) -> None:
    procs = [ProcLook(10, 10, 1, "python3", worker=True), ProcLook(11, 11, 10, "python3")]
    waiting.wait(10, "unix_stream_read_generic", call="0 0x7 0x1 0x1 0x0 0x0 0x0 0x7f 0x7f", mnt_id=99)
    waiting.wait(11, "request_wait_answer")
    [found] = one_look(waiting, 10, procs=procs)
    assert (found.pid, found.start, found.helper, found.mount) == (10, 10, 11, "store2:/b")
    waiting.wait(11, "futex_do_wait")
    [found] = one_look(waiting, 10, procs=procs)
    assert (found.pid, found.helper, found.channel) == (10, 0, "unix_stream_read_generic")


def test_for_how_long_is_counted_from_burst_to_burst() -> None:
    watch, seen = WaitWatch(), WaitSeen(10, 10, "request_wait_answer", "openat", "s:/x", "/s", "fuse", over_s=0.2)
    watch.see(seen, 100.0)
    for at in (105.0, 120.0):
        watch.see(seen, at)
    wait = watch.record(131.0)
    assert wait is not None
    assert (wait.s, wait.mount, wait.kind) == (31.2, "s:/x", "fuse")
    assert watch.long(131.0)
    assert not watch.long(125.0)
    watch.see(WaitSeen(10, 10, "futex_do_wait", "futex"), 135.0)
    assert watch.record(166.0).s == 31.0  # type: ignore[union-attr]
    assert not watch.long(166.0)  # it waits, but for no storage
    watch.see(None, 170.0)
    assert watch.record(170.0) is None
    watch.see(seen, 175.0)
    assert watch.record(175.0 + 51) is None  # nobody looked since
    watch.see(seen, 240.0)
    assert watch.record(240.0).s == 0.2  # type: ignore[union-attr]


def beating(switches_per_s: list[float], ticks_per_s: float = 30.0) -> ProcessWatch:
    """A process with a window of 5 s for each rate."""
    watch, count = ProcessWatch(ProcLook(10, 10, 1, "python3"), 0, 5.0), 0.0
    watch.state = "S"
    for place, rate in enumerate(switches_per_s):
        watch.pulse.sample(5.0 * place, int(count))
        watch.cpu.append((5.0 * place, int(5 * ticks_per_s * place)))
        count += 5 * rate
    return watch


@pytest.mark.parametrize(("rates", "ticks", "state", "asked"), [
    ([60.0] * 9, 30, "S", False),
    ([60.0] * 9, 30, "D", True),
    ([60.0] * 6 + [0.0] * 3, 30, "S", True),
    ([60.0] * 6 + [0.0] * 3, 30, "T", False),
    ([0.1] * 9, 0.1, "S", True),  # its pulse was never known
    ([0.1] * 9, 30, "S", False),
])
def test_only_who_has_gone_quiet_is_asked(rates: list[float], ticks: float, state: str, asked: bool) -> None:
    process = beating(rates, ticks)
    process.state = state
    process.wait.see(WaitSeen(10, 10, "request_wait_answer", "openat", "s:/x", "/s", "fuse"), 30.0)
    assert (process.record(45.0, 100.0, ties=False).wait is not None) is asked
    assert process.wants_wait(45.0) is asked
    assert process.wait.unsettled(100.0) is asked
    assert not process.wait.unsettled(106.0)


def test_a_look_brings_it_into_the_report_and_the_next_one_comes_soon(tmp_path: Path) -> None:
    rig, proc = Rig(), WaitingProc(tmp_path / "proc")
    seen: list[int] = []
    looks = Looks(rig.selector, rig.clock, proc, lambda: seen.append(1))
    now = rig.clock.boot()
    job = looks.jobs[7] = JobWatch(7, {**FACTS, "gpus": ""}, tmp_path, now - 100, 5)
    job.feed("0", [("step", STEP), ("task", {"rank": "2", "pid": "102", "start": "102"})], now - 100)
    proc.add(102, 5, state="D")
    proc.wait(102, "rpc_wait_bit_killable", call="0 0x7 0x1 0x1 0x0 0x0 0x0 0x7f 0x7f", mnt_id=30)
    rig.sweeps.append(looks.sweep)
    looks.due(now, 15, "c9")
    rig.until(lambda: len(seen) == 1)
    [process] = job.steps["0"].workers[2].roster.processes
    assert process.wait.asked_since is None
    process.state = "D"
    looks.due(now + 15, 15, "c9")
    rig.until(lambda: len(seen) == 2)
    wait = process.record(rig.clock.boot(), 100.0, ties=False).wait
    assert wait is not None
    assert (wait.mount, wait.at, wait.kind, wait.call) == ("store1:/export", "/data", "nfs4", "read")
    looks.due(now + 20, 15, "c9")  # five seconds later, and not fifteen
    rig.until(lambda: len(seen) == 3)
    proc.wait(102, "0")
    looks.due(now + 25, 15, "c9")
    rig.until(lambda: len(seen) == 4)
    assert process.record(rig.clock.boot(), 100.0, ties=False).wait is None
    looks.stop()
    rig.selector.close()
