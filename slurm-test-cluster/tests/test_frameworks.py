"""What pip's words mean when a framework can't be had."""

from __future__ import annotations

import sys

import pytest
from slurm_test_cluster.frameworks import INSIDE, PACKAGES, WRAPPER, NoSuchVersion, NotToBeHad, why_not

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NONE = ("ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: 2.11.0)\n"
        "ERROR: No matching distribution found for torch==2.13.0+cpu\n")


@pytest.mark.parametrize(("stderr", "kind", "said"), [
    (NONE, NoSuchVersion, f"pip has no torch==2.13.0+cpu for Python {PYTHON}: "),
    # Without a way to the index pip ends in the same words: that is no reason to skip a scenario.
    ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n" + NONE, NotToBeHad,
     "pip could not fetch torch==2.13.0+cpu: ERROR: No matching distribution found"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", NotToBeHad,
     "No space left on device"),
    ("", NotToBeHad, "it said nothing"),
])
def test_why_a_framework_is_not_there(stderr: str, kind: type, said: str) -> None:
    problem = why_not(["torch==2.13.0+cpu"], stderr)
    assert type(problem) is kind
    assert said in str(problem)


def test_no_version_draws_cuda_after_it() -> None:
    assert PACKAGES["torch"] == ("torch==2.13.0+cpu",)
    assert f"PYTHONPATH={INSIDE}/NAME/packages" in WRAPPER
