"""GPU source: mapping, clocks, and the child with a fake pynvml."""

from __future__ import annotations

import ctypes
import os
import sys
import time
import types

import pytest
from astraeus_monitor.sources import gpu


@pytest.mark.parametrize(("visible", "whole", "found"), [
    (["2"], [2, 3], [2]),                 # numbers of the node
    (["0"], [2, 3], [2]),                 # counted within the step's
    (["0,1"], [2, 3], [2, 3]),
    (["1"], [1, 2], [1, 2]),              # both readings are possible: all of them
    (["0", "1"], [0, 1], [0, 1]),         # two processes
    (["GPU-bb"], [0, 1], [1]),
    (["MIG-1"], [0, 1], [0, 1]),
    ([""], [0, 1], [0, 1]),
    ([], [0, 1, 2, 3], [0, 1, 2, 3]),
    (["0"], [], []),                      # a step without GPUs
])
def test_gpus_of_a_worker(visible: list[str], whole: list[int], found: list[int]) -> None:
    assert gpu.of_worker(whole, visible, {"GPU-aa": 0, "GPU-bb": 1}) == found


def test_clock() -> None:
    clock = gpu.GpuClock(3, 100)
    assert clock.record(110).idle_s is None  # not read yet
    clock.see(gpu.Reading(3, "GPU-x", 4), 115)
    assert (clock.record(120).idle_s, clock.record(120).ever_busy) == (20, False)
    clock.see(gpu.Reading(3, "GPU-x", 5), 130)
    assert (clock.record(130).idle_s, clock.record(130).ever_busy) == (0, True)
    clock.see(gpu.Reading(3, "", None, "GPU is lost"), 145)
    assert clock.record(150).busy is None
    assert clock.record(150).idle_s is None
    again = gpu.GpuClock(3, 500)
    again.load(clock.save())
    again.see(gpu.Reading(3, "GPU-x", 0), 600)
    assert (again.record(600).idle_s, again.record(600).ever_busy) == (470, True)


class FakeNvml(types.ModuleType):
    NVML_GPU_UTILIZATION_SAMPLES = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.now = int(time.time() * 1e6)
        # The buffer still holds what the job before did, 10 s ago.
        self.samples: dict[int, list[tuple[int, int]]] = {
            0: [(self.now - 10_000_000, 100), (self.now + 10, 3), (self.now + 20, 90), (self.now + 30, 0)], 1: []}
        self.rates = {0: 0, 1: 7}
        self.lost: set[int] = set()

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, place: int) -> int:
        return place

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        return 1 - handle  # the driver's order is not Slurm's

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetSamples(self, handle: int, kind: int, last: int) -> tuple[int, list[object]]:
        found = [s for s in self.samples[handle] if s[0] > last]
        if not found or handle in self.lost:
            raise self.NVMLError("Not Found")
        return 1, [types.SimpleNamespace(timeStamp=t, sampleValue=types.SimpleNamespace(uiVal=v))
                   for t, v in found]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> object:
        if handle in self.lost:
            raise self.NVMLError("GPU is lost")
        return types.SimpleNamespace(gpu=self.rates[handle])


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_highest_sample_since_the_last_look_else_the_rate(nvml: FakeNvml) -> None:
    driver = gpu._Driver()
    assert driver.read().gpus == [gpu.Reading(1, "GPU-0", 90), gpu.Reading(0, "GPU-1", 7)]
    nvml.samples[0].append((nvml.now + 40, 1))
    assert driver.read().gpus[0] == gpu.Reading(1, "GPU-0", 1)  # the 90 was told already
    nvml.lost.add(1)
    assert driver.read().gpus[1] == gpu.Reading(0, "GPU-1", None, "GPU is lost")


def test_the_child_answers_until_its_pipe_closes(nvml: FakeNvml) -> None:
    ask_out, ask_in = os.pipe()
    reply_out, reply_in = os.pipe()
    os.write(ask_in, b"read\nread\n")
    os.close(ask_in)
    gpu.serve(ask_out, reply_in)
    os.close(reply_in)
    with os.fdopen(reply_out, "rb") as answers:
        lines = answers.read().splitlines()
    assert [gpu.DECODER.decode(line).gpus[0].busy for line in lines] == [90, 0]


def test_no_driver_is_a_fault(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise nvml.NVMLError("NVML Shared Library Not Found")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    assert gpu._Driver().read() == gpu.Answer([], "NVML: NVML Shared Library Not Found")


class FakeLibrary:
    """The driver's library below nvidia-ml-py: fills the caller's buffer."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml, self.code, self.kind = nvml, 0, 1

    def nvmlDeviceGetSamples(self, handle: int, kind: object, last: ctypes.c_ulonglong, value_kind: object,
                             count: object, buffer: ctypes.Array[ctypes.c_ulonglong]) -> int:
        found = [s for s in self.nvml.samples[handle] if s[0] > last.value]
        if not found:
            return 6
        ctypes.cast(value_kind, ctypes.POINTER(ctypes.c_int))[0] = self.kind  # type: ignore[arg-type]
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = len(found)  # type: ignore[arg-type]
        for place, (stamp, value) in enumerate(found):
            buffer[2 * place] = stamp
            buffer[2 * place + 1] = value | 7 << 32  # the value's other half means nothing
        return self.code


def test_samples_by_one_call_into_our_own_buffer(nvml: FakeNvml) -> None:
    library = nvml.nvmlLib = FakeLibrary(nvml)  # type: ignore[attr-defined]
    driver = gpu._Driver()
    assert driver.read().gpus == [gpu.Reading(1, "GPU-0", 90), gpu.Reading(0, "GPU-1", 7)]
    nvml.samples[0].append((nvml.now + 40, 1))
    assert driver.read().gpus[0] == gpu.Reading(1, "GPU-0", 1)
    nvml.samples[0].append((nvml.now + 50, 33))
    library.kind = 0  # a double: the wrapper reads it
    assert driver.read().gpus[0] == gpu.Reading(1, "GPU-0", 33)
    nvml.samples[0].append((nvml.now + 60, 44))
    library.code = 3  # not supported: the wrapper is asked
    assert driver.read().gpus[0] == gpu.Reading(1, "GPU-0", 44)
    assert driver.read().gpus[0] == gpu.Reading(1, "GPU-0", 0)  # no sample since: the rate
