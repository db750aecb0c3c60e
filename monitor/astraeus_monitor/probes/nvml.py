"""NVIDIA's driver, asked through NVML in a child: a handful of calls each 15 s, the rest each minute.

By ctypes, not by nvidia-ml-py: its module alone took 4.6 MiB of the child's memory, and its wrappers most of the
child's CPU. Structs and numbers are NVML's own, from nvml.h. An entry point that a driver does not have yet is a
reading that is not known, never a fault of all.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from ..sources.gpu import Answer, Reading, Slow
from . import nvml_abi as abi
from .nvml_abi import Gone, words

FIRST_S = 1.0
"""The first question reads samples of this time: the older part of the buffer may be of the job before."""
SLOW_EVERY_S = 55.0
XIDS_AT_ONCE = 64
NOT_ANSWERING = "driver not answering"
MIG_BUSY = "divided into instances (MIG), of which the driver tells no use"


class Device:
    """One GPU and what of it never changes."""

    def __init__(self, place: int) -> None:
        self.place, self.index = place, -1
        self.uuid, self.handle = "", ctypes.c_void_p()
        self.fault = ""
        self.last_us = 0
        """Time stamp of its last sample."""
        self.fields: Any = None
        self.fixed: dict[str, int] = {}
        """sm_max_mhz, slowdown_c, pcie_gen_max, pcie_width_max."""
        self.no_xids = ""
        self.mig: list[str] | None = None


class Nvml:
    """The driver, opened at the first question. ``at(n)`` is told which GPU is asked: n = its place + 1, else 0."""

    def __init__(self, at: Callable[[int], None] = lambda n: None, load: Callable[[], Any] = abi.load) -> None:
        self.at, self.load = at, load
        self.library: abi.Library | None = None
        self.devices: list[Device] = []
        self.events = ctypes.c_void_p()
        self.slow_at = float("-inf")
        self.samples = (ctypes.c_ulonglong * (2 * abi.MAX_SAMPLES))()

    def read(self, leave_out: set[int] = frozenset()) -> Answer:  # type: ignore[assignment]
        """All GPUs; ``leave_out``: places that are not asked. Raises ``abi.NoLibrary``."""
        try:
            lib = self._open(leave_out)
        except Gone as gone:
            self.close()
            return Answer(fault=f"NVML: {gone}")
        slow = time.monotonic() - self.slow_at >= SLOW_EVERY_S
        if slow:
            self.slow_at = time.monotonic()
        xids = self._xids(lib)
        found = []
        for device in self.devices:
            if device.place in leave_out:
                found.append(Reading(self._index(device), device.uuid, fault=NOT_ANSWERING))
                continue
            self.at(device.place + 1)
            found.append(self._device(lib, device, xids.get(device.handle.value or 0, []), slow=slow))
        self.at(0)
        if any(code in abi.BROKEN for code in lib.odd):  # the driver was loaded anew below us
            self.close()
        return Answer(found)

    def close(self) -> None:
        """Let go of the driver: no handle stays."""
        lib, self.library = self.library, None
        if lib:
            if self.events:
                lib.call("nvmlEventSetFree", self.events)
            lib.call("nvmlShutdown")
        self.devices, self.events, self.slow_at = [], ctypes.c_void_p(), float("-inf")

    # -- who is there

    def _open(self, leave_out: set[int]) -> abi.Library:
        if self.library:
            return self.library
        lib = abi.Library(self.load())
        code = lib.call("nvmlInit_v2")
        if code:
            raise Gone(words(code))
        self.library = lib
        count = lib.number("nvmlDeviceGetCount_v2")
        lib.call("nvmlEventSetCreate", ctypes.byref(self.events))
        self.devices = [Device(place) for place in range(count)]
        for device in self.devices:
            if device.place not in leave_out:
                self.at(device.place + 1)
                self._meet(lib, device)
        self.at(0)
        return lib

    def _index(self, device: Device) -> int:
        """The minor number; of a GPU that does not tell it, one that no other has."""
        if device.index < 0:
            taken = {other.index for other in self.devices}
            free = [n for n in range(len(self.devices)) if n not in taken]
            device.index = device.place if device.place in free or not free else free[0]
        return device.index

    def _meet(self, lib: abi.Library, device: Device) -> None:
        code = lib.call("nvmlDeviceGetHandleByIndex_v2", device.place, ctypes.byref(device.handle))
        device.fault = words(code) if code else ""
        if code:
            return
        try:
            device.index = lib.number("nvmlDeviceGetMinorNumber", device.handle)
        except Gone:
            device.index = -1
        device.uuid = lib.text("nvmlDeviceGetUUID", device.handle)
        device.last_us = int((time.time() - FIRST_S) * 1e6)
        for name, call, *more in (("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", abi.CLOCK_SM),
                                  ("slowdown_c", "nvmlDeviceGetTemperatureThreshold", abi.SLOWDOWN),
                                  ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
                                  ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth")):
            try:
                device.fixed[name] = lib.number(call, device.handle, *more)
            except Gone:
                continue
        device.fields = abi.fields()
        code = lib.call("nvmlDeviceRegisterEvents", device.handle, ctypes.c_ulonglong(abi.EVENT_XID), self.events)
        device.no_xids = words(code) if code else ""

    # -- what each tells

    def _device(self, lib: abi.Library, device: Device, xids: list[int], *, slow: bool) -> Reading:
        if device.fault and slow:
            self._meet(lib, device)
        if device.fault:
            return Reading(self._index(device), device.uuid, fault=device.fault)
        reading = Reading(self._index(device), device.uuid, xids=xids)
        why: dict[str, str] = {}
        try:
            if slow:
                reading.slow = self._slow(lib, device)
            reading.busy = self._busy(lib, device, why)
            reading.sm_mhz = lib.known(why, "sm_mhz", "nvmlDeviceGetClockInfo", device.handle, abi.CLOCK_SM,
                                       most=abi.MAX_MHZ)
            reading.reasons = lib.known(why, "reasons", abi.REASONS, device.handle, long=True)
            reading.temp_c = lib.temperature(why, device.handle)
            power = lib.known(why, "power_w", "nvmlDeviceGetPowerUsage", device.handle, most=abi.MAX_MW)
            reading.power_w = None if power is None else round(power / 1000, 1)
        except Gone as gone:
            device.fault = str(gone)
            return Reading(device.index, device.uuid, fault=device.fault, xids=xids)
        reading.unknown = why
        return reading

    def _busy(self, lib: abi.Library, device: Device, why: dict[str, str]) -> float | None:
        """Percent: the highest of all samples since the last question, else the plain rate."""
        if device.mig is not None:
            # What drivers told here was N/A, a constant 0 and a blank's number, at full load.
            why["busy"] = MIG_BUSY
            return None
        kind, count = ctypes.c_int(), ctypes.c_uint(abi.MAX_SAMPLES)
        code = lib.call("nvmlDeviceGetSamples", device.handle, abi.SAMPLES_BUSY, ctypes.c_ulonglong(device.last_us),
                        ctypes.byref(kind), ctypes.byref(count), self.samples)
        lib.gone(code)
        odd = None
        if code == 0:
            told = self.samples[:2 * min(count.value, abi.MAX_SAMPLES)]
            fresh = [abi.sample(kind.value, value) for stamp, value in zip(told[::2], told[1::2], strict=True)
                     if stamp > device.last_us]
            device.last_us = max([device.last_us, *told[::2]])
            good = [value for value in fresh if 0 <= value <= 100]
            if good:
                return float(max(good))
            odd = fresh[0] if fresh else None
        rates = (ctypes.c_uint * 2)()
        code = lib.call("nvmlDeviceGetUtilizationRates", device.handle, rates)
        lib.gone(code)
        if code == 0 and rates[0] <= 100 and odd is None:
            return float(rates[0])
        why["busy"] = words(code) if code else f"the driver told {rates[0] if odd is None else odd:.0f} %"
        return None

    def _slow(self, lib: abi.Library, device: Device) -> Slow:
        why: dict[str, str] = {} if not device.no_xids else {"xids": device.no_xids}
        device.mig = self._instances(lib, device)
        found = Slow(mig=device.mig, sm_max_mhz=device.fixed.get("sm_max_mhz"),
                     pcie_gen_max=device.fixed.get("pcie_gen_max"),
                     pcie_width_max=device.fixed.get("pcie_width_max"))
        limit = lib.known(why, "limit_w", "nvmlDeviceGetEnforcedPowerLimit", device.handle, most=abi.MAX_MW)
        found.limit_w = None if limit is None else round(limit / 1000, 1)
        found.pcie_gen = lib.known(why, "pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration", device.handle, most=16)
        found.pcie_width = lib.known(why, "pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", device.handle, most=64)
        found.pids = lib.processes(why, device.handle)
        told = lib.ask_fields(device.handle, device.fields)
        found.held = {name: told[field] for name, field in abi.HELD.items() if field in told}
        found.counts = self._counts(lib, device, told, why)
        links = {link: told[abi.LINK, link] for link in range(abi.MAX_LINKS) if (abi.LINK, link) in told}
        if not links and device.mig is None:
            links = lib.links(device.handle)
        if any(links.values()):
            found.nvlinks_down = [link for link, state in links.items() if not state]
        found.slowdown_c = device.fixed.get("slowdown_c")
        if found.slowdown_c is None:
            found.slowdown_c = lib.slowdown(device.handle, told.get(abi.SLOWDOWN_MARGIN))
        found.unknown = why
        return found

    @staticmethod
    def _counts(lib: abi.Library, device: Device, told: dict[Any, int], why: dict[str, str]) -> dict[str, int]:
        counts = {name: told[field] for name, field in abi.COUNTS.items() if field in told}
        for kind, name in enumerate(("ecc_corrected", "ecc_uncorrected")):
            if name not in counts:
                value = lib.known(why, name, "nvmlDeviceGetTotalEccErrors", device.handle, kind, 0, long=True)
                if value is not None:
                    counts[name] = value
        rows = lib.rows(device.handle, told, why)
        return counts | rows

    @staticmethod
    def _instances(lib: abi.Library, device: Device) -> list[str] | None:
        """UUIDs of its MIG instances; None: it is not divided."""
        mode = (ctypes.c_uint * 2)()
        code = lib.call("nvmlDeviceGetMigMode", device.handle, ctypes.byref(mode, 0), ctypes.byref(mode, 4))
        lib.gone(code)
        if code or mode[0] != 1:
            return None
        found = []
        try:
            most = lib.number("nvmlDeviceGetMaxMigDeviceCount", device.handle)
        except Gone:
            return []
        for place in range(min(most, abi.MAX_MIG)):
            handle = ctypes.c_void_p()
            if lib.call("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, place, ctypes.byref(handle)) == 0:
                found.append(lib.text("nvmlDeviceGetUUID", handle))
        return [uuid for uuid in found if uuid]

    def _xids(self, lib: abi.Library) -> dict[int, list[int]]:
        """Xid events since the last question, by handle; never waits for one."""
        found: dict[int, list[int]] = {}
        event = abi.Event()
        for _ in range(XIDS_AT_ONCE):
            if not self.events or lib.call("nvmlEventSetWait_v2", self.events, ctypes.byref(event), 0):
                break
            if event.type == abi.EVENT_XID:
                found.setdefault(event.device or 0, []).append(int(event.data))
        return found
