"""Frozen cgroups of version 1, version 2, and of a host that has both."""

from __future__ import annotations

from pathlib import Path

import pytest
from astraeus_monitor.host.cgroups import CgroupFiles, cgroups_of
from astraeus_monitor.host.frozen import is_frozen
from astraeus_monitor.host.procfs import Proc

JOB = "/slurm_c1/uid_1001/job_7/step_0"


@pytest.mark.parametrize(("lines", "file", "text", "frozen"), [
    (f"6:freezer:{JOB}\n0::/\n", f"freezer{JOB}/freezer.state", "FROZEN\n", True),
    (f"6:freezer:{JOB}\n0::/\n", f"freezer{JOB}/freezer.state", "THAWED\n", False),
    (f"0::{JOB}\n", JOB[1:] + "/cgroup.events", "populated 1\nfrozen 1\n", True),
    (f"0::{JOB}\n", JOB[1:] + "/cgroup.events", "populated 1\nfrozen 0\n", False),
    # Version 1's freezer is named before, and mounted nowhere.
    (f"6:freezer:/\n0::{JOB}\n", JOB[1:] + "/cgroup.events", "populated 1\nfrozen 1\n", True),
    (f"6:freezer:/\n0::{JOB}\n", f"unified{JOB}/cgroup.events", "populated 1\nfrozen 1\n", True),
    (f"0::/x\n6:cpu,freezer:{JOB}\n", f"freezer{JOB}/freezer.state", "FROZEN\n", True),
    (f"6:freezer:{JOB}\n0::/\n", "elsewhere", "FROZEN\n", False),
])
def test_frozen(tmp_path: Path, lines: str, file: str, text: str, frozen: bool) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(lines)
    place = tmp_path / "cgroup" / file
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert is_frozen(cgroups_of(Proc(str(tmp_path / "proc")), 7), CgroupFiles(str(tmp_path / "cgroup"))) is frozen
    assert is_frozen(cgroups_of(Proc(str(tmp_path / "proc")), 8), CgroupFiles(str(tmp_path / "cgroup"))) is False
