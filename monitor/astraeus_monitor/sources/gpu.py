"""Source ``gpu``: how busy the node's GPUs are, from the driver's sample buffer, read in a child that stays.

The child imports pynvml, the monitor never does; the child ends, and with it every handle of the driver, as
soon as no watched job here has a GPU.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from typing import Any

import msgspec
from astraeus_protocol import report
from astraeus_protocol.jobfile import numbers

BUSY_PERCENT = 5.0
"""A GPU is busy from here on."""
FIRST_S = 1.0
"""The first question reads samples of this time; later ones all since the question before."""
MAX_SAMPLES = 512
"""More than a driver keeps for one GPU."""
NOT_FOUND, UNSIGNED_INT = 6, 1
"""NVML_ERROR_NOT_FOUND: no sample since; NVML_VALUE_TYPE_UNSIGNED_INT."""
MAX_VISIBLE = 9
"""Digits of a device number at most."""
MAX_GPUS = 256
"""Of a node."""
_LIST = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?)*")
ENCODER = msgspec.json.Encoder()


class Reading(msgspec.Struct, omit_defaults=True):
    """One GPU as the driver told."""

    index: int
    """Slurm's index: the driver's minor number."""
    uuid: str = ""
    busy: float | None = None
    """Percent, the highest sample since the reading before."""
    fault: str = ""


class Answer(msgspec.Struct, omit_defaults=True):
    """All GPUs of the node, or why there are none."""

    gpus: list[Reading] = []
    fault: str = ""


DECODER = msgspec.json.Decoder(Answer)


class GpuClock:
    """When one GPU of a job was last busy in this attempt. Times in CLOCK_BOOTTIME seconds."""

    def __init__(self, index: int, base: float) -> None:
        self.index, self.busy_at = index, base
        self.uuid = ""
        self.busy: float | None = None
        self.ever_busy = False
        self.fault = "not read yet"
        self.seen_at = base

    def see(self, reading: Reading, now: float) -> None:
        """Take a reading in."""
        self.uuid, self.busy, self.fault = reading.uuid or self.uuid, reading.busy, reading.fault
        self.seen_at = now
        if reading.busy is not None and reading.busy >= BUSY_PERCENT:
            self.busy_at, self.ever_busy = now, True

    def miss(self, why: str) -> None:
        """The driver told nothing."""
        self.busy, self.fault = None, why

    def record(self, now: float) -> report.Gpu:
        """For the report: unknown while the driver tells nothing."""
        known = not self.fault
        return report.Gpu(index=self.index, uuid=self.uuid, busy=self.busy if known else None,
                          idle_s=round(now - self.busy_at, 2) if known else None, ever_busy=self.ever_busy,
                          looked_s=round(now - self.seen_at, 2) if known else 0)

    def save(self) -> dict[str, Any]:
        """For the clock file."""
        return {"busy_at": self.busy_at, "ever": self.ever_busy, "uuid": self.uuid}

    def load(self, saved: dict[str, Any]) -> None:
        """From the clock file."""
        self.busy_at, self.ever_busy = float(saved["busy_at"]), bool(saved["ever"])
        self.uuid = str(saved["uuid"])


def indices(text: str) -> list[int] | None:
    """Slurm's GPU indices, as in ``0,2-3``; None for anything else: a task's own environment tells them."""
    if not text:
        return []
    if len(text) > 512 or not _LIST.fullmatch(text):
        return None
    found = sorted(set(numbers(text)))
    return found if len(found) <= MAX_GPUS else None


def of_worker(whole: list[int], visible: list[str], uuids: dict[str, int]) -> list[int]:
    """Indices of a worker's GPUs: what its processes see of ``whole``, its step's GPUs here.

    ``visible`` holds values of CUDA_VISIBLE_DEVICES: device numbers on the node, or counted within the step's
    where cgroups hide the others, or UUIDs. Where both readings are possible and differ, the whole list
    stands: too many GPUs can hide an idle one, a wrong one would accuse a busy rank.
    """
    found: set[int] = set()
    for text in visible:
        indices = _visible(text, whole, uuids)
        if indices is None:
            return whole
        found.update(indices)
    return sorted(found) if found else whole


def _visible(text: str, whole: list[int], uuids: dict[str, int]) -> list[int] | None:
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if entries and all(e.isascii() and e.isdigit() and len(e) <= MAX_VISIBLE for e in entries):
        numbers = [int(entry) for entry in entries]
        absolute = numbers if set(numbers) <= set(whole) else None
        relative = [whole[n] for n in numbers] if max(numbers) < len(whole) else None
        if absolute is not None and relative is not None and set(absolute) != set(relative):
            return None
        return absolute if absolute is not None else relative
    indices = [index for entry in entries for uuid, index in uuids.items() if uuid.startswith(entry)]
    return indices if entries and len(indices) == len(entries) else None


def serve(request_fd: int, reply_fd: int) -> None:
    """The child: for each line asked, one line with all GPUs; ends when the monitor closes its pipe."""
    driver = _Driver()
    with os.fdopen(request_fd, "rb") as requests:
        for _ in requests:
            data = memoryview(ENCODER.encode(driver.read()) + b"\n")
            while data:
                data = data[os.write(reply_fd, data):]
    driver.close()


class _Driver:
    """NVML, opened at the first question."""

    def __init__(self) -> None:
        self.nvml: Any = None
        self.handles: list[tuple[int, str, Any]] = []
        self.seen: dict[int, int] = {}
        """Index to the time stamp of its last sample."""
        self.buffer = (ctypes.c_ulonglong * (2 * MAX_SAMPLES))()
        """nvmlSample_t: a time stamp and a value, 8 bytes each."""

    def read(self) -> Answer:
        try:
            self._open()
        except ImportError:
            return Answer(fault="nvidia-ml-py is not installed")
        except Exception as fault:
            return Answer(fault=f"NVML: {fault}")
        return Answer([self._gpu(index, uuid, handle) for index, uuid, handle in self.handles])

    def close(self) -> None:
        if self.nvml:
            self.nvml.nvmlShutdown()

    def _open(self) -> None:
        if self.nvml:
            return
        import pynvml as nvml  # type: ignore[import-untyped]

        nvml.nvmlInit()
        self.nvml = nvml
        for place in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(place)
            try:
                index = int(nvml.nvmlDeviceGetMinorNumber(handle))
            except nvml.NVMLError:
                index = place
            try:
                uuid = nvml.nvmlDeviceGetUUID(handle)
            except nvml.NVMLError:
                uuid = ""
            self.handles.append((index, uuid.decode() if isinstance(uuid, bytes) else uuid, handle))

    def _gpu(self, index: int, uuid: str, handle: Any) -> Reading:
        # The first question leaves the older part of the buffer out: it may be of the job before.
        last = self.seen.setdefault(index, int((time.time() - FIRST_S) * 1e6))
        stamps, values = self._samples(handle, last)
        fresh = [value for stamp, value in zip(stamps, values, strict=True) if stamp > last]
        if fresh:
            self.seen[index] = max(stamps)
            return Reading(index, uuid, float(max(fresh)))
        try:  # samples are not supported, or there is none since: the plain rate tells
            return Reading(index, uuid, float(self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        except self.nvml.NVMLError as fault:
            return Reading(index, uuid, None, str(fault))

    def _samples(self, handle: Any, last: int) -> tuple[list[int], list[int]]:
        """Time stamps and percents of the samples since ``last``; none where the driver gives none."""
        nvml = self.nvml
        call = getattr(getattr(nvml, "nvmlLib", None), "nvmlDeviceGetSamples", None)
        if call is not None:
            # Into one buffer of ours by one call: nvidia-ml-py makes two calls and an object of every sample,
            # which was most of what the child used.
            kind, count = ctypes.c_int(), ctypes.c_uint(MAX_SAMPLES)
            code = call(
                handle, ctypes.c_int(nvml.NVML_GPU_UTILIZATION_SAMPLES), ctypes.c_ulonglong(last),
                ctypes.byref(kind), ctypes.byref(count), self.buffer)
            if code == NOT_FOUND:
                return [], []
            if code == 0 and kind.value == UNSIGNED_INT:
                words = self.buffer[:2 * min(count.value, MAX_SAMPLES)]
                return words[::2], [word & 0xFFFFFFFF for word in words[1::2]]
        try:
            _, samples = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, last)
        except nvml.NVMLError:
            return [], []
        return [s.timeStamp for s in samples], [s.sampleValue.uiVal for s in samples]
