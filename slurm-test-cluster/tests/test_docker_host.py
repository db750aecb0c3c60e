"""Starting Docker Engine after it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_test_cluster.docker_host import forget_dead


@pytest.mark.parametrize(("comm", "kept"), [("dockerd", True), ("bash", False), (None, False)])
def test_pid_file_of_a_dead_daemon_goes(tmp_path: Path, comm: str | None, kept: bool) -> None:
    pid_file = tmp_path / "docker.pid"
    pid_file.write_text("42\n")
    if comm:
        (tmp_path / "42").mkdir()
        (tmp_path / "42" / "comm").write_text(comm + "\n")
    forget_dead(pid_file, "dockerd", tmp_path)
    assert pid_file.exists() == kept


def test_no_pid_file_is_nothing(tmp_path: Path) -> None:
    forget_dead(tmp_path / "docker.pid", "dockerd", tmp_path)
