"""GPU source: which GPUs are a worker's, clocks and deltas, the child with a fake of the driver's library."""

from __future__ import annotations

import ctypes
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
from astraeus_monitor.probes import gpus, nvml, nvml_abi
from astraeus_monitor.probes.amd import Amd
from astraeus_monitor.sources import gpu
from astraeus_monitor.sources.gpu_which import Place, by_processes, of_worker

UUIDS: dict[str, Place] = {"GPU-aa": (0, ""), "GPU-bb": (1, ""), "MIG-11": (1, "MIG-11"), "MIG-12": (1, "MIG-12")}


@pytest.mark.parametrize(("visible", "whole", "found"), [
    (["2"], [2, 3], [2]),                 # numbers of the node
    (["0"], [2, 3], [2]),                 # counted within the step's
    (["0,1"], [2, 3], [2, 3]),
    (["1"], [1, 2], [1, 2]),              # both readings are possible: all of them
    (["0", "1"], [0, 1], [0, 1]),         # two processes
    (["GPU-bb"], [0, 1], [1]),
    (["GPU-"], [0, 1], [0, 1]),           # the beginning of two
    (["MIG-9"], [0, 1], [0, 1]),
    ([""], [0, 1], [0, 1]),
    ([], [0, 1, 2, 3], [0, 1, 2, 3]),
    (["0"], [], []),                      # a step without GPUs
])
def test_gpus_of_a_worker(visible: list[str], whole: list[int], found: list[int]) -> None:
    assert of_worker(whole, visible, UUIDS).places == tuple((index, "") for index in found)


def test_an_instance_is_the_workers_by_its_uuid() -> None:
    assert of_worker([0], ["MIG-12"], UUIDS).places == ((1, "MIG-12"),)


def test_where_nothing_is_bound_the_drivers_processes_tell() -> None:
    assert by_processes([0, 1, 2], {40, 41}, {0: [9], 1: [41], 2: []}) == [1]
    assert by_processes([0, 1], {40}, {0: [9], 1: None}) == []  # one that is not known may be the worker's


def test_clock() -> None:
    clock = gpu.GpuClock(3, 100)
    assert clock.record(110).idle_s is None  # not read yet
    clock.see(gpu.Reading(3, "GPU-x", 4), 115)
    assert (clock.record(120).idle_s, clock.record(120).ever_busy) == (20, False)
    clock.see(gpu.Reading(3, "GPU-x", 5), 130)
    assert (clock.record(130).idle_s, clock.record(130).ever_busy) == (0, True)
    clock.see(gpu.Reading(3, fault="the GPU is lost"), 145)
    told = clock.record(150)
    assert (told.busy, told.idle_s, told.temp_c, told.unknown) == (None, None, None, {"busy": "the GPU is lost"})
    again = gpu.GpuClock(3, 500)
    again.load(clock.save())
    again.see(gpu.Reading(3, "GPU-x", 0), 600)
    assert (again.record(600).idle_s, again.record(600).ever_busy) == (470, True)


def test_instances_have_no_use_but_a_clock_and_power() -> None:
    clock = gpu.GpuClock(0, 100)
    clock.see(gpu.Reading(0, "GPU-x", None, power_w=432.0, unknown={"busy": nvml.MIG_BUSY},
                          slow=gpu.Slow(mig=["MIG-1"])), 115)
    told = clock.record(120, "MIG-1")
    assert (told.busy, told.idle_s, told.mig, told.power_w) == (None, None, "MIG-1", 432.0)
    assert clock.fault == told.unknown["busy"] == nvml.MIG_BUSY


def test_what_grew_in_this_attempt() -> None:
    clock = gpu.GpuClock(0, 0)

    def see(now: float, **slow: Any) -> None:
        clock.see(gpu.Reading(0, "GPU-x", 90, slow=gpu.Slow(**slow)), now)

    see(15, counts={"ecc_corrected": 7, "remapped_rows": 1}, held={"sw_thermal": 5_000_000_000})
    assert (clock.record(15).errors, clock.record(15).held_s) == ({}, {})  # of jobs before
    see(75, counts={"ecc_corrected": 9, "remapped_rows": 1, "remap_pending": 1}, held={"sw_thermal": 7_500_000_000})
    again = gpu.GpuClock(0, 80)
    again.load(clock.save())
    clock = again
    see(135, counts={"ecc_corrected": 2, "remap_pending": 1})  # the driver was loaded anew
    see(195, counts={"ecc_corrected": 3, "remap_pending": 1})
    assert clock.record(195).errors == {"ecc_corrected": 3, "remap_pending": 1}
    assert clock.record(195).held_s == {"sw_thermal": 2.5}


