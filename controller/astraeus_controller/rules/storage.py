"""Who waits for storage, and for which store (docs/rules.md, "Storage")."""

from __future__ import annotations

from collections.abc import Sequence

from astraeus_protocol.readings import Wait

from .limits import D_STATE_S
from .picture import ProcessView, WorkerView

SHARED = frozenset({"nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "gpfs", "beegfs", "9p", "fuse", "fuseblk",
                    "wekafs", "panfs", "orangefs", "pvfs2", "afs"})
"""File systems whose source names the same store on every node; of others, a local disk's, it does not."""


def storage_wait(worker: WorkerView, process: ProcessView) -> Wait | None:
    """What the process has waited for, where that is storage, for half a minute or more."""
    wait = process.wait
    if wait is None or not wait.kind or wait.s < D_STATE_S or worker.state != "running":
        return None
    return wait


def storage_waits(workers: Sequence[WorkerView]) -> list[tuple[WorkerView, ProcessView, Wait]]:
    """Every such wait of these workers."""
    return [(worker, process, wait) for worker in workers for process in worker.processes
            if (wait := storage_wait(worker, process))]


def stores(workers: Sequence[WorkerView]) -> list[str]:
    """Names of the stores that they wait for: ``store1:/export``; only of shared ones, and each once."""
    return sorted({wait.mount for _, _, wait in storage_waits(workers) if _names_a_store(wait)})


def _names_a_store(wait: Wait) -> bool:
    family, _, kind = wait.kind.partition(".")
    return family in SHARED and wait.mount not in ("", "none", family, kind)
