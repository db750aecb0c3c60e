"""What a cluster may be besides the release of its Slurm: how jobs are held together, and what starts the daemons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# SYS_PTRACE: root reads other users' /proc entries. SYS_ADMIN: slurmd's clone for --export=NONE, and mounts.
# MKNOD: the fake GPUs. NET_ADMIN: cutting the network.
CAPABILITIES = ("SYS_PTRACE", "SYS_ADMIN", "MKNOD", "NET_ADMIN")


@dataclass(frozen=True)
class Variant:
    """One kind of cluster. `options` go to Docker's create call as they are."""

    name: str
    what: str
    slurm: Mapping[str, object] = field(default_factory=dict)
    """Settings of slurm.conf."""
    cgroup_conf: str | None = None
    """cgroup.conf in place of the image's."""
    capabilities: tuple[str, ...] = CAPABILITIES
    options: Mapping[str, Any] = field(default_factory=dict)
    systemd: bool = False
    """systemd is process 1 of each host and starts a node's daemons by their packages' units."""


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("plain", "no cgroups; the daemons are started by a script", options={"init": True}),
        Variant(
            "cgroup",
            "jobs in cgroups of version 1 (proctrack/cgroup, task/cgroup)",
            slurm={
                "ProctrackType": "proctrack/cgroup",
                "TaskPlugin": "task/cgroup",
                "JobAcctGatherType": "jobacct_gather/cgroup",
                "PrologFlags": "Alloc,Contain",
            },
            cgroup_conf="CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n",
            capabilities=(*CAPABILITIES, "SYS_NICE"),
            # A namespace of its own: two clusters' c1 would share one cgroup /slurm_c1 otherwise.
            options={"init": True, "cgroupns": "private"},
        ),
        Variant(
            "systemd",
            "systemd is process 1, with cgroups of version 2, and starts the units of Slurm's packages and of ours",
            # slurmd's own cgroup/v2 refuses a host that has hierarchies of version 1 as well.
            slurm={"PrologFlags": "Alloc,Contain"},
            options={
                "cgroupns": "private",
                "tmpfs": {"/run": "mode=755", "/run/lock": "", "/tmp": "mode=1777"},
                "stop_signal": "SIGRTMIN+3",
            },
            systemd=True,
        ),
    )
}
DEFAULT_VARIANT = "plain"


def variant_named(name: str) -> Variant:
    """The variant of that name; ValueError says which there are."""
    try:
        return VARIANTS[name]
    except KeyError:
        raise ValueError(f"no variant {name!r} of the cluster: say one of {', '.join(VARIANTS)}") from None