def test_usual_power_is_of_progress_only_and_survives() -> None:
    clock = gpu.GpuClock(0, 0)
    for n in range(19):
        clock.see(gpu.Reading(0, "", 99, power_w=600.0 + n), n, progresses=True)
        clock.see(gpu.Reading(0, "", 99, power_w=200.0), n)                     # it waits
        clock.see(gpu.Reading(0, "", 0, power_w=90.0), n, progresses=True)      # it loads data
    assert clock.record(20).power_usual_w is None
    clock.see(gpu.Reading(0, "", 99, power_w=700.0), 20, progresses=True)
    assert clock.record(20).power_usual_w == 609.5
    again = gpu.GpuClock(0, 30)
    again.load(clock.save())
    assert again.record(30).power_usual_w == 609.5
    for n in range(100):
        again.see(gpu.Reading(0, "", 99, power_w=500.0), 40 + n, progresses=True)
    assert (again.record(200).power_usual_w, len(again.powers)) == (500.0, gpu.USUAL_MAX)


class FakeLibrary:
    """The driver's library: two GPUs whose minor numbers are not in its order. ``told`` holds other answers by call."""

    def __init__(self) -> None:
        self.now = int(time.time() * 1e6)
        # The buffer still holds what the job before did, 10 s ago.
        self.buffer: dict[int, list[tuple[int, int]]] = {
            1: [(self.now - 10_000_000, 100), (self.now + 10, 3), (self.now + 20, 90), (self.now + 30, 0)], 2: []}
        self.told: dict[str, Callable[..., int] | int] = {}
        self.kind, self.open = 1, 0
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        own = getattr(type(self), f"_{name}", None)
        if own is None and name not in self.told:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.asked.append(name)
            known = self.told.get(name, own)
            return known if isinstance(known, int) else known(self, *args)
        return call

    def _nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def _nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def _nvmlDeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = 2
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, place: int, out: Any) -> int:
        out._obj.value = place + 1
        return 0

    def _nvmlDeviceGetMinorNumber(self, handle: Any, out: Any) -> int:
        out._obj.value = 2 - handle.value
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, out: Any, size: Any) -> int:
        out.value = b"GPU-%d" % handle.value
        return 0

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, out: Any) -> int:
        out[0] = {1: 0, 2: 7}[handle.value]
        return 0

    def _nvmlDeviceGetSamples(self, handle: Any, kind: int, last: Any, value_kind: Any, count: Any, out: Any) -> int:
        found = [s for s in self.buffer[handle.value] if s[0] > last.value]
        if not found:
            return 6
        value_kind._obj.value, count._obj.value = self.kind, len(found)
        for place, (stamp, value) in enumerate(found):
            out[2 * place] = stamp
            out[2 * place + 1] = value | 7 << 32 if self.kind == 1 else value  # the other half means nothing
        return 0


def number(value: int) -> Callable[..., int]:
    def call(self: FakeLibrary, *args: Any) -> int:
        args[-1]._obj.value = value
        return 0
    return call


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
def driver(library: FakeLibrary) -> nvml.Nvml:
    return nvml.Nvml(load=lambda: library)


def busy(answer: gpu.Answer) -> list[tuple[int, float | None, str]]:
    return [(one.index, one.busy, one.fault or one.unknown.get("busy", "")) for one in answer.gpus]


def test_highest_sample_since_the_last_look_else_the_rate(library: FakeLibrary, driver: nvml.Nvml) -> None:
    assert busy(driver.read()) == [(1, 90, ""), (0, 7, "")]
    library.buffer[1].append((library.now + 40, 1))
    assert busy(driver.read())[0] == (1, 1, "")  # the 90 was told already
    library.kind = 3
    library.buffer[1] += [(library.now + 50, 33), (library.now + 60, 9223372036854775794), (library.now + 70, 1234)]
    assert busy(driver.read())[0] == (1, 33, "")  # blanks and nonsense beside a good one
    library.buffer[1].append((library.now + 80, 4294967295))
    assert busy(driver.read())[0] == (1, None, "the driver told 4294967295 %")
    driver.close()
    assert library.open == 0


