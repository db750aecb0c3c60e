"""NVML's binary interface, as far as it is asked: numbers and structs of nvml.h, and one way to make a call."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

NOT_SUPPORTED, NOT_FOUND, TOO_SMALL, ABSENT = 3, 6, 7, 13
GONE = (15, 16)
"""GPU_IS_LOST, RESET_REQUIRED: nothing more is told of the GPU."""
BROKEN = (1, 18)
"""UNINITIALIZED, LIB_RM_VERSION_MISMATCH: the library has to be opened anew."""
WORDS = {
    1: "the driver was closed", 2: "the driver does not know the question", NOT_SUPPORTED: "not available on this GPU",
    4: "no permission", NOT_FOUND: "the driver has none", 8: "the GPU's power cables are not plugged in",
    9: "the NVIDIA driver is not loaded", 10: "the driver's own timeout", ABSENT: "this driver is too old to tell",
    15: "the GPU is lost", 16: "the GPU must be reset", 18: "driver and its library are of different releases",
    19: "the GPU is in use", 20: "out of memory", 999: "unknown error of the driver",
}
EVENT_XID, CLOCK_SM, SLOWDOWN, SAMPLES_BUSY = 8, 1, 1, 1
MAX_SAMPLES, MAX_LINKS, MAX_MIG, MAX_PIDS = 512, 18, 16, 256
MAX_MHZ, MAX_C, MAX_MW = 20_000, 200, 20_000_000
"""What is above is no reading: drivers give a blank's number (4294967295 and its like) where they have none."""
BLANK_LONG = 0x7FFF_FFFF_FFFF_FFF0
REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
OLDER = {REASONS: "nvmlDeviceGetCurrentClocksThrottleReasons"}
"""The name that drivers before had."""
HELD = {"sw_power_cap": 74, "sync_boost": 76, "sw_thermal": 269, "hw_thermal": 270, "hw_power_brake": 271}
"""Fields: nanoseconds for which the clock was held."""
COUNTS = {"ecc_corrected": 3, "ecc_uncorrected": 4}
ROWS = (142, 143)
FLAGS = {"remap_pending": 144, "remap_failed": 145}
LINK, SLOWDOWN_MARGIN = 165, 194
Key = int | tuple[int, int]


class NoLibrary(Exception):
    """No NVIDIA driver here."""


class Gone(Exception):
    """What was asked for can't be told; the message says why."""


class Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("at", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("kind", ctypes.c_int), ("code", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]


class Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of its second and third version."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class Temperature(ctypes.Structure):
    """nvmlTemperature_v1_t."""

    _fields_ = [("version", ctypes.c_uint), ("sensor", ctypes.c_uint), ("temperature", ctypes.c_int)]


class Margin(ctypes.Structure):
    """nvmlMarginTemperature_v1_t."""

    _fields_ = [("version", ctypes.c_uint), ("margin", ctypes.c_int)]


def load() -> Any:
    """The driver's library. Raises NoLibrary."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as fault:
        raise NoLibrary("no NVIDIA driver here (libnvidia-ml.so.1 can't be loaded)") from fault


def words(code: int) -> str:
    """What an error means."""
    return WORDS.get(code, f"error {code} of the driver")


def sample(kind: int, value: int) -> float:
    """A sample's number by its type (0: double, 1: 32 bits whose other half means nothing, else 64 bits)."""
    if kind == 0:
        return float(struct.unpack("=d", struct.pack("=Q", value))[0])
    return float(value & 0xFFFFFFFF) if kind == 1 else float(value)


def fields() -> Any:
    """One array of all fields that are asked for in one call."""
    wanted = [(field, 0) for field in (*HELD.values(), *COUNTS.values(), *ROWS, *FLAGS.values(), SLOWDOWN_MARGIN)]
    wanted += [(LINK, link) for link in range(MAX_LINKS)]
    found = (Field * len(wanted))()
    for one, (field, scope) in zip(found, wanted, strict=True):
        one.id, one.scope = field, scope
    return found


class Library:
    """Calls by name; one that the library lacks answers ABSENT."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.calls: dict[str, Any] = {}
        self.word, self.long = ctypes.c_uint(), ctypes.c_ulonglong()
        self.odd: set[int] = set()
        """Error codes that came."""

    def call(self, name: str, *args: Any) -> int:
        """The call's code."""
        if name not in self.calls:
            self.calls[name] = getattr(self.library, name, None) or getattr(self.library, OLDER.get(name, "-"), None)
        call = self.calls[name]
        code = ABSENT if call is None else int(call(*args))
        if code in BROKEN:
            self.odd.add(code)
        return code

    def gone(self, code: int) -> None:
        """Raises Gone where the code says that the whole GPU is."""
        if code in GONE:
            raise Gone(words(code))

    def number(self, name: str, *args: Any) -> int:
        """A number of 32 bits. Raises Gone."""
        code = self.call(name, *args, ctypes.byref(self.word))
        if code or self.word.value == 0xFFFFFFFF:
            raise Gone(words(code or NOT_SUPPORTED))
        return self.word.value

    def known(self, why: dict[str, str], what: str, name: str, *args: Any, most: int = 0xFFFF_FFFE,
              long: bool = False) -> int | None:
        """A number, or None with the reason in ``why[what]``. Raises Gone where the GPU is."""
        held = self.long if long else self.word
        held.value = 0
        code = self.call(name, *args, ctypes.byref(held))
        if code:
            self.gone(code)
            why[what] = words(code)
            return None
        if held.value > (BLANK_LONG - 1 if long else most):
            why[what] = f"the driver told {held.value}"
            return None
        return int(held.value)

    def text(self, name: str, handle: Any) -> str:
        """A short text, "" where there is none."""
        buffer = ctypes.create_string_buffer(96)
        if self.call(name, handle, buffer, ctypes.c_uint(96)):
            return ""
        return buffer.value.decode("ascii", "replace")

    def processes(self, why: dict[str, str], handle: Any) -> list[int] | None:
        """PIDs of those that compute on it."""
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            found, count = (Process * MAX_PIDS)(), ctypes.c_uint(MAX_PIDS)
            code = self.call(name, handle, ctypes.byref(count), found)
            if code == 0:
                return sorted({int(one.pid) for one in found[:min(count.value, MAX_PIDS)]})
            self.gone(code)
            if code != ABSENT:
                break
        why["pids"] = words(code)
        return None

    def ask_fields(self, handle: Any, wanted: Any) -> dict[Key, int]:
        """Those fields that the driver tells; a link's state under (LINK, link)."""
        code = self.call("nvmlDeviceGetFieldValues", handle, len(wanted), wanted)
        self.gone(code)
        if code:
            return {}
        found: dict[Key, int] = {}
        for one in wanted:
            if one.code:
                continue
            value = int(one.value)
            if one.kind == 0:
                value = int(sample(0, value))
            elif one.kind in (1, 5):
                value &= 0xFFFFFFFF
                if one.kind == 5 and value >= 1 << 31:
                    value -= 1 << 32
            if value != 0xFFFFFFFF and value < BLANK_LONG:
                found[(LINK, one.scope) if one.id == LINK else one.id] = value
        return found

    def rows(self, handle: Any, told: dict[Key, int], why: dict[str, str]) -> dict[str, int]:
        """Remapped rows, and what of that is pending or failed."""
        if all(field in told for field in ROWS):
            found = [told[ROWS[0]], told[ROWS[1]], *(told.get(field, 0) for field in FLAGS.values())]
        else:
            numbers = (ctypes.c_uint * 4)()
            code = self.call("nvmlDeviceGetRemappedRows", handle, *(ctypes.byref(numbers, 4 * n) for n in range(4)))
            self.gone(code)
            if code:
                why["remapped_rows"] = words(code)
                return {}
            found = list(numbers)
        return {"remapped_rows": found[0] + found[1], "remap_pending": int(found[2] == 1),
                "remap_failed": int(found[3] == 1)}

    def links(self, handle: Any) -> dict[int, int]:
        """NVLinks by the older call."""
        found = {}
        for link in range(MAX_LINKS):
            if self.call("nvmlDeviceGetNvLinkState", handle, link, ctypes.byref(self.word)):
                break
            found[link] = self.word.value
        return found

    def temperature(self, why: dict[str, str], handle: Any) -> int | None:
        """Degrees C: by the call that all drivers have, else by the one that stays."""
        found = self.known(why, "temp_c", "nvmlDeviceGetTemperature", handle, 0, most=MAX_C)
        told = Temperature(version=0x100000C)
        if found is None and self.calls["nvmlDeviceGetTemperature"] is None and not self.call(
                "nvmlDeviceGetTemperatureV", handle, ctypes.byref(told)) and 0 <= told.temperature <= MAX_C:
            why.pop("temp_c")
            return int(told.temperature)
        return found

    def slowdown(self, handle: Any, margin: int | None) -> float | None:
        """The slowdown temperature of drivers that tell only how far it is: ``margin`` is left when it begins."""
        told = Margin(version=0x1000008)
        now = self.temperature({}, handle)
        if margin is None or now is None or self.call("nvmlDeviceGetMarginTemperature", handle, ctypes.byref(told)):
            return None
        return float(now + told.margin - margin)
