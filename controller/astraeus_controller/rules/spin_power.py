"""Spin power (docs/rules.md, "spin_power"): all GPUs of a gang are fully busy at half their usual power.

A collective that waits for a peer spins on the GPU: the driver calls it 100 % busy, and it draws little. Shown as a
suspect, never acted on: nobody can be named by it, and a phase of small kernels looks alike.
"""

from __future__ import annotations

from . import say
from .conclusion import Conclusion
from .gang import Gang
from .limits import SPIN_BUSY, SPIN_POWER_SHARE
from .picture import GpuView, Picture, StepView
from .readings import anybody_writes, output_of_all, running
from .shape import for_step
from .suspect import VERDICT, quiet_s

RULE = "spin_power"


def judge(picture: Picture, step: StepView, gang: Gang | None) -> list[Conclusion]:
    """One conclusion for the gang, or none: one GPU of which something is not known leaves it alone."""
    if gang is None or gang.traced or anybody_writes(step):
        return []
    workers = running(step)
    gpus = [gpu for worker in workers for gpu in worker.gpus]
    output = output_of_all(step)
    if not step.complete or output is None or output.unseen or output.age < quiet_s(step):
        return []
    if not all(worker.gpus for worker in workers) or not gpus or not all(map(spins, gpus)):
        return []
    drawn = sum(gpu.told.power_w or 0.0 for gpu in gpus if gpu.told)
    usual = sum(gpu.told.power_usual_w or 0.0 for gpu in gpus if gpu.told)
    which = "its GPU spins" if len(gpus) == 1 else f"all {len(gpus)} GPUs spin"
    said = (f"{say.no_output(output, picture.now)}; {which}: busy at {drawn / usual:.0%} of the usual power; "
            f"{say.NOBODY}")
    return [for_step(step, gang, (), output, verdict=VERDICT, rule=RULE, said=said, workers=workers,
                     evidence={"output_s": round(output.age, 1), "after_s": step.policy.after,
                               "power_w": round(drawn), "power_usual_w": round(usual)})]


def spins(gpu: GpuView) -> bool:
    """At its last look and at the one before: as good as fully busy, at half its usual power or less."""
    told = gpu.told
    if told is None or not told.power_usual_w or gpu.busy is None:
        return False
    looks = ((told.busy, told.power_w), (told.busy_before, told.power_before_w))
    return all(busy is not None and power is not None and busy >= SPIN_BUSY
               and power <= SPIN_POWER_SHARE * told.power_usual_w for busy, power in looks)