@pytest.mark.parametrize(("call", "answer", "what", "why"), [
    ("nvmlDeviceGetPowerUsage", 3, "power_w", "not available on this GPU"),
    ("nvmlDeviceGetPowerUsage", number(4294967295), "power_w", "the driver told 4294967295"),
    ("nvmlDeviceGetTemperature", number(255), "temp_c", "the driver told 255"),
    ("nvmlDeviceGetCurrentClocksEventReasons", number(9223372036854775794), "reasons",
     "the driver told 9223372036854775794"),
    ("nvmlDeviceGetUtilizationRates", 3, "busy", "not available on this GPU"),
    ("nvmlDeviceGetClockInfo", 999, "sm_mhz", "unknown error of the driver"),
    ("nothing", 0, "sm_mhz", "this driver is too old to tell"),
])
def test_what_is_not_told_is_unknown_with_its_reason(library: FakeLibrary, driver: nvml.Nvml, call: str, answer: Any,
                                                     what: str, why: str) -> None:
    library.told[call] = answer
    second = driver.read().gpus[1]
    assert (getattr(second, what), second.unknown[what]) == (None, why)
    assert not second.fault


@pytest.mark.parametrize(("code", "why"), [(15, "the GPU is lost"), (16, "the GPU must be reset")])
def test_a_gpu_that_is_gone(library: FakeLibrary, driver: nvml.Nvml, code: int, why: str) -> None:
    """At the first question, and in the middle; its neighbour is told."""
    meet = FakeLibrary._nvmlDeviceGetHandleByIndex_v2

    def lost(self: FakeLibrary, place: int, out: Any) -> int:
        return code if place == 0 else meet(self, place, out)
    library.told["nvmlDeviceGetHandleByIndex_v2"] = lost
    assert busy(driver.read()) == [(1, None, why), (0, 7, "")]
    library.told = {"nvmlDeviceGetTemperature": code}
    driver.close()
    assert busy(driver.read()) == [(1, None, why), (0, None, why)]


def test_instances(library: FakeLibrary, driver: nvml.Nvml) -> None:
    """What the driver calls their use is not believed: a constant 0 at full load."""
    def mode(self: FakeLibrary, handle: Any, now: Any, then: Any) -> int:
        ctypes.cast(now, ctypes.POINTER(ctypes.c_uint))[0] = 1
        return 0

    def instance(self: FakeLibrary, handle: Any, place: int, out: Any) -> int:
        out._obj.value = 10 * handle.value + place
        return 0 if place < 1 else 6
    library.told = {"nvmlDeviceGetMigMode": mode, "nvmlDeviceGetMaxMigDeviceCount": number(7),
                    "nvmlDeviceGetMigDeviceHandleByIndex": instance, "nvmlDeviceGetPowerUsage": number(432_210)}
    first = driver.read().gpus[0]
    assert first.slow
    assert (first.busy, first.unknown["busy"], first.power_w) == (None, nvml.MIG_BUSY, 432.2)
    assert first.slow.mig == ["GPU-10"]


def test_what_seldom_changes_is_read_each_minute(library: FakeLibrary, driver: nvml.Nvml) -> None:
    """And a driver that was loaded anew is opened anew."""
    assert driver.read().gpus[0].slow
    library.asked.clear()
    assert driver.read().gpus[0].slow is None
    assert len(library.asked) <= 4
    driver.slow_at -= 60
    assert driver.read().gpus[0].slow
    library.told["nvmlDeviceGetUtilizationRates"] = 1
    driver.read()
    library.told.clear()
    assert busy(driver.read())[1] == (0, 7, "")
    assert library.asked.count("nvmlInit_v2") == 1


def test_no_driver_is_a_fault(library: FakeLibrary, driver: nvml.Nvml) -> None:
    library.told["nvmlInit_v2"] = 9
    assert driver.read() == gpu.Answer([], "NVML: the NVIDIA driver is not loaded")


