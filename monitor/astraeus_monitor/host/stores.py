"""What a wait channel and a mount table say of storage: is this a wait for a file system, and for which one. Pure.

Nothing here, or in who asks, touches the file system itself: a question to one that hangs would hang, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("fuse", ("request_wait_answer", "wait_answer_interruptible", "fuse_", "__fuse_"),
     ("fuse", "fuseblk", "fuse.", "virtiofs")),
    ("nfs", ("rpc_", "__rpc_", "nfs_", "nfs3_", "nfs4_", "__nfs", "pnfs_", "xprt_"), ("nfs", "nfs4")),
    ("lustre", ("ptlrpc_", "cl_sync_io_wait", "cl_lock_", "ldlm_", "osc_", "mdc_", "lov_", "ll_"), ("lustre",)),
    ("ceph", ("ceph_", "__ceph_"), ("ceph",)),
    ("cifs", ("cifs_", "smb2_", "smb_", "compound_send_recv", "SendReceive"), ("cifs", "smb3")),
    ("gpfs", ("cxiWaitEventWait", "cxi", "kxWait"), ("gpfs",)),
    ("beegfs", ("FhgfsOps", "_FhgfsOps", "beegfs_"), ("beegfs",)),
    ("9p", ("p9_client_", "p9_virtio_", "v9fs_"), ("9p",)),
    ("autofs", ("autofs_",), ("autofs",)),
)
"""(family, starts of wait channels that only it has, starts or names of its file systems' types)."""
ANY = ("folio_wait_", "__folio_lock", "wait_on_page_", "__lock_page", "__wait_on_page", "wait_on_buffer",
       "__wait_on_buffer", "io_schedule", "bit_wait_io", "submit_bio_wait", "percpu_rwsem_wait", "rwsem_down_",
       "inode_dio_wait", "__inode_dio_wait", "balance_dirty_pages", "wb_wait_for_completion", "wait_on_commit",
       "iomap_", "blk_", "__blkdev_", "blkdev_", "jbd2_", "ext4_", "xfs_", "btrfs_")
"""Starts of wait channels of files in general: the open file tells of which file system."""
PSEUDO = frozenset({
    "proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "ramfs", "rootfs", "hugetlbfs", "cgroup", "cgroup2", "bpf",
    "debugfs", "tracefs", "securityfs", "pstore", "configfs", "fusectl", "binfmt_misc", "mqueue", "nsfs", "efivarfs",
    "selinuxfs", "rpc_pipefs"})
"""File systems that store nothing: what hangs on a file of theirs is a device or the kernel."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """A line of /proc/PID/mountinfo."""

    id: int
    device: str
    """Major and minor number: the same for every place where a file system is mounted."""
    at: str
    kind: str
    source: str


def parse_mounts(data: bytes) -> list[Mount]:
    """A mount table; lines that are not whole are left out."""
    found = []
    for line in data.decode(errors="replace").splitlines():
        fields = line.split(" ")
        try:
            dash = fields.index("-", 6)
            kind, source = fields[dash + 1], fields[dash + 2]
            found.append(Mount(int(fields[0]), fields[2], _plain(fields[4]), _plain(kind), _plain(source)))
        except (ValueError, IndexError):
            continue
    return found


def family_of(channel: str) -> str | None:
    """``nfs``; "" for a channel of files in general; None where nobody waits for storage there."""
    name = channel.partition(".")[0]  # folio_wait_bit_common.constprop.0
    for family, channels, _ in FAMILIES:
        if name.startswith(channels):
            return family
    return "" if name.startswith(ANY) else None


def store_of(channel: str, mount_id: int | None, mounts: Iterable[Mount]) -> tuple[str, Mount | None]:
    """(kind of file system, mount) that is waited for; ("", None): for none, or it can't be told for which.

    ``mount_id``: of the open file in the system call's arguments. Where no open file tells it, the only mount of
    the channel's own family does; of several, none is taken: the kind is then the family.
    """
    family = family_of(channel)
    if family is None:
        return "", None
    mounts = list(mounts)
    own = next((mount for mount in mounts if mount.id == mount_id), None)
    if not family:
        return ("", None) if own is None or own.kind in PSEUDO else (own.kind, own)
    if own is not None and _is_of(family, own.kind):
        return own.kind, own
    among = [mount for mount in mounts if _is_of(family, mount.kind)]
    if len({mount.device for mount in among}) == 1:
        return among[0].kind, min(among, key=lambda mount: (len(mount.at), mount.at))
    return family, None


def _is_of(family: str, kind: str) -> bool:
    kinds = next(kinds for name, _, kinds in FAMILIES if name == family)
    return any(kind == one or (one.endswith(".") and kind.startswith(one)) for one in kinds)


def _plain(text: str) -> str:
    """Without the octal escapes of blanks and the like."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
