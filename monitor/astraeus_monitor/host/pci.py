"""Where PCI devices sit, as sysfs shows it, and which adapters have a GPU each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

DRIVERS = ("nvidia", "amdgpu", "habanalabs")
"""Drivers of GPUs and their like: what is bound to one is a GPU. Its class code alone would name the BMC's, too."""
DEPTHS = (3, 2, 1)
"""Bridges from the root down that are to be shared: a switch, a port, the root."""


class Place(msgspec.Struct, frozen=True):
    """A device's bridges from the root down, itself last, and its NUMA node (-1: none)."""

    path: tuple[str, ...] = ()
    numa: int = -1


def place_of(link: str) -> Place:
    """Of the device that a link of sysfs leads to."""
    real = os.path.realpath(link)
    parts = real.split("/")
    at = next((at for at, part in enumerate(parts) if part.startswith("pci") and ":" in part), None)
    try:
        with open(f"{real}/numa_node", "rb") as file:
            numa = int(file.read(16))
    except (OSError, ValueError):
        numa = -1
    return Place(tuple(parts[at:]) if at is not None else (), numa)


def gpus(sysfs: str) -> list[Place]:
    """Of all GPUs that a driver holds."""
    found = []
    for driver in DRIVERS:
        folder = f"{sysfs}/bus/pci/drivers/{driver}"
        try:
            found += [place_of(f"{folder}/{name}") for name in sorted(os.listdir(folder)) if name[:4].isalnum()
                      and name.count(":") == 2]
        except OSError:
            continue
    return found


def affine(cards: Sequence[Place], adapters: Mapping[str, Place]) -> set[str]:
    """Names of the adapters that sit beside the GPUs, one for one: below one switch, else one port, one root, one
    NUMA node. None where at no such depth every group of GPUs has as many adapters as GPUs."""
    for depth in (*DEPTHS, 0):
        def group(place: Place, depth: int = depth) -> object:
            if depth:
                return place.path[:depth] if len(place.path) > depth else None
            return place.numa if place.numa >= 0 else None

        of_gpus = Counter(group(card) for card in cards)
        of_adapters = Counter(group(adapter) for adapter in adapters.values())
        if of_gpus and None not in of_gpus and all(of_adapters[key] == count for key, count in of_gpus.items()):
            return {name for name, adapter in adapters.items() if group(adapter) in of_gpus}
    return set()
