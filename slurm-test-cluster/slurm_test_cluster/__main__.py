"""python -m slurm_test_cluster up|down|status|shell|rebuild|build"""

from __future__ import annotations

import argparse
import os
import sys

from slurm_test_cluster import image as images
from slurm_test_cluster.cluster import Cluster
from slurm_test_cluster.docker_host import NoDocker, ensure_docker
from slurm_test_cluster.releases import DEFAULT_RELEASE, RELEASES, release_named
from slurm_test_cluster.variants import DEFAULT_VARIANT, VARIANTS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slurm_test_cluster", description="A real Slurm cluster in Docker containers."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--prefix", default="astraeus", help="name of the cluster (default: astraeus)")
        return sub

    for name, text in (
        ("up", "build what has changed and boot; a running cluster that is up to date stays"),
        ("rebuild", "build what has changed and boot anew in any case"),
        ("build", "build the image only"),
    ):
        sub = command(name, text)
        sub.add_argument("--release", default=DEFAULT_RELEASE, choices=sorted(RELEASES), help="Slurm release")
        sub.add_argument(
            "--variant", default=DEFAULT_VARIANT, choices=sorted(VARIANTS),
            help="; ".join(f"{variant.name}: {variant.what}" for variant in VARIANTS.values()),
        )  # fmt: skip
        sub.add_argument("--nodes", type=int, default=4, help="number of nodes (default: 4)")
    command("down", "remove the cluster's containers, network and homes")
    command("status", "say what runs")
    shell = command("shell", "a shell inside")
    shell.add_argument("--host", default="ctl", help="ctl, c1, c2, ... (default: ctl)")
    shell.add_argument("--user", default="root", help="root, alice or bob (default: root)")
    return parser


def _status(prefix: str) -> int:
    cluster = Cluster.attach(prefix)
    print(f"cluster {prefix}, Slurm {cluster.release}, ctl at {cluster.address}")
    print(cluster.run("ctl", "sinfo -N -l; squeue").out.rstrip())
    controller = cluster.controller_pid()
    print(f"astraeus-controller: {f'PID {controller}' if controller else 'not running'}")
    for node, pid in cluster.on_each(cluster.nodes, cluster.monitor_pid).items():
        print(f"astraeus-monitor on {node}: {f'PID {pid}' if pid else 'not running'}")
    return 0


def main() -> int:
    options = _parser().parse_args()
    try:
        if options.command in ("up", "rebuild"):
            Cluster.up(
                options.release, options.prefix, options.nodes,
                fresh=options.command == "rebuild", variant=options.variant,
            )  # fmt: skip
        elif options.command == "build":
            images.build(ensure_docker(), release_named(options.release))
        elif options.command == "down":
            Cluster.remove(options.prefix)
        elif options.command == "status":
            return _status(options.prefix)
        else:
            name = f"{options.prefix}-{options.host}"
            os.execvp(
                "docker", ["docker", "exec", "-it", "-u", options.user, "-w", "/home", name, "bash", "-l"]
            )
    except (NoDocker, LookupError, RuntimeError) as problem:
        print(f"slurm_test_cluster: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
