"""Which GPUs are a worker's: its binding (device numbers, UUIDs, instances), else the driver's process list."""

from __future__ import annotations

import re

import msgspec
from astraeus_protocol.jobfile import numbers

MAX_VISIBLE = 9
"""Digits of a device number at most."""
MAX_GPUS = 256
"""Of a node."""
_LIST = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?)*")
Place = tuple[int, str]
"""A GPU's index and the UUID of its instance, "" for the whole."""


class Which(msgspec.Struct, frozen=True):
    """GPUs of a worker, and what told them: ``uuid``, ``number``, ``all`` of its step's (nothing tells which)."""

    places: tuple[Place, ...]
    by: str


def indices(text: str) -> list[int] | None:
    """Slurm's GPU indices, as in ``0,2-3``; None for anything else: a task's own environment tells them."""
    if not text:
        return []
    if len(text) > 512 or not _LIST.fullmatch(text):
        return None
    found = sorted(set(numbers(text)))
    return found if len(found) <= MAX_GPUS else None


def of_worker(whole: list[int], visible: list[str], uuids: dict[str, Place]) -> Which:
    """A worker's GPUs: what its processes see of ``whole``, its step's GPUs here.

    ``visible`` holds values of CUDA_VISIBLE_DEVICES: device numbers on the node, or counted within the step's
    where cgroups hide the others, or UUIDs. Where both readings are possible and differ, the whole list
    stands: too many GPUs can hide an idle one, a wrong one would accuse a busy rank.
    """
    found: set[Place] = set()
    by = "uuid"
    for text in visible:
        entries = [part.strip() for part in text.split(",") if part.strip()]
        if entries and all(e.isascii() and e.isdigit() and len(e) <= MAX_VISIBLE for e in entries):
            by, seen = "number", _numbered([int(entry) for entry in entries], whole)
            places = None if seen is None else [(index, "") for index in seen]
        else:
            places = _named(entries, uuids)
        if places is None:
            return _all(whole)
        found.update(places)
    return Which(tuple(sorted(found)), by) if found else _all(whole)


def by_processes(whole: list[int], tree: set[int], pids: dict[int, list[int] | None]) -> list[int]:
    """Those of ``whole`` on which a process of the worker's tree is at work, as the driver lists them by index;
    none where it does not tell of all of them."""
    if any(pids.get(index) is None for index in whole):
        return []
    return [index for index in whole if not tree.isdisjoint(pids[index] or ())]


def _all(whole: list[int]) -> Which:
    return Which(tuple((index, "") for index in whole), "all")


def _numbered(found: list[int], whole: list[int]) -> list[int] | None:
    absolute = found if set(found) <= set(whole) else None
    relative = [whole[n] for n in found] if max(found) < len(whole) else None
    if absolute is not None and relative is not None and set(absolute) != set(relative):
        return None
    return absolute if absolute is not None else relative


def _named(entries: list[str], uuids: dict[str, Place]) -> list[Place] | None:
    """CUDA takes the beginning of a UUID for it, where it is one GPU's only."""
    found = []
    for entry in entries:
        fits = [place for uuid, place in uuids.items() if uuid.startswith(entry)]
        if len(fits) != 1:
            return None
        found += fits
    return found or None
