"""Things that go wrong: a node off the network or without power, a GPU in trouble."""

from __future__ import annotations

import time
from collections.abc import Mapping

from slurm_test_cluster.hosts import Hosts

GPU_STATE = "/run/fake-nvml/state"


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
