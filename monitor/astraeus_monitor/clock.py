"""The two clocks, in one place so that tests can hand in their own."""

from __future__ import annotations

import time


class Clock:
    """CLOCK_BOOTTIME for every duration; time of day only for people."""

    def boot(self) -> float:
        """Seconds since boot, time asleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()


def boot_id() -> str:
    """The kernel's id of this boot: CLOCK_BOOTTIME begins anew with it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
