"""``astraeus-monitor read gpu``: all GPUs of the node, asked as the monitor does: in a child, with its deadline."""

from __future__ import annotations

import selectors
from collections.abc import Iterator

import msgspec
from astraeus_protocol import report

from ..clock import Clock
from ..probes.gpus import Child
from ..probes.servant import Servant
from ..rounds.gpus import words
from ..sources.gpu import DECODER, Answer, GpuClock


class Gpus(msgspec.Struct, tag="gpus", omit_defaults=True):
    """The node's GPUs, by index."""

    gpus: list[report.Gpu] = []


def read(watch_s: float, clock: Clock) -> tuple[Gpus | None, str]:
    """One look, or two ``watch_s`` seconds apart; and why it, or how busy one of them is, is not known."""
    selector = selectors.DefaultSelector()
    driver = Servant("driver", Child().serve, selector, clock)
    clocks: dict[int, GpuClock] = {}
    began = clock.boot()
    try:
        for at in (0.0, watch_s) if watch_s else (0.0,):
            answer = _ask(driver, selector, clock, began + at)
            if answer.fault or not answer.gpus:
                return None, answer.fault or "no GPU here"
            for one in answer.gpus:
                clocks.setdefault(one.index, GpuClock(one.index, began)).see(one, clock.boot())
    finally:
        driver.stop()
        selector.close()
    ordered = [clocks[index] for index in sorted(clocks)]
    unknown = next((f"GPU {one.index}: {one.fault}" for one in ordered if one.fault), "")
    return Gpus([one.record(clock.boot()) for one in ordered]), unknown


def _ask(driver: Servant, selector: selectors.BaseSelector, clock: Clock, at: float) -> Answer:
    found: list[Answer] = []

    def take(lines: list[bytes], why: str) -> None:
        try:
            found.append(DECODER.decode(lines[0]) if lines else Answer(fault=words(why)))
        except msgspec.DecodeError as fault:
            found.append(Answer(fault=f"the driver's child answered nonsense: {fault}"))

    while (left := at - clock.boot()) > 0:
        selector.select(left)
    why = driver.ask(b"read", take)
    while not found and not why:
        for key, _ in selector.select(max(0.0, (driver.until or 0) - clock.boot())):
            key.data()
        driver.sweep()
    return found[0] if found else Answer(fault=words(why))


def text(reading: Gpus) -> str:
    """A line for each GPU: ``GPU 0: 97 %, 1980 of 1980 MHz, 61 C, 690 of 700 W``."""
    return "\n".join(", ".join(_of(gpu)) for gpu in reading.gpus)


def _of(gpu: report.Gpu) -> Iterator[str]:
    yield f"GPU {gpu.index} ({gpu.uuid or 'no UUID'}): " + (
        "use unknown" if gpu.busy is None else f"{gpu.busy:.0f} %")
    for value, most, unit in ((gpu.sm_mhz, gpu.sm_max_mhz, "MHz"), (gpu.temp_c, gpu.slowdown_c, "C"),
                              (gpu.power_w, gpu.limit_w, "W"), (gpu.pcie_gen, gpu.pcie_gen_max, "(PCIe generation)"),
                              (gpu.pcie_width, gpu.pcie_width_max, "(PCIe lanes)")):
        if value is not None:
            yield f"{value:g}" + (f" of {most:g}" if most is not None else "") + f" {unit}"
    if gpu.reasons:
        yield f"clock reasons 0x{gpu.reasons:x}"
    yield from (f"{name} +{count}" for name, count in gpu.errors.items())
    yield from (f"Xid {xid}" for xid in gpu.xids)
    yield from (f"NVLink {link} down" for link in gpu.nvlinks_down)
    if gpu.pids is not None:
        yield f"{len(gpu.pids)} processes"
    yield from (f"{name}: {why}" for name, why in gpu.unknown.items())
