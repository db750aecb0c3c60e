"""A cluster's life: up, attach, down."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from docker.errors import APIError, NotFound
from docker.types import EndpointConfig

from slurm_test_cluster import image as images
from slurm_test_cluster.astraeus import TOML_PATH, VARIANT_LABEL, Astraeus, default_toml
from slurm_test_cluster.docker_host import ensure_docker
from slurm_test_cluster.faults import Faults
from slurm_test_cluster.faults_disk import DiskFaults
from slurm_test_cluster.faults_report import ReportFaults
from slurm_test_cluster.frameworks import INSIDE as FRAMEWORKS
from slurm_test_cluster.frameworks import Frameworks
from slurm_test_cluster.frameworks import folder as frameworks_folder
from slurm_test_cluster.gate import Gate
from slurm_test_cluster.jobs import Jobs
from slurm_test_cluster.progress import say
from slurm_test_cluster.rails import Rails
from slurm_test_cluster.ranks import Ranks
from slurm_test_cluster.releases import DEFAULT_RELEASE, release_named
from slurm_test_cluster.slurm_conf import slurm_conf
from slurm_test_cluster.variants import DEFAULT_VARIANT, Variant, variant_named
from slurm_test_cluster.waiting import wait_for

LABEL = "astraeus.test-cluster"
GPUS_PER_NODE = 2
FUSE = "/dev/fuse"


class Cluster(Jobs, Ranks, Faults, DiskFaults, ReportFaults, Rails, Frameworks, Gate, Astraeus):
    """One running cluster. `Cluster.up()` makes it, `Cluster.attach()` finds it, `down()` takes it away."""

    @classmethod
    def up(
        cls,
        release: str = DEFAULT_RELEASE,
        prefix: str = "astraeus",
        nodes: int = 4,
        slurm: Mapping[str, object] | None = None,
        build: bool = True,
        fresh: bool = False,
        variant: str = DEFAULT_VARIANT,
    ) -> Cluster:
        """Build what has changed and boot `ctl` and c1 ... c`nodes`, all idle when this returns.

        A running cluster of that prefix with the same image, variant and nodes is taken as it is, unless `fresh`
        or `slurm` (settings for slurm.conf, such as {"KillWait": 20}) is given. `build=False` trusts the image.
        """
        wanted, kind = release_named(release), variant_named(variant)
        client = ensure_docker()
        name = images.build(client, wanted) if build else wanted.image
        cluster = cls(client, prefix, [f"c{index}" for index in range(1, nodes + 1)])
        if not fresh and not slurm and cluster._runs(name, kind):
            say(f"cluster {prefix} is already up")
            return cluster
        cluster.down()
        start = time.monotonic()
        flavour = "" if variant == DEFAULT_VARIANT else f", variant {variant}"
        say(f"booting cluster {prefix}: ctl and {nodes} nodes, Slurm {release}{flavour}")
        cluster._create(name, release, kind, slurm_conf(nodes, {**kind.slurm, **(slurm or {})}))
        cluster._wait_idle(60)
        say(f"cluster {prefix}: all nodes idle after {time.monotonic() - start:.1f} s")
        return cluster

    @classmethod
    def attach(cls, prefix: str = "astraeus") -> Cluster:
        """The running cluster of that prefix; LookupError where there is none."""
        client = ensure_docker()
        found = client.containers.list(filters={"label": f"{LABEL}={prefix}"})
        nodes = [container.labels["astraeus.host"] for container in found]
        if "ctl" not in nodes:
            raise LookupError(f"no cluster {prefix!r} is up: start it with python -m slurm_test_cluster up")
        return cls(client, prefix, sorted(set(nodes) - {"ctl"}))

    @classmethod
    def remove(cls, prefix: str = "astraeus") -> None:
        """Take down whatever there is of that prefix."""
        cls(ensure_docker(), prefix, []).down()

    @property
    def release(self) -> str:
        """The Slurm release, such as 24.11."""
        return str(self.container("ctl").labels["astraeus.release"])

    @property
    def address(self) -> str:
        """The IP address of ctl on the cluster's network, reachable from this host."""
        networks = self.container("ctl").attrs["NetworkSettings"]["Networks"]
        return str(networks[self.prefix]["IPAddress"])

    def down(self) -> None:
        """Remove the cluster's containers, network and home volume; nothing happens where there are none."""
        found = self.client.containers.list(all=True, filters={"label": f"{LABEL}={self.prefix}"})
        if found:
            say(f"taking cluster {self.prefix} down")
        by_name = {container.name: container for container in found}
        self.on_each(by_name, lambda name: by_name[name].remove(force=True, v=True))
        for network in self.client.networks.list(names=[self.prefix]):
            if network.name == self.prefix:
                network.remove()
        with contextlib.suppress(NotFound):
            self.client.volumes.get(f"{self.prefix}-home").remove(force=True)

    def _runs(self, image: str, kind: Variant) -> bool:
        try:
            current = self.client.images.get(image).id
            return all(
                container.status == "running"
                and container.image.id == current
                and container.labels.get(VARIANT_LABEL) == kind.name
                for container in map(self.container, self.hosts)
            )
        except (NotFound, APIError):
            return False

    def _create(self, image: str, release: str, kind: Variant, conf: str) -> None:
        labels = {LABEL: self.prefix}
        self.client.networks.create(self.prefix, driver="bridge", labels=labels)
        for volume in self._volumes:
            self.client.volumes.create(volume, labels=labels)

        def boot(host: str) -> None:
            made = self.client.containers.create(
                image,
                command=["ctl" if host == "ctl" else "node"],
                name=self.container_name(host),
                hostname=host,
                cap_add=list(kind.capabilities),
                # Mounting the store, which AppArmor must not forbid.
                security_opt=["apparmor=unconfined"],
                devices=[f"{FUSE}:{FUSE}:rwm"] if os.path.exists(FUSE) else [],
                environment={"CLUSTER_GPUS": str(GPUS_PER_NODE), "CLUSTER_VARIANT": kind.name},
                network=self.prefix,
                networking_config={self.prefix: EndpointConfig(self.client.api._version, aliases=[host])},
                volumes=self._mounts(host),
                labels={
                    **labels, "astraeus.host": host, "astraeus.release": release, VARIANT_LABEL: kind.name,
                },
                **kind.options,
            )  # fmt: skip
            if kind.cgroup_conf is not None:
                self.copy_in(host, "/etc/slurm/cgroup.conf", kind.cgroup_conf)
            self.copy_in(host, "/etc/slurm/slurm.conf", conf)
            self.copy_in(host, TOML_PATH, default_toml())
            made.start()

        boot("ctl")  # first: its first mount fills the shared home from the image
        self.on_each(self.nodes, boot)

    @property
    def _volumes(self) -> tuple[str, str]:
        """The shared home, and ctl's /run/astraeus with the API's socket in it."""
        return f"{self.prefix}-home", f"{self.prefix}-run"

    def _mounts(self, host: str) -> dict[str, dict[str, str]]:
        shared, run = self._volumes
        # Empty until a scenario asks for a framework: then all clusters see it.
        mounts = {shared: {"bind": "/home", "mode": "rw"},
                  str(frameworks_folder()): {"bind": FRAMEWORKS, "mode": "ro"}}
        return {**mounts, run: {"bind": "/run/astraeus", "mode": "rw"}} if host == "ctl" else mounts

    def node_states(self) -> dict[str, str]:
        """Each node's state as `sinfo` prints it: idle, mixed, allocated, down*, drained, ..."""
        rows = self.run("ctl", ["sinfo", "-h", "-N", "-o", "%N %T"], timeout=10).out.split("\n")
        return {node: state for node, _, state in (row.strip().partition(" ") for row in rows if row.strip())}

    def _wait_idle(self, timeout: float, hosts: Sequence[str] | None = None) -> None:
        wanted = dict.fromkeys(hosts or self.nodes, "idle")
        try:
            wait_for(lambda: self.node_states() == wanted, timeout, 0.3, "all nodes idle", self.node_states)
        except (AssertionError, APIError) as problem:
            tails = {host: self.container(host).logs(tail=5).decode(errors="replace") for host in self.hosts}
            raise RuntimeError(
                f"the cluster did not come up: {problem}; containers say: {tails}"
            ) from problem
