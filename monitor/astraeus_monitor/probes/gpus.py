"""The child that asks the GPUs' drivers: NVIDIA's, else AMD's. It stays while a job here has GPUs, and every handle
of a driver ends with it."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Protocol

import msgspec

from ..sources.gpu import Answer
from .nvml import Nvml
from .nvml_abi import NoLibrary

ENCODER = msgspec.json.Encoder()
_PLACE = struct.Struct("=q")


class Driver(Protocol):
    """What asks one maker's driver."""

    def read(self, leave_out: set[int]) -> Answer:
        """All GPUs."""

    def close(self) -> None:
        """Let go of all handles."""


class Child:
    """``serve`` runs in the child; ``asked`` tells, in the monitor, at which GPU it is."""

    def __init__(self) -> None:
        self.at = mmap.mmap(-1, _PLACE.size)

    def asked(self) -> int | None:
        """The place, in the driver's order, of the GPU that has not answered; None: no GPU was asked."""
        place = _PLACE.unpack(self.at[:_PLACE.size])[0]
        return place - 1 if place else None

    def tell(self, place: int) -> None:
        """In the child: this GPU (place + 1) is asked; 0: none."""
        self.at[:_PLACE.size] = _PLACE.pack(place)

    def serve(self, request_fd: int, reply_fd: int) -> None:
        """For each line ``read [PLACE,…]`` (places to leave out) one line with all GPUs; ends with the pipe."""
        driver: Driver = Nvml(self.tell)
        self.tell(0)
        with os.fdopen(request_fd, "rb") as requests:
            for line in requests:
                left = {int(place) for word in line.split()[1:] for place in word.split(b",")}
                try:
                    answer = driver.read(left)
                except NoLibrary as none:
                    driver, answer = self._other(driver, left, str(none))
                data = memoryview(ENCODER.encode(answer) + b"\n")
                while data:
                    data = data[os.write(reply_fd, data):]
        driver.close()

    def _other(self, driver: Driver, left: set[int], none: str) -> tuple[Driver, Answer]:
        from .amd import Amd, NoAmd

        other = Amd(self.tell)
        try:
            return other, other.read(left)
        except NoAmd as fault:
            return driver, Answer(fault=f"{none}; {fault}")
