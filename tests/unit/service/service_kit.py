"""What the controller's tests share: a Slurm in this process, findings, a clock that tests move."""

from __future__ import annotations

from typing import Any

import fake_slurm
from astraeus_controller.slurm.command import Away, Commands, Refused, _fault
from astraeus_protocol.findings import Finding

SINCE = 1796047320.0
"""2026-11-30 14:02 UTC"""


class FakeCommands(Commands):
    """Runs the fake Slurm without a process."""

    def __init__(self, slurm: fake_slurm.FakeSlurm) -> None:
        super().__init__()
        self.slurm = slurm

    async def run(self, *args: str, timeout_s: float | None = None) -> str:
        try:
            return self.slurm.run(list(args))
        except fake_slurm.Failed as fault:
            raise _fault(args[0], 1, str(fault).encode(), []) from None


class VirtualTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def steady(self) -> float:
        return self.now

    def wall(self) -> float:
        return SINCE + 740 + self.now - 1000

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def finding(**values: Any) -> Finding:
    return Finding(**({
        "key": "test/123/0/0/stalled/123-5", "kind": "stalled", "rule": "collective_stuck", "run": "123",
        "run_name": "llm", "job": 123, "restarts": 0, "step": "0", "worker": "123-5", "rank": 5, "node": "c3",
        "pid": 4242, "since": SINCE, "detected_at": SINCE + 720,
        "said": "no output since 14:02 UTC; rank 5 (node c3, PID 4242) is stopped (state T) for 40s",
        "action": "restart"} | values))


__all__ = ["SINCE", "Away", "FakeCommands", "Refused", "VirtualTime", "finding"]
