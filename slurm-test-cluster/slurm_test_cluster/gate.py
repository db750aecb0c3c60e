"""A gate before the controller's Slurm commands: a restart is held at a stage, a command fails or returns half."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_test_cluster.context import HERE
from slurm_test_cluster.hosts import Hosts

GATE_BIN = "/opt/gate"
GATE = "/run/gate"
COMMANDS = ("squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo")


class Gate(Hosts):
    """gate/slurm-command, which says what its files do. The controller has to be started with `[slurm] bin =
    "/opt/gate"`."""

    def install_gate(self) -> None:
        """Put it on ctl, open."""
        self.copy_in("ctl", f"{GATE_BIN}/slurm-command", (HERE / "gate" / "slurm-command").read_text(), mode=0o755)
        links = "; ".join(f"ln -sf slurm-command {GATE_BIN}/{name}" for name in COMMANDS)
        self.run("ctl", f"{links}; rm -rf {GATE}; mkdir -p {GATE}/rules {GATE}/held", check=True)

    def hold(self, rules: Mapping[int, str]) -> None:
        """Job to "STAGE before|after PATTERN"; what is held by another rule of the job goes on."""
        script = "\n".join(
            f"echo '{rule}' >{GATE}/rules/{job}.new && mv {GATE}/rules/{job}.new {GATE}/rules/{job}"
            for job, rule in rules.items()
        )
        if rules:
            self.run("ctl", script, check=True)

    def held(self) -> dict[int, str]:
        """Job to the rule that holds its restart now."""
        found = self.run("ctl", f"cd {GATE}/held && grep -H . * 2>/dev/null").out.splitlines()
        return {int(job): rule for job, _, rule in (line.partition(":") for line in found)}

    def let_go(self) -> None:
        """Nothing is held any more."""
        self.run("ctl", f"rm -f {GATE}/rules/*", check=True)

    def command_fault(self, fault: str) -> None:
        """ "fail", "lost" or "half" for every command from now on; "" for none."""
        self.run("ctl", f"echo '{fault}' >{GATE}/fault" if fault else f"rm -f {GATE}/fault", check=True)

    def sent(self) -> list[tuple[float, str]]:
        """(Unix time, command line) of every command that was to change something."""
        lines = [line.partition(" ") for line in self.logs("ctl", f"{GATE}/log").splitlines()]
        return [(float(at), command) for at, _, command in lines]
