"""Whether a process stands still because its cgroup is frozen: a job that Slurm suspended, mostly."""

from __future__ import annotations

from .cgroups import CgroupFiles, Cgroups


def is_frozen(cgroups: Cgroups, files: CgroupFiles) -> bool:
    """Whether one of a process's cgroups is frozen, version 2 or 1."""
    return any(_frozen(controllers, path, files) for controllers, path in cgroups)


def _frozen(controllers: list[str], path: str, files: CgroupFiles) -> bool:
    """One hierarchy. A kernel may name one that is mounted nowhere: no word on the others."""
    if not controllers:
        return any("frozen 1" in files.text(f"{hybrid}{path}/cgroup.events") for hybrid in ("", "/unified"))
    return "freezer" in controllers and files.text(f"/freezer{path}/freezer.state").strip() == "FROZEN"
