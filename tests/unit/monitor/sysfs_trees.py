"""Fake trees of /sys with RDMA adapters and GPUs, laid out from what is known of real nodes."""

from __future__ import annotations

import os
from pathlib import Path

COUNTERS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards")
HW = ("packet_seq_err", "out_of_sequence", "roce_adp_retrans", "req_transport_retries_exceeded")


class Sys:
    """A tree below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        """A file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def rail(self, device: str, rate: str = "400 Gb/sec (4X NDR)", *, port: int = 1, state: str = "4: ACTIVE",
             phys: str = "5: LinkUp", layer: str = "InfiniBand", pci: str = "", board: str = "MT_0000000838",
             hca: str = "MT4129", numa: int = 0, **counters: object) -> None:
        """An adapter's port. ``pci``: its path below devices, such as ``pci0000:15/0000:15:01.0/0000:19:00.0``."""
        home = self.root / "class/infiniband" / device
        if not home.exists():
            path = pci or f"pci0000:00/0000:{len(os.listdir(home.parent)) if home.parent.exists() else 0:02x}:00.0"
            real = self.root / "devices" / path / "infiniband" / device
            real.mkdir(parents=True)
            home.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(os.path.relpath(real, home.parent), home)
            os.symlink("../..", real / "device")
            self.write(f"devices/{path}/numa_node", numa)
            self.write(f"devices/{path}/vendor", "0x15b3")
            self.write(f"devices/{path}/device", "0x1021")
            for name, text in (("board_id", board), ("hca_type", hca)):
                if text:
                    self.write(f"class/infiniband/{device}/{name}", text)
        self.port(device, port, rate=rate, state=state, phys_state=phys, link_layer=layer)
        self.count(device, port, **{name: 0 for name in (*COUNTERS, *HW)} | counters)

    def port(self, device: str, port: int = 1, **files: str) -> None:
        """Change a port's files."""
        for name, text in files.items():
            self.write(f"class/infiniband/{device}/ports/{port}/{name}", text)

    def count(self, device: str, port: int = 1, **counters: object) -> None:
        """Change its counters."""
        for name, value in counters.items():
            self.write(f"class/infiniband/{device}/ports/{port}/{'hw_counters' if name in HW else 'counters'}/{name}",
                       value)

    def gpu(self, pci: str, numa: int = 0) -> None:
        """A GPU that the driver holds, by its path below devices."""
        self.write(f"devices/{pci}/numa_node", numa)
        drivers = self.root / "bus/pci/drivers/nvidia"
        drivers.mkdir(parents=True, exist_ok=True)
        os.symlink(self.root / "devices" / pci, drivers / pci.rpartition("/")[2])


def h100(root: Path) -> Sys:
    """A healthy node of eight rails and a RoCE bond for storage: a counter that is full for months, gaps in numbers."""
    tree = Sys(root)
    for number in (0, 1, 4, 5, 6, 7, 8, 9):
        tree.rail(f"mlx5_{number}", link_downed=255 if number == 1 else 0)
    tree.rail("mlx5_bond_0", "200 Gb/sec (2X NDR)", layer="Ethernet")
    return tree
