"""The cluster's hosts as containers: running commands, putting and reading files."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import docker
from docker.models.containers import Container

T = TypeVar("T")

USERS = {"root": 0, "alice": 1001, "bob": 1002}
TIMED_OUT = 124


class CommandFailed(AssertionError):
    """A command that had to succeed did not; the message has its output."""


@dataclass(frozen=True)
class Result:
    """What a command left: exit status (124 when its time was up), standard output, standard error."""

    rc: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.rc == 0


def home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


class Hosts:
    """The containers of one cluster: `ctl` and the nodes `c1`, `c2`, ..."""

    def __init__(self, client: docker.DockerClient, prefix: str, nodes: Sequence[str]) -> None:
        self.client = client
        self.prefix = prefix
        self.nodes = list(nodes)

    @property
    def hosts(self) -> list[str]:
        return ["ctl", *self.nodes]

    def container_name(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def container(self, host: str) -> Container:
        if host not in self.hosts:
            raise ValueError(f"no host {host!r} in this cluster: say one of {', '.join(self.hosts)}")
        return self.client.containers.get(self.container_name(host))

    def on_each(self, hosts: Iterable[str], do: Callable[[str], T]) -> dict[str, T]:
        """`do(host)` for each host at the same time; the answers by host."""
        chosen = list(hosts)
        with ThreadPoolExecutor(max_workers=max(len(chosen), 1)) as pool:
            return dict(zip(chosen, pool.map(do, chosen), strict=True))

    def _exec(
        self, host: str, argv: Sequence[str], user: str, env: Mapping[str, str] | None, detach: bool
    ) -> str:
        environment = {"HOME": home(user), "USER": user, "LOGNAME": user, **(env or {})}
        api = self.client.api
        made = api.exec_create(
            self.container_name(host), list(argv), user=user, environment=environment, workdir=home(user),
            stdout=not detach, stderr=not detach,
        )  # fmt: skip
        return str(made["Id"])

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        user: str = "root",
        timeout: float = 30,
        check: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run an argument list, or a string by bash, on `host` as `user` in that user's home.

        After `timeout` seconds the command is ended: rc 124. With `check` a failure raises CommandFailed.
        """
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        exec_id = self._exec(host, ["timeout", "-k", "2", f"{timeout:g}", *argv], user, env, detach=False)
        out, err = self.client.api.exec_start(exec_id, demux=True)
        rc = self.client.api.exec_inspect(exec_id)["ExitCode"]
        result = Result(rc, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace"))
        if check and rc:
            late = f" (its {timeout:g} s were up)" if rc == TIMED_OUT else ""
            shown = command if isinstance(command, str) else " ".join(command)
            raise CommandFailed(
                f"{user}@{host}: {shown}: exit {rc}{late}\n{result.err.strip()}\n{result.out.strip()}"
            )
        return result

    def background(
        self,
        host: str,
        argv: Sequence[str],
        log: str,
        user: str = "root",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a daemon: own session, output appended to `log`; returns at once."""
        script = 'log=$1; shift; mkdir -p "$(dirname "$log")"; exec setsid "$@" >>"$log" 2>&1 </dev/null'
        exec_id = self._exec(host, ["bash", "-c", script, "background", log, *argv], user, env, detach=True)
        self.client.api.exec_start(exec_id, detach=True)

    def copy_in(self, host: str, path: str, data: str | bytes, user: str = "root", mode: int = 0o644) -> None:
        """Put a file at the absolute `path`, owned by `user`; missing folders are made (root's)."""
        content = data.encode() if isinstance(data, str) else data
        info = tarfile.TarInfo(path.lstrip("/"))
        info.mtime = time.time()
        info.size, info.mode, info.uid, info.gid = len(content), mode, USERS[user], USERS[user]
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(info, io.BytesIO(content))
        self.container(host).put_archive("/", archive.getvalue())

    def read_file(self, host: str, path: str) -> str:
        """The text of a file; FileNotFoundError where there is none."""
        result = self.run(host, ["cat", path])
        if result.rc:
            raise FileNotFoundError(f"{host}:{path}: {result.err.strip()}")
        return result.out

    def logs(self, host: str, path: str, lines: int | None = None) -> str:
        """A log's text, or its last `lines`; empty where the file does not exist yet."""
        argv = ["cat", path] if lines is None else ["tail", "-n", str(lines), path]
        return self.run(host, argv).out
