"""AMD's driver, asked through ROCm's own Python package ``amdsmi`` in a child: the same readings as NVIDIA's.

The package is ROCm's (/opt/rocm/share/amd_smi), not that of the same name on package indexes. Between its releases
names of keys moved, and what is not there is the text "N/A" in some and an exception in others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ..sources.gpu import Answer, Reading, Slow

FOLDERS = ("/opt/rocm/share/amd_smi", "/opt/rocm/libexec/amdsmi_cli")
SLOW_EVERY_S = 55.0
NOT_ANSWERING = "driver not answering"
NONE = "not available on this GPU"
MICRO = 1e6
BITS = {"active_ppt_pwr": 0x4, "active_socket_thrm": 0x20, "active_vr_thrm": 0x40, "active_hbm_thrm": 0x40,
        "active_prochot_thrm": 0x8}
"""What ``amdsmi_get_violation_status`` calls the reasons, as NVML's bits."""

class NoAmd(Exception):
    """No AMD driver here; the message says why."""


class Amd:
    """The driver, opened at the first question. ``at(n)`` is told which GPU is asked: n = its place + 1, else 0."""

    def __init__(self, at: Callable[[int], None] = lambda n: None) -> None:
        self.at = at
        self.smi: Any = None
        self.handles: list[Any] = []
        self.slow_at = float("-inf")

    def read(self, leave_out: set[int] = frozenset()) -> Answer:  # type: ignore[assignment]
        """All GPUs; ``leave_out``: places that are not asked. Raises NoAmd."""
        fault = self._open()
        if fault:
            return Answer(fault=fault)
        slow = time.monotonic() - self.slow_at >= SLOW_EVERY_S
        if slow:
            self.slow_at = time.monotonic()
        found = []
        for place, handle in enumerate(self.handles):
            if place in leave_out:
                found.append(Reading(place, fault=NOT_ANSWERING))
                continue
            self.at(place + 1)
            found.append(self._gpu(place, handle, slow=slow))
        self.at(0)
        return Answer(found)

    def close(self) -> None:
        """Let go of the driver."""
        if self.smi:
            self.smi.amdsmi_shut_down()
        self.smi, self.handles = None, []

    def _open(self) -> str:
        if self.smi:
            return ""
        try:
            import amdsmi  # type: ignore[import-not-found]
        except ImportError:
            sys.path += [folder for folder in FOLDERS if folder not in sys.path]
            try:
                import amdsmi
            except Exception as fault:
                raise NoAmd("nor ROCm's amdsmi") from fault
        except Exception as fault:  # it loads its library as it is imported
            raise NoAmd(f"amdsmi can't be used: {fault}") from fault
        try:
            amdsmi.amdsmi_init()
            self.handles = list(amdsmi.amdsmi_get_processor_handles())
        except Exception as fault:
            return f"amdsmi: {fault}"
        self.smi = amdsmi
        return ""

    def _gpu(self, place: int, handle: Any, *, slow: bool) -> Reading:
        why: dict[str, str] = {}
        ask = _Asker(self.smi, handle, why)
        uuid = ask("", "amdsmi_get_gpu_device_uuid")
        reading = Reading(place, uuid if isinstance(uuid, str) else "", unknown=why)
        activity = ask("busy", "amdsmi_get_gpu_activity")
        reading.busy = ask.number("busy", activity, "gfx_activity", most=100)
        clocks = ask("sm_mhz", "amdsmi_get_clock_info", ask.named("AmdSmiClkType", "GFX"))
        reading.sm_mhz = ask.number("sm_mhz", clocks, "clk", "cur_clk", most=20_000)
        sensor = ask.named("AmdSmiTemperatureType", "HOTSPOT", "JUNCTION")
        now, critical = (ask.named("AmdSmiTemperatureMetric", name) for name in ("CURRENT", "CRITICAL"))
        reading.temp_c = ask.number("temp_c", ask("temp_c", "amdsmi_get_temp_metric", sensor, now), most=200)
        power = ask("power_w", "amdsmi_get_power_info")
        reading.power_w = ask.number("power_w", power, "current_socket_power", "socket_power", "average_socket_power",
                                     most=20_000)
        held = ask("reasons", "amdsmi_get_violation_status")
        if isinstance(held, dict):
            reading.reasons = sum({bit for name, bit in BITS.items() if held.get(name) is True})
        if slow:
            reading.slow = self._slow(ask, clocks, sensor, critical)
        if activity is None and clocks is None and power is None:
            return Reading(place, reading.uuid, fault=why.get("busy", NONE))
        return reading

    @staticmethod
    def _slow(ask: _Asker, clocks: Any, sensor: Any, critical: Any) -> Slow:
        cap = ask("limit_w", "amdsmi_get_power_cap_info")
        limit = ask.number("limit_w", cap, "power_cap", most=20_000 * MICRO)
        pcie = ask("pcie_gen", "amdsmi_get_pcie_info")
        fixed, live = (pcie.get("pcie_static"), pcie.get("pcie_metric")) if isinstance(pcie, dict) else (None, None)
        ecc = ask("ecc_corrected", "amdsmi_get_gpu_total_ecc_count")
        counts = {name: ask.number(name, ecc, key) for name, key in (
            ("ecc_corrected", "correctable_count"), ("ecc_uncorrected", "uncorrectable_count"))}
        listed = ask("pids", "amdsmi_get_gpu_process_list")
        pids = [ask.number("pids", one, "pid") for one in listed] if isinstance(listed, list) else None
        gen_max = ask.number("", fixed, "max_pcie_gen", "pcie_interface_version", most=16)
        return Slow(
            sm_max_mhz=ask.number("", clocks, "max_clk", most=20_000),
            slowdown_c=ask.number("", ask("", "amdsmi_get_temp_metric", sensor, critical), most=200),
            limit_w=None if limit is None else round(limit / MICRO if limit > 20_000 else limit, 1),
            pcie_width=_whole(ask.number("pcie_width", live, "pcie_width", most=64)),
            pcie_width_max=_whole(ask.number("", fixed, "max_pcie_width", most=64)),
            pcie_gen=_gen(ask.number("pcie_gen", live, "pcie_speed")), pcie_gen_max=_whole(gen_max),
            pids=None if pids is None else sorted({int(pid) for pid in pids if pid}),
            counts={name: int(n) for name, n in counts.items() if n is not None})


