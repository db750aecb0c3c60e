"""What makes a job's stop file appear inside containers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from astraeus_controller import config
from astraeus_controller.selfwatch import coverage, health, metrics

ROOT = Path(__file__).parents[2]
ENROOT = ROOT / "packaging" / "enroot"
JOBS = "/run/astraeus/jobs"


def plain_lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_the_fstab_mounts_the_folder_where_the_plugin_says_the_file_is() -> None:
    [[source, target, kind, options]] = plain_lines(ENROOT / "50-astraeus.fstab")
    assert (source, target, kind) == (JOBS, JOBS, "none")
    assert '#define STATE_DIR "/run/astraeus"' in (ROOT / "spank" / "node.c").read_text()
    # nofail: a node that has seen no watched job has no such folder.
    assert {"bind", "ro", "nosuid", "nodev", "noexec", "x-create=dir", "nofail", "silent"} <= set(options.split(","))
    # enroot replaces ${…} in these files, in comments too.
    assert "$" not in (ENROOT / "50-astraeus.fstab").read_text()


def test_the_folder_is_made_at_boot_as_prolog_makes_it() -> None:
    assert plain_lines(ROOT / "packaging" / "tmpfiles.d" / "astraeus.conf") == [
        ["d", "/run/astraeus", "0755", "root", "root", "-"], ["d", JOBS, "0711", "root", "root", "-"]]


def hook(tmp: Path, environ: Path | None = None, **env: str) -> str:
    """What the hook adds to a container's environment."""
    environ = environ or tmp / "environment"
    subprocess.run([ENROOT / "50-astraeus.sh"], check=True, capture_output=True,
                   env={"PATH": os.environ["PATH"], "ENROOT_ENVIRON": str(environ), **env})
    return environ.read_text() if environ.is_file() else ""


def test_enroots_hook_hands_on_what_a_watched_job_has(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    stop = f"{tmp_path}/5/stop"
    assert hook(tmp_path, ASTRAEUS_STOP_FILE=stop, ASTRAEUS_RESTART_CAUSE="", ASTRAEUS_METRICS_PORT="9000",
                OTHER="x") == f"ASTRAEUS_STOP_FILE={stop}\n"
    (tmp_path / "environment").unlink()
    assert hook(tmp_path, ASTRAEUS_STOP_FILE=stop, ASTRAEUS_RESTART_COUNT="2", ASTRAEUS_RESTART_CAUSE="stalled") == (
        f"ASTRAEUS_STOP_FILE={stop}\nASTRAEUS_RESTART_COUNT=2\nASTRAEUS_RESTART_CAUSE=stalled\n")


@pytest.mark.parametrize("env", [
    {}, {"ASTRAEUS_STOP_FILE": ""}, {"ASTRAEUS_STOP_FILE": "stop"},
    {"ASTRAEUS_STOP_FILE": "/nonexistent/jobs/4/stop", "ASTRAEUS_RESTART_COUNT": "1"},
], ids=["not watched", "empty", "no path", "another job's"])
def test_enroots_hook_hands_on_nothing_else_and_never_fails(tmp_path: Path, env: dict[str, str]) -> None:
    assert hook(tmp_path, **env) == ""


def test_enroots_hook_never_fails_where_it_can_not_write(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    assert hook(tmp_path, tmp_path, ASTRAEUS_STOP_FILE=f"{tmp_path}/5/stop") == ""


def directives(name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (ROOT / "packaging" / name).read_text().splitlines()
                if "=" in line and not line.startswith("#"))


def test_the_controllers_unit_lets_it_do_what_it_does() -> None:
    unit = directives("astraeus-controller.service")
    assert "User" not in unit, "its actor decodes what nodes made for root"
    assert set(unit["CapabilityBoundingSet"].split()) == {"CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
    assert (unit["Type"], int(unit["WatchdogSec"]) >= 2 * health.SWEEP_LATE_S) == ("notify", True)
    assert unit["StateDirectory"] == Path(config.Controller().state).name
    [[kind, user, *_]] = [line[:2] for line in plain_lines(ROOT / "packaging" / "sysusers.d" / "astraeus.conf")]
    assert (kind, user) == ("u", config.Trust().user)


def test_alerts_are_about_metrics_that_there_are() -> None:
    said = metrics.text(health.Seen(0, 1, 1, 1), coverage.Coverage(1, 0, {"no monitor": 1}), [], 1, 1, 0)
    rules = (ROOT / "packaging" / "prometheus" / "astraeus.rules.yml").read_text()
    named = set(re.findall(r"astraeus_\w+", rules))
    assert len(named) == 5
    assert named <= set(re.findall(r"(?m)^(astraeus_\w+)", said))
