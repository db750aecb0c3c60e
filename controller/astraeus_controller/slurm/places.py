"""Where a job may run, as squeue and sinfo print it: what it names, what it excludes, what its partition has."""

from __future__ import annotations

import re

import msgspec

from .parse import NOTHING, records

PLACES = ("%A", "%n", "%x", "%f", "%v")
"""Job, required nodes, excluded nodes, features, reservation. ``-O`` knows no ExcNodes on 22.05."""
NODES = "%R|%N|%T|%c|%m|%G|%f"
"""Partition, node, state, CPUs, MiB, gres, features: words of the site, without blanks or bars."""
USABLE = ("idle", "mixed", "allocated", "completing", "planned")
"""States of a node that takes jobs, or will when those on it are over."""
_EXCLUDED = re.compile(r"(?m)^   ReqNodeList=\S+ ExcNodeList=(\S+)$")
ASLEEP = "~#%"
"""Behind a state: powered down, or on its way up or down; Slurm wakes such a node for a job."""


class Places(msgspec.Struct, frozen=True):
    """"" for none. squeue sorts and folds the lists: ``c4,c2`` is ``c[2,4]``."""

    required: str = ""
    excluded: str = ""
    features: str = ""
    reservation: str = ""


class NodeRow(msgspec.Struct, frozen=True):
    """A node of a partition. ``memory``: MiB."""

    partition: str
    name: str
    state: str
    cpus: int
    memory: int
    gres: str
    features: str

    @property
    def usable(self) -> bool:
        """``*`` behind a state: it does not answer; ``$``, ``@``, ``^``, ``!``: maintenance, a reboot, power off."""
        return self.state.rstrip(ASLEEP + "-+") in USABLE

    def serves_like(self, other: NodeRow, *, features: bool) -> bool:
        """Whether what ran on ``other`` can run here. ``features``: the job asks for some."""
        return (self.cpus >= other.cpus and self.memory >= other.memory and self.gres == other.gres
                and (not features or self.features == other.features))


def places_format(mark: str) -> str:
    """Argument of ``squeue -o``."""
    return "".join(field + mark for field in PLACES)


def places(text: str, mark: str, job: int) -> Places | None:
    """Of ``job``; None where squeue does not list it. Raises parse.Garbled."""
    for number, *lists in records(text, mark, len(PLACES)):
        if number == str(job):
            return Places(*("" if value in NOTHING else value for value in lists))
    return None


def excluded_texts(text: str) -> list[str]:
    """Out of ``scontrol show job``; "" for none."""
    return ["" if found in NOTHING else found for found in _EXCLUDED.findall(text)]


def nodes(text: str) -> tuple[NodeRow, ...]:
    """What can't be read is no node: it is not counted on."""
    found = []
    for line in text.splitlines():
        values = line.split("|")
        if len(values) == 7 and values[3].isdigit() and values[4].isdigit():
            partition, name, state, cpus, memory, gres, features = values
            found.append(NodeRow(partition, name, state, int(cpus), int(memory), gres, features))
    return tuple(found)
