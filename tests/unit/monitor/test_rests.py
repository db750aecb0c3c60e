"""Whether a batch script runs anything."""

from __future__ import annotations

import pytest
from astraeus_monitor.host.tree import ProcLook
from astraeus_monitor.sources.rests import Rests


def tree(*names: str) -> list[ProcLook]:
    """A batch script and what it started; ``defunct`` is a zombie."""
    return [ProcLook(10, 1, 9, "slurm_script", exe="bash"), *(
        ProcLook(11 + at, 1, 10, name, state="Z" if name == "defunct" else "S", exe=name)
        for at, name in enumerate(names))]


@pytest.mark.parametrize(("names", "rests"), [
    ((), True), (("sleep",), True), (("srun", "srun"), True), (("tail",), True), (("nvidia-smi", "tee"), True),
    (("timeout", "sleep"), True), (("defunct",), True), (("python3.11",), False), (("rsync",), False),
    (("cat",), False), (("tar",), False), (("sleep", "apptainer"), False)])
def test_what_only_waits(names: tuple[str, ...], *, rests: bool) -> None:
    seen = Rests()
    assert seen.seconds(100) is None
    seen.see(tree(*names), 100)
    assert seen.seconds(160) == (60 if rests else 0)


def test_it_begins_anew() -> None:
    seen = Rests()
    for at, names in ((100, ("sleep",)), (115, ("python",)), (130, ("sleep",)), (145, ("sleep",))):
        seen.see(tree(*names), at)
    assert seen.seconds(150) == 20
    seen.see([], 160)
    assert seen.seconds(160) is None, "its task is gone"
