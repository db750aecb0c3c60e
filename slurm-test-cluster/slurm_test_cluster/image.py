"""Building the cluster's image: base image, Python packages, then the Dockerfile's stages."""

from __future__ import annotations

import os
import subprocess
import time

import docker

from slurm_test_cluster.context import HERE, ROOT, build_context
from slurm_test_cluster.progress import heartbeat, say
from slurm_test_cluster.releases import Release
from slurm_test_cluster.wheels import ensure_wheelhouse

PROXIES = ("http_proxy", "https_proxy", "no_proxy")


class BuildFailed(RuntimeError):
    """The image could not be built; the message ends with the build's last lines."""


def _ensure_base(client: docker.DockerClient, release: Release) -> None:
    if client.images.list(name=release.base_image):
        return
    with heartbeat(f"getting a Debian {release.suite} base image"):
        done = subprocess.run(
            [str(HERE / "make-base-image"), release.suite],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    for line in done.stdout.splitlines():
        say(f"  {line}")
    if done.returncode:
        raise BuildFailed(done.stderr.strip() or "make-base-image failed")


def _proxy_arguments() -> dict[str, str]:
    """The host's web proxy, which a build may need for Debian's packages; it does not stay in the image."""
    found = {}
    for name in PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if value:
            found[name] = value
    return found


def build(client: docker.DockerClient, release: Release) -> str:
    """Build the image of `release` as far as it has changed, and return its name."""
    start = time.monotonic()
    _ensure_base(client, release)
    context = build_context(ensure_wheelhouse(release, ROOT / "pyproject.toml"))
    tail: list[str] = []
    with heartbeat(f"building {release.image} (Slurm {release.slurm} on Debian {release.suite})") as note:
        stream = client.api.build(
            fileobj=context,
            custom_context=True,
            tag=release.image,
            buildargs={"SUITE": release.suite, **_proxy_arguments()},
            network_mode="host",
            rm=True,
            forcerm=True,
            decode=True,
        )
        for message in stream:
            if "error" in message:
                raise BuildFailed("\n".join([*tail[-25:], str(message["error"])]))
            for line in str(message.get("stream", "")).splitlines():
                tail = [*tail[-60:], line]
                note.detail = line or note.detail
    say(f"{release.image} is ready after {time.monotonic() - start:.0f} s")
    return release.image
