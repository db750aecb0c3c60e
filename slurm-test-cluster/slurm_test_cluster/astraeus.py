"""Astraeus on the cluster: its configuration, its controller on ctl, its monitors on the nodes."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any

from docker.errors import NotFound

from slurm_test_cluster.context import HERE
from slurm_test_cluster.hosts import Hosts
from slurm_test_cluster.variants import DEFAULT_VARIANT, Variant, variant_named
from slurm_test_cluster.waiting import wait_for

TOML_PATH = "/etc/astraeus/astraeus.toml"
CONTROLLER = ("/usr/sbin/astraeus-controller", "run")
CONTROLLER_LOG = "/var/log/astraeus/controller.log"
START_MONITOR = "/usr/lib/astraeus/start-monitor"
REPORT_PORT = 6831
API_SOCKET = "/run/astraeus/api.sock"
VARIANT_LABEL = "astraeus.variant"
# The bracket keeps a search from finding itself.
CONTROLLER_PATTERN = "[b]in/astraeus-controller"
MONITOR_PATTERN = "[b]in/astraeus-monitor"


def default_toml() -> str:
    """The configuration that every host gets: image/etc/astraeus/astraeus.toml."""
    return (HERE / "image" / "etc" / "astraeus" / "astraeus.toml").read_text()


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask_socket(socket_path: str, path: str, timeout: float) -> tuple[int, Any]:
    """Status and JSON body of GET `path`; (0, why) without an answer."""
    connection = UnixConnection(socket_path, timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as fault:
        return 0, str(fault)
    finally:
        connection.close()
    return response.status, json.loads(body) if body.strip() else None


class Astraeus(Hosts):
    """Start and kill Astraeus' own processes."""

    @property
    def variant(self) -> Variant:
        """What kind of cluster this is."""
        return variant_named(self.container("ctl").labels.get(VARIANT_LABEL, DEFAULT_VARIANT))

    def process_id(self, host: str, pattern: str) -> int | None:
        """The oldest process whose command line matches, or None."""
        found = self.run(host, ["pgrep", "-o", "-f", pattern])
        return int(found.out) if found.ok else None

    def write_config(self, text: str, *hosts: str) -> None:
        """Write astraeus.toml on the given hosts, or on all."""
        self.on_each(hosts or self.hosts, lambda host: self.copy_in(host, TOML_PATH, text))

    def start_controller(self, config_toml: str | None = None, timeout: float = 15) -> int:
        """Start the controller on ctl as root, with `config_toml` as its file when given; its PID.

        Returns once it accepts connections. A controller that already runs is left alone, except where systemd
        started it at boot and there is a new configuration.
        """
        if config_toml is not None:
            self.write_config(config_toml, "ctl")
        if self.variant.systemd:
            verb = "start" if config_toml is None else "restart"
            self.run("ctl", ["systemctl", verb, "astraeus-controller"], check=True)
        elif running := self.controller_pid():
            return running
        else:
            self.background("ctl", [*CONTROLLER], CONTROLLER_LOG)
        probe = f"exec 3<>/dev/tcp/127.0.0.1/{REPORT_PORT}"
        wait_for(
            lambda: self.run("ctl", probe, timeout=5).ok,
            timeout,
            0.2,
            "astraeus-controller accepts connections",
            lambda: self.logs("ctl", CONTROLLER_LOG, lines=10),
        )
        pid = self.controller_pid()
        if pid is None:
            raise RuntimeError(f"astraeus-controller left: {self.logs('ctl', CONTROLLER_LOG, lines=10)}")
        return pid

    def controller_pid(self) -> int | None:
        return self.process_id("ctl", CONTROLLER_PATTERN)

    def kill_controller(self, signal: str = "TERM", timeout: float = 15) -> None:
        """End the controller and wait until it is gone; nothing happens where none runs."""
        self._kill("ctl", CONTROLLER_PATTERN, signal, timeout)

    def api(self, path: str, user: str = "root", timeout: float = 10) -> tuple[int, Any]:
        """Status and JSON body of the API's answer to GET `path`; (0, curl's words) without one."""
        socket_here = self._api_socket() if user == "root" else None
        if socket_here:
            return ask_socket(socket_here, path, timeout)
        url = f"http://localhost{path}"
        argv = ["curl", "-sS", "--unix-socket", API_SOCKET, "-w", "\n%{http_code}", url]
        result = self.run("ctl", argv, user=user, timeout=timeout)
        if result.rc:
            return 0, result.err.strip()
        body, _, status = result.out.rpartition("\n")
        return int(status), json.loads(body) if body.strip() else None

    def _api_socket(self) -> str | None:
        """The socket's path on this machine, where we may use it: asking it costs no process on ctl."""
        try:
            volume = self.client.volumes.get(f"{self.prefix}-run")
        except NotFound:
            return None
        path = os.path.join(volume.attrs["Mountpoint"], "api.sock")
        return path if os.access(path, os.W_OK) else None

    def controller_log(self, lines: int | None = None) -> str:
        if self.variant.systemd:
            command = ["journalctl", "-q", "-o", "cat", "-u", "astraeus-controller", "-n", str(lines or "all")]
            return self.run("ctl", command).out
        return self.logs("ctl", CONTROLLER_LOG, lines)

    def start_monitor(self, node: str) -> None:
        """Start the monitor as Prolog does, where none runs."""
        self.run(node, [START_MONITOR], check=True)

    def monitor_pid(self, node: str) -> int | None:
        return self.process_id(node, MONITOR_PATTERN)

    def kill_monitor(self, node: str, signal: str = "TERM", timeout: float = 15) -> None:
        """End the monitor on `node` and wait until it is gone; nothing happens where none runs."""
        self._kill(node, MONITOR_PATTERN, signal, timeout)

    def _kill(self, host: str, pattern: str, signal: str, timeout: float) -> None:
        pid = self.process_id(host, pattern)
        if pid is None:
            return
        self.run(host, ["kill", f"-{signal}", str(pid)])
        if signal in ("STOP", "CONT"):
            return
        wait_for(
            lambda: not self.run(host, ["test", "-d", f"/proc/{pid}"]).ok,
            timeout,
            0.1,
            f"process {pid} ({pattern}) on {host} ends",
        )
