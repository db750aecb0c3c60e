"""A controller as a process: one on its history, its sockets bound, its actor forked, its rights left behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from astraeus_protocol.signing import read_keys

from . import peer, recording
from .config import Config
from .history.store import Store
from .selfwatch import notify
from .service import Service, ServiceFault, boottime
from .slurm.command import Away, Commands, Refused
from .slurm.jobs import Jobs
from .trust import actor, drop
from .trust.client import ActorClient
from .trust.munge import Munge
from .trust.prover import Prover
from .trust.tokens import kept_key

log = logging.getLogger(__name__)
START_RETRY_S = 5.0
LOCK_S = 2.0
"""For so long the lock of one that was just killed is waited for."""


def run(config: Config, record: IO[str] | None = None, toml: str = "") -> None:
    """Run a controller until SIGTERM or SIGINT. Raises ServiceFault, KeyFault, SocketFault, StoreFault, DropFault."""
    user = drop.user_of(config.trust.user)
    prover = Prover(config.trust.auth, config.controller.key, Munge(config.trust.unmunge))
    if prover.by_key():
        read_keys(config.controller.key)  # what is wrong with it is said at once
    channel = actor.start(Commands(config.slurm.bin, config.slurm.timeout_s), prover)
    state = Path(config.controller.state)
    with only_one(state):
        bound = peer.bind(config.controller)
        if user is not None:
            try:
                drop.own(state, user)
            except OSError as fault:
                raise ServiceFault(f"can't give {state} to {user.pw_name}: {fault.strerror}") from None
            drop.become(user)
        asyncio.run(_serve(config, channel, bound, recording.Writer(record) if record else None, toml))


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Two controllers on one history would both act."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock: IO[str] = open(state / "controller.lock", "a")  # noqa: SIM115 - held by the with below
    except OSError as fault:
        raise ServiceFault(f"can't write to {state}: {fault.strerror}") from None
    until = time.monotonic() + LOCK_S
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until:
                    raise ServiceFault(f"another controller runs on {state}; stop it first") from None
                time.sleep(0.1)
        yield


async def _serve(config: Config, channel: socket.socket, bound: peer.Bound, record: recording.Writer | None,
                 toml: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    rights = ActorClient(channel, config.slurm.timeout_s)
    store = Store(Path(config.controller.state) / "history.db", boot=boot_id())
    try:
        settings = await _settings(Jobs(rights), stop)
        if settings is None:
            return
        service = Service(config, store, rights, rights, settings, record,
                          kept_key(Path(config.controller.state) / "token.key"))
        if record:
            record.meta(service.cluster, boottime(), time.time())
            record.config(toml, boottime(), time.time())
        await service.run(stop, bound, rights.gone)
    finally:
        store.close()


async def _settings(jobs: Jobs, stop: asyncio.Event) -> dict[str, str] | None:
    """``scontrol show config``; waits for slurmctld, for findings and restarts need the cluster's name."""
    told = False
    while not stop.is_set():
        try:
            return await jobs.settings()
        except (Away, Refused) as fault:
            if not told:
                log.warning("slurm: %s; waiting for it", fault)
            told = True
            notify.tell("READY=1\nSTATUS=waiting for slurmctld\nWATCHDOG=1")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_RETRY_S):
                await stop.wait()
    return None


def boot_id() -> str:
    """Of this machine: CLOCK_BOOTTIME starts anew with it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
