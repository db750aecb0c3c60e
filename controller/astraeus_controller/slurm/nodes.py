"""What the controller asks of Slurm about nodes and tells it: a short, fixed list of commands.

``sinfo -O field:0MARK`` prints a field whole, byte for byte, on all releases, as squeue does of jobs. A reason is kept
only on a node that is drained, down or failing: Slurm frees it again of any other.
"""

from __future__ import annotations

import re
import secrets

import msgspec

from . import parse
from .command import Away, Commands, Refused

FIELDS = ("NodeList", "StateLong", "Reason", "Comment")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""A node's name, as it may stand in a command."""
OPERATORS = ("Operator", "Administrator")
"""Slurm's admin levels of those who may drain nodes."""
OUT = ("drain", "down", "fail", "boot", "maint", "reboot", "power")
"""How states begin of nodes that are out of service, or on their way: their reason is somebody's."""


class NodeText(msgspec.Struct, frozen=True):
    """One node. ``state``: drained, mixed*, …; "" for no reason or comment."""

    name: str
    state: str
    reason: str
    comment: str

    @property
    def drained(self) -> bool:
        """Taken out of service, also while jobs still run there."""
        return self.state.startswith("drain")

    @property
    def out(self) -> bool:
        """Not in service, for whatever reason."""
        return self.state.startswith(OUT)


class Nodes:
    """Slurm's nodes by command line. Every method raises Refused or Away (slurm.command)."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    async def show(self, node: str) -> NodeText | None:
        """One node; None where Slurm does not know it (or no partition has it)."""
        mark = f"\x1e{secrets.token_hex(8)}\x1f"
        text = await self.commands.run("sinfo", "-h", "-N", "-n", node, "-O",
                                       ",".join(f"{field}:0{mark}" for field in FIELDS))
        try:
            found = parse.records(text, mark, len(FIELDS))
        except parse.Garbled:
            raise Away("sinfo's answer was cut off") from None
        for name, state, reason, comment in found:  # one line for each of its partitions
            if name == node:
                return NodeText(name, state, "" if reason == "none" else reason, "" if comment == "(null)" else comment)
        return None

    async def comment(self, node: str, text: str) -> None:
        """Set its Comment, whole."""
        await self.commands.run("scontrol", "update", f"nodename={node}", f"comment={text}")

    async def drain(self, node: str, reason: str) -> None:
        """Take it out of service: its jobs run on, none begins."""
        await self.commands.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    async def resume(self, node: str) -> None:
        """Back into service; its reason goes."""
        await self.commands.run("scontrol", "update", f"nodename={node}", "state=resume")

    async def operates(self, user: str) -> bool:
        """Whether Slurm's accounting makes the user an operator or administrator; not where there is none."""
        if not NAME.fullmatch(user):
            return False
        try:
            text = await self.commands.run("sacctmgr", "-n", "-P", "show", "user", f"name={user}", "format=AdminLevel")
        except Refused:
            return False
        return any(line.strip() in OPERATORS for line in text.splitlines())