def test_the_child_answers_until_its_pipe_closes(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves out the GPU at which it hung."""
    monkeypatch.setattr(nvml.Nvml, "__init__", _with(library, nvml.Nvml.__init__))
    ask_out, ask_in = os.pipe()
    reply_out, reply_in = os.pipe()
    os.write(ask_in, b"read\nread 0\n")
    os.close(ask_in)
    child = gpus.Child()
    child.serve(ask_out, reply_in)
    os.close(reply_in)
    with os.fdopen(reply_out, "rb") as answers:
        first, second = (gpu.DECODER.decode(line) for line in answers.read().splitlines())
    assert busy(first)[0] == (1, 90, "")
    assert busy(second) == [(1, None, "driver not answering"), (0, 7, "")]
    assert (child.asked(), library.open) == (None, 0)


def _with(library: FakeLibrary, init: Any) -> Any:
    return lambda self, at: init(self, at, lambda: library)


def amdsmi(**more: Any) -> types.ModuleType:
    module = types.ModuleType("amdsmi")
    calls = {
        "init": lambda: None, "shut_down": lambda: None, "get_processor_handles": lambda: ["a"],
        "get_gpu_device_uuid": lambda h: "40ff-a", "get_gpu_activity": lambda h: {"gfx_activity": 97},
        "get_clock_info": lambda h, kind: {"clk": 1900, "max_clk": 2100},
        "get_temp_metric": lambda h, sensor, metric: 110 if metric == "critical" else 71,
        "get_power_info": lambda h: {"current_socket_power": "N/A", "average_socket_power": 540},
        "get_power_cap_info": lambda h: {"power_cap": 750_000_000},
        "get_violation_status": lambda h: {"active_ppt_pwr": True, "active_prochot_thrm": "N/A"},
        "get_pcie_info": lambda h: {"pcie_static": {"max_pcie_width": 16, "pcie_interface_version": 5},
                                    "pcie_metric": {"pcie_width": 8, "pcie_speed": 16000}},
        "get_gpu_total_ecc_count": lambda h: {"correctable_count": 3, "uncorrectable_count": 0},
        "get_gpu_process_list": lambda h: [{"pid": 42, "name": "python"}]} | more
    for name, call in calls.items():
        if call is not None:
            setattr(module, f"amdsmi_{name}", call)
    module.AmdSmiClkType = types.SimpleNamespace(GFX="gfx")  # type: ignore[attr-defined]
    module.AmdSmiTemperatureType = types.SimpleNamespace(HOTSPOT="hot")  # type: ignore[attr-defined]
    module.AmdSmiTemperatureMetric = types.SimpleNamespace(  # type: ignore[attr-defined]
        CURRENT="now", CRITICAL="critical")
    return module


def test_amd_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi())
    assert Amd().read().gpus == [gpu.Reading(
        0, "40ff-a", 97.0, sm_mhz=1900, reasons=4, temp_c=71, power_w=540, slow=gpu.Slow(
            sm_max_mhz=2100, slowdown_c=110, limit_w=750, pcie_gen=4, pcie_gen_max=5, pcie_width=8,
            pcie_width_max=16, pids=[42], counts={"ecc_corrected": 3, "ecc_uncorrected": 0}))]


def test_amd_in_odd_states(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Any:
        raise OSError("AMDSMI_STATUS_NO_DATA")
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(
        get_gpu_activity=lambda h: {"gfx_activity": 65535}, get_power_info=lambda h: {"average_socket_power": "N/A"},
        get_clock_info=None, get_temp_metric=lost))
    told = Amd().read().gpus[0]
    assert (told.busy, told.power_w, told.sm_mhz, told.temp_c) == (None, None, None, None)
    assert {name: told.unknown[name] for name in ("busy", "power_w", "sm_mhz", "temp_c")} == {
        "busy": "the driver told 65535", "power_w": "not available on this GPU",
        "sm_mhz": "this driver is too old to tell", "temp_c": "AMDSMI_STATUS_NO_DATA"}
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(get_gpu_activity=lost, get_power_info=lost, get_clock_info=lost))
    assert Amd().read().gpus[0].fault == "AMDSMI_STATUS_NO_DATA"


def test_neither_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise nvml_abi.NoLibrary("no NVIDIA driver here")
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    _, answer = gpus.Child()._other(nvml.Nvml(load=none), set(), "no NVIDIA driver here")
    assert answer == gpu.Answer([], "no NVIDIA driver here; nor ROCm's amdsmi")
