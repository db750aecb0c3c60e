"""A disk that is full, below one folder of one host."""

from __future__ import annotations

import shlex

from slurm_test_cluster.hosts import Hosts


class DiskFaults(Hosts):
    """A small file system of its own is laid over the folder, with what is in it: only this folder is hit.

    Whoever holds files there open keeps the old ones, so end him first, and start him again after ``own_disk``.
    """

    def own_disk(self, host: str, folder: str, mib: int = 16) -> None:
        """The folder lies on a disk of so many MiB from now on."""
        place = shlex.quote(folder)
        self.run(host, ["sh", "-c", f"set -e; mkdir -p {place}; cp -a {place} {place}.was; "
                        f"mount -t tmpfs -o size={mib}m,mode=$(stat -c %a {place}) tmpfs {place}; "
                        f"chown --reference={place}.was {place}; cp -a {place}.was/. {place}/; rm -rf {place}.was"],
                 check=True)  # fmt: skip

    def fill_disk(self, host: str, folder: str) -> None:
        """Not a byte is free any more."""
        self.run(host, ["sh", "-c", f"dd if=/dev/zero of={shlex.quote(folder)}/.full bs=4k 2>/dev/null; "
                        f"test $(df --output=avail {shlex.quote(folder)} | tail -1) = 0"], check=True)  # fmt: skip

    def empty_disk(self, host: str, folder: str) -> None:
        """There is room again."""
        self.run(host, ["rm", "-f", f"{folder}/.full"], check=True)

    def take_disk_away(self, host: str, folder: str) -> None:
        """Back to what was below it, with what is in it now."""
        place = shlex.quote(folder)
        self.run(host, ["sh", "-c", f"set -e; mkdir {place}.now; cp -a {place}/. {place}.now/; umount -l {place}; "
                        f"rm -rf {place}/*; cp -a {place}.now/. {place}/; rm -rf {place}.now"], check=True)  # fmt: skip
