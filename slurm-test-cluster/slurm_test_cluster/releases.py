"""The Slurm releases that the cluster can be, and the Debian suite that packages each."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """One Slurm release: its Debian suite and the version of that suite's python3."""

    slurm: str
    suite: str
    python: str

    @property
    def base_image(self) -> str:
        return f"astraeus-test-base:{self.suite}"

    @property
    def image(self) -> str:
        # Two checkouts on one machine would take each other's image away from under them.
        return f"{os.environ.get('ASTRAEUS_TEST_IMAGE', 'astraeus-test-cluster')}:{self.slurm}"


RELEASES = {
    release.slurm: release
    for release in (
        Release("22.05", "bookworm", "3.11"),
        Release("24.11", "trixie", "3.13"),
        Release("26.05", "forky", "3.14"),
    )
}
DEFAULT_RELEASE = "24.11"


def release_named(name: str) -> Release:
    """The release of that name; ValueError says which there are."""
    try:
        return RELEASES[name]
    except KeyError:
        raise ValueError(f"no Slurm release {name!r} here: say one of {', '.join(RELEASES)}") from None