class _Asker:
    """Calls about one GPU; why one told nothing goes to ``why``."""

    def __init__(self, smi: Any, handle: Any, why: dict[str, str]) -> None:
        self.smi, self.handle, self.why = smi, handle, why

    def __call__(self, what: str, name: str, *args: Any) -> Any:
        call = getattr(self.smi, name, None)
        if call is None or None in args:
            return self._not(what, "this driver is too old to tell")
        try:
            return call(self.handle, *args)
        except Exception as fault:  # amdsmi's own are of many kinds
            return self._not(what, " ".join(str(fault).split())[:100] or type(fault).__name__)

    def named(self, kind: str, *names: str) -> Any:
        """A member of one of its enumerations, by the first name that this release has."""
        found = getattr(self.smi, kind, None)
        return next((getattr(found, name) for name in names if hasattr(found, name)), None)

    def number(self, what: str, told: Any, *keys: str, most: float = float(1 << 53)) -> float | None:
        """``told`` itself, or what it has under the first of ``keys`` that holds a number up to ``most``."""
        if told is None:
            return None
        values = [told.get(key) for key in keys] if isinstance(told, dict) else [told]
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        good = [v for v in numbers if 0 <= v <= most]
        if good:
            return float(good[0])
        return self._not(what, f"the driver told {numbers[0]:.0f}" if numbers else NONE)

    def _not(self, what: str, why: str) -> None:
        if what:
            self.why.setdefault(what, why)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _gen(mega: float | None) -> int | None:
    """PCIe's generation by its speed in MT/s: 2500, 5000, 8000, 16000, 32000, 64000."""
    if mega is None:
        return None
    return next((gen for gen, speed in enumerate((2500, 5000, 8000, 16000, 32000, 64000), 1) if mega <= speed), None)
