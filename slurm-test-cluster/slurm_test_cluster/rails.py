"""RDMA rails on nodes that have none: a tree such as /sys, which the monitors of the cluster read."""

from __future__ import annotations

import shlex

from slurm_test_cluster.hosts import Hosts

SYSFS = "/run/fake-sysfs"
CLASS = f"{SYSFS}/class/infiniband"
HEALTHY = {"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "InfiniBand",
           "counters/symbol_error": "0", "counters/link_downed": "0", "hw_counters/packet_seq_err": "0",
           "hw_counters/out_of_sequence": "0"}


class Rails(Hosts):
    """Lay out and change the rails of nodes. Files are changed in one move, as sysfs never shows half a value."""

    def lay_rails(self, node: str, *devices: str, **files: str) -> None:
        """Give the node these adapters, of one port each: healthy, but for ``files`` (link_layer="Ethernet")."""
        lines = ["set -e"]
        for device in devices:
            lines += [f"mkdir -p {CLASS}/{device}/ports/1/counters {CLASS}/{device}/ports/1/hw_counters",
                      f"echo MT4129 > {CLASS}/{device}/hca_type", f"echo MT_0000000838 > {CLASS}/{device}/board_id",
                      *_writes(device, HEALTHY | files)]
        self.run(node, "\n".join(lines), check=True)

    def set_rail(self, node: str, device: str, files: dict[str, str]) -> None:
        """Change files of its port: ``{"state": "1: DOWN", "counters/symbol_error": "900"}``."""
        self.run(node, "\n".join(["set -e", *_writes(device, files)]), check=True)

    def remove_rails(self, *nodes: str) -> None:
        """The given nodes, or all, have none any more."""
        self.on_each(nodes or self.nodes, lambda node: self.run(node, ["rm", "-rf", SYSFS], check=True))


def _writes(device: str, files: dict[str, str]) -> list[str]:
    new = f"{SYSFS}/new"
    return [f"echo {shlex.quote(text)} > {new} && mv {new} {CLASS}/{device}/ports/1/{name}"
            for name, text in files.items()]
