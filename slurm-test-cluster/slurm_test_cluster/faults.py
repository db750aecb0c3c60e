"""Things that go wrong: a node off the network or without power, a daemon of Slurm's away, a GPU in trouble, a store
that does not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from slurm_test_cluster.hosts import Hosts
from slurm_test_cluster.waiting import wait_for

GPU_STATE = "/run/fake-nvml/state"

STORE = "/mnt/store"
STORE_SOURCE = "store1:/export"
# What is stored lies in the shared home, so that all nodes see the same files.
STORE_FILES = "/home/.store"


def parse_gpu_state(text: str) -> dict[str, str]:
    """The fake NVML's state file as {"gpu.0.util": "97", ...}."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def changed_gpu_state(
    old: Mapping[str, str], index: int, changes: Mapping[str, object], now: float
) -> dict[str, str]:
    """`old` with one GPU's keys changed (None: unset); a new `util` keeps the old one for earlier samples."""
    new = dict(old)
    prefix = f"gpu.{index}."
    for key, value in changes.items():
        if key == "util" and str(value) != old.get(prefix + "util", "0"):
            new[prefix + "util_before"] = old.get(prefix + "util", "0")
            new[prefix + "util_since"] = f"{now:.3f}"
        if value is None:
            new.pop(prefix + key, None)
        else:
            new[prefix + key] = str(int(value) if isinstance(value, bool) else value)
    return new


class Faults(Hosts):
    """Make a fault and take it back."""

    def cut_network(self, node: str) -> None:
        """Silently drop every packet of `node` until heal_network; commands run there all the same."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self.run(node, ["iptables", "-w", "-I", chain, "1", way, "eth0", "-j", "DROP"], check=True)

    def heal_network(self, node: str) -> None:
        """Take the cut back; nothing happens where there is none."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            while self.run(node, ["iptables", "-w", "-D", chain, way, "eth0", "-j", "DROP"]).ok:
                pass

    def stop_slurmctld(self) -> None:
        """End slurmctld; it has saved its state when this returns."""
        self._end_daemon("ctl", "slurmctld")

    def start_slurmctld(self, timeout: float = 30) -> None:
        """Start it again; it answers when this returns."""
        self.run("ctl", ["slurmctld", "-i"], check=True)
        wait_for(lambda: self.run("ctl", ["scontrol", "ping"]).ok, timeout, 0.3, "slurmctld answers")

    def stop_slurmd(self, node: str) -> None:
        """End slurmd; the steps of its jobs run on."""
        self._end_daemon(node, "slurmd")

    def start_slurmd(self, node: str) -> None:
        self.run(node, ["slurmd"], check=True)

    def _end_daemon(self, host: str, name: str) -> None:
        pid = self.run(host, ["cat", f"/run/{name}.pid"], check=True).out.strip()
        self.run(host, ["kill", pid], check=True)
        wait_for(
            lambda: not self.run(host, ["test", "-d", f"/proc/{pid}"]).ok, 60, 0.2, f"{name} on {host} ends"
        )

    def power_off(self, node: str) -> None:
        """Everything on `node` ends at once, and its connections hang."""
        self.cut_network(node)
        self.container(node).kill()

    def power_on(self, node: str) -> None:
        """Boot `node` again: what lay in a tmpfs (/run in the variant systemd) is gone."""
        self.container(node).start()

    def set_gpu(self, node: str, index: int, **state: object) -> None:
        """Set keys of one GPU (fake-nvml/README.md): set_gpu("c1", 0, util=97, temp=61); None unsets one."""
        old = parse_gpu_state(self.logs(node, GPU_STATE))
        new = changed_gpu_state(old, index, state, time.time())
        self._write_gpu_state(node, "".join(f"{key} = {value}\n" for key, value in sorted(new.items())))

    def reset_gpus(self, *nodes: str) -> None:
        """Back to healthy and idle on the given nodes, or on all."""
        self.on_each(nodes or self.nodes, lambda node: self._write_gpu_state(node, ""))

    def _write_gpu_state(self, node: str, text: str) -> None:
        self.copy_in(node, GPU_STATE + ".new", text)
        self.run(node, ["mv", GPU_STATE + ".new", GPU_STATE], check=True)

    # A FUSE file system named like an NFS export. Its server on each node is storefs; stopped, it answers nobody.

    def mount_store(self, nodes: Sequence[str] | None = None) -> None:
        """Mount store1:/export at /mnt/store, for all users, where it is not yet; it answers when this returns."""
        self.on_each(self._chosen(nodes), self._mount_store)

    def hang_store(self, nodes: Sequence[str] | None = None) -> None:
        """A second from now, on all nodes at once, until heal_store: whoever asks the store waits.

        One after the other, the first node's rank was often the only one that asked: the others waited for it.
        """
        left = f"$(awk -v at={time.time() + 1:.3f} -v now=$(date +%s.%N) 'BEGIN {{ print at > now ? at - now : 0 }}')"
        self.on_each(self._chosen(nodes), lambda node: self.run(
            node, ["sh", "-c", f"sleep {left}; pkill -STOP -x storefs"], check=True))

    def heal_store(self, nodes: Sequence[str] | None = None) -> None:
        """It answers again, those too who have waited. Nothing happens where it is not mounted."""
        self.on_each(self._chosen(nodes), lambda node: self.run(node, ["pkill", "-CONT", "-x", "storefs"]))

    def unmount_store(self, nodes: Sequence[str] | None = None) -> None:
        """Take it away, hung or not: who still waits gets an error. Nothing happens where it is not mounted."""
        self.on_each(self._chosen(nodes), self._unmount_store)

    def store_mounted(self, node: str) -> bool:
        """Whether the node has it, hung or not: asks the kernel, not the store."""
        return f" {STORE} " in self.run(node, ["cat", "/proc/self/mountinfo"], check=True).out

    def _chosen(self, nodes: Sequence[str] | None) -> list[str]:
        return self.nodes if nodes is None else list(nodes)

    def _mount_store(self, node: str) -> None:
        if self.store_mounted(node):
            self.heal_store([node])
            return
        if self.run(node, ["test", "-c", "/dev/fuse"]).rc:
            raise RuntimeError("no store without FUSE: load it on this machine (modprobe fuse) and rebuild the cluster")
        self.run(node, ["mkdir", "-p", "-m", "1777", STORE, STORE_FILES], check=True)
        # In the foreground and of its own session: what starts it here ends with the command.
        options = f"allow_other,default_permissions,fsname={STORE_SOURCE},subtype=storefs"
        self.background(node, ["storefs", STORE_FILES, STORE, "-f", "-o", options], "/var/log/store.log")
        wait_for(lambda: self.store_mounted(node), 10, 0.1, f"the store mounted on {node}",
                 lambda: self.logs(node, "/var/log/store.log"))

    def _unmount_store(self, node: str) -> None:
        if self.store_mounted(node):
            self.run(node, ["umount", "-l", STORE], check=True)
        self.run(node, ["pkill", "-KILL", "-x", "storefs"])
