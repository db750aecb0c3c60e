"""What of a GPU is worth a line below the table of workers."""

from __future__ import annotations

from typing import Any

import pytest
from astraeus_cli.text import gpu_notes

WELL = {"index": 3, "busy": 98.0, "reasons": 4, "sm_mhz": 1700.0, "sm_max_mhz": 1980.0, "temp_c": 61.0,
        "slowdown_c": 90.0, "errors": {}, "xids": [], "nvlinks_down": [], "pcie_gen": 5, "pcie_gen_max": 5,
        "pcie_width": 16, "pcie_width_max": 16}


@pytest.mark.parametrize(("more", "said"), [
    ({}, ""),  # the software's power cap is the usual state of a GPU that works
    ({"reasons": 0x24, "sm_mhz": 1386.0, "temp_c": 92.0}, "GPU 3: 1386 of 1980 MHz, held by heat, 92 C"),
    ({"temp_c": 88.0}, "GPU 3: 1700 of 1980 MHz, 88 C"),
    ({"errors": {"ecc_corrected": 3, "remap_pending": 1}, "xids": [63, 94]},
     "GPU 3: ecc corrected 3, remap pending 1, Xid 63,94"),
    ({"nvlinks_down": [2], "pcie_width": 8}, "GPU 3: NVLink 2 down, PCIe x8 of x16"),
    ({"pcie_gen": 1}, "GPU 3: PCIe gen 1 of gen 5"),
    ({"pcie_gen": 1, "busy": 0.0}, ""),
    ({"reasons": None, "temp_c": None, "slowdown_c": None, "pcie_gen": None, "busy": None}, ""),
])
def test_notes(more: dict[str, Any], said: str) -> None:
    assert gpu_notes(WELL | more) == said


def test_a_controller_of_before() -> None:
    assert gpu_notes({"index": 0, "busy": 97.0}) == ""
