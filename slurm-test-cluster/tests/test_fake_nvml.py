"""The fake NVML library, called by the real nvidia-ml-py in a process of its own per test."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pynvml", reason="needs nvidia-ml-py")

SOURCE = Path(__file__).parents[1] / "fake-nvml"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the freshly built library."""
    target = tmp_path_factory.mktemp("fake-nvml")

    copy = target / "src"
    copy.mkdir()
    for file in SOURCE.iterdir():
        if file.suffix in (".c", ".h") or file.name == "Makefile":
            (copy / file.name).write_bytes(file.read_bytes())

    command = ["make", "-s", "-C", str(copy), "install", f"DESTDIR={target}", "LIBDIR=/"]
    subprocess.run(command, check=True, timeout=60)
    return target


@pytest.fixture
def ask(library: Path, tmp_path: Path):
    """Runs code with `nvml` (the module, initialised) and `gpu` (device 0); its `answer` comes back."""

    def run(state: str, code: str, timeout: float = 10) -> Any:
        (tmp_path / "state").write_text("gpus = 2\n" + textwrap.dedent(state))
        program = (
            "import json, pynvml as nvml\n"
            "def error(call, *args):\n"
            "    try: call(*args)\n"
            "    except nvml.NVMLError as problem: return problem.value\n"
            "nvml.nvmlInit()\n" + textwrap.dedent(code) + "\nprint(json.dumps(answer))\n"
        )
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(library),
            "FAKE_NVML_STATE": str(tmp_path / "state"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


GPU = "gpu = nvml.nvmlDeviceGetHandleByIndex(0)\n"


def test_numbers_come_from_the_state_file(ask):
    answer = ask(
        "gpu.0.util = 97\ngpu.0.sm_clock = 1410\ngpu.0.temp = 61\ngpu.0.power = 312.5\ngpu.0.pids = 11 12\n",
        GPU
        + """
rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
other = nvml.nvmlDeviceGetHandleByIndex(1)
answer = [
    nvml.nvmlDeviceGetCount(), rates.gpu, nvml.nvmlDeviceGetUtilizationRates(other).gpu,
    nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
    nvml.nvmlDeviceGetPowerUsage(gpu), nvml.nvmlDeviceGetMinorNumber(other),
    [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
    nvml.nvmlDeviceGetComputeRunningProcesses(other),
    nvml.nvmlDeviceGetPciInfo(other).busId, nvml.nvmlDeviceGetMigMode(gpu),
    nvml.nvmlDeviceGetMemoryInfo(gpu).used,
]
""",
    )
    assert answer == [
        2, 97, 0, 1410, 61, 312500, 1, [11, 12], [], "00000000:11:00.0", [0, 0], 500 * 2**20,
    ]  # fmt: skip


def test_uuids_differ(ask):
    uuids = ask("", "answer = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in (0, 1)]")
    assert uuids[0].startswith("GPU-")
    assert uuids[0] != uuids[1]


SAMPLES = (
    GPU
    + """
def samples(last):
    kind, found = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, last)
    assert kind == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return [(s.timeStamp, s.sampleValue.uiVal) for s in found]
"""
)


def test_samples_are_those_since_the_last_seen(ask):
    answer = ask(
        "gpu.0.util = 33\n",
        SAMPLES
        + """
import time
now = int(time.time() * 1e6)
answer = [now, samples(0), samples(now - 2_000_000), error(samples, now + 1_000_000)]
""",
    )
    now, everything, recent, nothing_newer = answer
    assert len(everything) == 100
    assert {value for _, value in everything} == {33}
    gaps = {late - early for (early, _), (late, _) in itertools.pairwise(everything)}
    assert gaps == {166666}
    assert now - 200_000 < everything[-1][0] <= now + 200_000
    assert 11 <= len(recent) <= 13
    assert all(stamp > now - 2_000_000 for stamp, _ in recent)
    assert nothing_newer == 6  # NVML_ERROR_NOT_FOUND


def test_samples_before_a_change_keep_the_old_value(ask):
    since = time.time() - 3
    found = ask(
        f"gpu.0.util = 0\ngpu.0.util_before = 90\ngpu.0.util_since = {since}\n",
        SAMPLES + "answer = samples(0)",
    )
    assert {value for stamp, value in found if stamp < since * 1e6} == {90}
    assert {value for stamp, value in found if stamp >= since * 1e6} == {0}


def test_samples_can_be_unsupported(ask):
    assert ask("gpu.0.samples = 0\n", SAMPLES + "answer = error(samples, 0)") == 3  # NVML_ERROR_NOT_SUPPORTED


def test_a_lost_gpu_says_so_and_its_neighbour_works(ask):
    answer = ask(
        "gpu.0.lost = 1\ngpu.1.util = 5\n",
        """
        other = nvml.nvmlDeviceGetHandleByIndex(1)
        answer = [error(nvml.nvmlDeviceGetHandleByIndex, 0), nvml.nvmlDeviceGetUtilizationRates(other).gpu]
        """,
    )
    assert answer == [15, 5]  # NVML_ERROR_GPU_IS_LOST


def test_a_hung_gpu_blocks_the_caller(ask):
    with pytest.raises(subprocess.TimeoutExpired):
        ask("gpu.0.hang = 1\n", GPU + "answer = 0", timeout=1.0)


def test_no_gpus_is_no_driver(ask):
    code = "answer = 0"
    with pytest.raises(AssertionError, match=r"Driver Not Loaded|NVMLError_DriverNotLoaded"):
        ask("gpus = 0\n", code)


def test_an_xid_is_one_event(ask):
    answer = ask(
        "gpu.0.xid = 79\n",
        GPU
        + """
events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
first = nvml.nvmlEventSetWait_v2(events, 100)
answer = [first.eventType, first.eventData, error(nvml.nvmlEventSetWait_v2, events, 100)]
""",
    )
    assert answer == [8, 79, 10]  # NVML_ERROR_TIMEOUT


def test_instances_have_no_use_and_a_name_of_their_own(ask):
    answer = ask(
        "gpu.0.mig = 2\ngpu.0.util = 97\n",
        GPU
        + """
parts = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, n) for n in (0, 1)]
answer = [
    nvml.nvmlDeviceGetMigMode(gpu), error(nvml.nvmlDeviceGetUtilizationRates, gpu),
    error(nvml.nvmlDeviceGetSamples, gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0),
    len({nvml.nvmlDeviceGetUUID(part) for part in parts}), nvml.nvmlDeviceGetUUID(parts[0])[:4],
    error(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2), nvml.nvmlDeviceGetPowerUsage(gpu) > 0,
]
""",
    )
    assert answer == [[1, 1], 3, 3, 2, "MIG-", 6, True]


def test_calls_that_are_not_supported_or_not_there_yet(ask):
    answer = ask(
        "gpu.0.na = nvmlDeviceGetPowerUsage nvmlDeviceGetPciInfo_v3\ngpu.0.absent = nvmlDeviceGetTemperature\n"
        "gpu.1.reset_required = 1\n",
        GPU
        + """
answer = [
    error(nvml.nvmlDeviceGetPowerUsage, gpu), error(nvml.nvmlDeviceGetTemperature, gpu, 0),
    nvml.nvmlDeviceGetTemperatureV(gpu, 0), error(nvml.nvmlDeviceGetHandleByIndex, 1),
]
""",
    )
    assert answer == [3, 13, 45, 16]


def test_fields_of_counters_and_links(ask):
    answer = ask(
        "gpu.0.ecc_corrected = 5\ngpu.0.remap_pending = 1\ngpu.0.nvlinks = 2\ngpu.0.nvlink_down = 1\n",
        GPU
        + """
found = nvml.nvmlDeviceGetFieldValues(gpu, [3, 144, (165, 0), (165, 1), (165, 2), 9999])
answer = [(one.nvmlReturn, one.value.ullVal) for one in found[:4]] + [one.nvmlReturn for one in found[4:]]
""",
    )
    assert answer == [[0, 5], [0, 1], [0, 1], [0, 0], 3, 3]


def test_a_reset_is_refused_while_anybody_has_it_open(library, tmp_path):
    smi = next(library.rglob("bin/nvidia-smi"))
    (tmp_path / "state").write_text("gpus = 2\n")
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "FAKE_NVML_STATE": str(tmp_path / "state")}
    program = (
        "import pynvml as nvml\n"
        "for call in (nvml.nvmlInit, nvml.nvmlShutdown):\n"
        "    call()\n"
        "    print(flush=True)\n"
        "    input()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)  # fmt: skip
    codes = []
    for _ in range(2):
        holder.stdout.readline()
        codes.append(subprocess.run([smi, "--gpu-reset", "-i", "1"], env=environment, timeout=10).returncode)
        holder.stdin.write(b"\n")
        holder.stdin.flush()
    holder.communicate(timeout=10)
    assert codes == [19, 0]
