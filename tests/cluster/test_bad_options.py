"""A bad value is refused where it is typed, with one sentence, and nothing is submitted."""

from __future__ import annotations

import zlib

import pytest

from .conftest import Site

BAD = {
    "--stall-after=abc": "15m",
    "--stall-after=900": "900s",
    "--stall-after=5s": "30s",
    "--stall-after=8d": "7d",
    "--straggler-ratio=0.9": "1.01",
    "--metrics-port=0": "65535",
    "--no-stall-watch --stall-after=1h": "--stall-after",
}


@pytest.mark.parametrize("options", BAD)
@pytest.mark.parametrize("tool", ["sbatch", "srun", "directive"])
def test_refused_with_one_sentence(site: Site, tool: str, options: str) -> None:
    name = f"bad-{zlib.crc32(f'{tool} {options}'.encode())}"
    if tool == "sbatch":
        command = f"sbatch -J {name} {options} --wrap hostname"
    elif tool == "srun":
        command = f"srun -J {name} -n1 {options} hostname"
    else:
        lines = "".join(f"#SBATCH {option}\\n" for option in options.split())
        command = f"printf '#!/bin/sh\\n{lines}hostname\\n' | sbatch -J {name}"
    done = site.cluster.run("ctl", command, user="alice")
    assert done.rc != 0
    said = [line for line in done.err.splitlines() if line.strip() and ": error: Invalid --" not in line]
    ours = [line for line in said if ": error: --" in line]  # Slurm adds its own line that the option is invalid
    assert len(ours) == 1, done.err
    assert said == ours, done.err
    assert BAD[options] in ours[0]
    assert not site.cluster.run("ctl", ["squeue", "-h", "-n", name, "-o", "%A"]).out.strip()
