"""``python -m astraeus_controller.config_docs``: makes docs/config.md out of the table of settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from . import config

HEAD = """# Settings

`/etc/astraeus/astraeus.toml` beside the controller. Every key has a default, so the file may be empty or absent;
`astraeus-controller config check` reads it and says in one sentence what can't be used. This page is made from the
table in `controller/astraeus_controller/config.py` (`python -m astraeus_controller.config_docs`).
"""
SECTIONS = (
    ("", config.Config, "At the top of the file."),
    ("controller", config.Controller, "Where it listens and what it keeps."),
    ("trust", config.Trust, "Who may say and see what ([SECURITY](../SECURITY.md))."),
    ("slurm", config.Slurm, "How Slurm is asked and told."),
    ("watch", config.Watch, "What holds for a run that says nothing itself. `[partition.NAME]` holds the same keys "
                            "and goes over it for that partition."),
    ("unwatched", config.Unwatched, "Shell globs; a job that matches one is not watched unless it asks."),
    ("restart", config.Restart, "Bounds on what the controller does by itself."),
    ("incidents", config.Incidents, "Jobs that stall together are one incident, and none of them is stopped "
                                    "([rules](rules.md#incidents)). `[restart] breaker_jobs` and `breaker_share` make "
                                    "one, too."),
    ("straggler", config.Straggler, "One worker that holds its gang back ([rules](rules.md#straggler))."),
    ("nodes", config.Nodes, "What happens to a node whose hardware holds a job back ([nodes](nodes.md))."),
)
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", list[str]: "list of text"}


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, struct, words in SECTIONS:
        parts.append(f"## {f'`[{name}]`' if name else 'Top'}\n\n{words}\n\n{_table(struct)}")
    parts.append("## `[monitor]`\n\nThe monitors' own keys; the controller passes them by, so that one file may serve "
                 "both: [monitor.toml](monitor.toml) has each with its default.\n")
    parts.append("## `[cli]`\n\n`api = \"http://HOST:6832\"`: where `astraeus` asks on hosts without the controller's "
                 "socket (login nodes); there [controller] `api_listen` is to take more than loopback.\n")
    return "\n".join(parts)


def _table(struct: type[msgspec.Struct]) -> str:
    hints = get_type_hints(struct, include_extras=True)
    rows = ["| key | type | default | what it means |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue  # a section of its own
        plain, *notes = get_args(hint)
        meta: msgspec.Meta = notes[0]
        rows.append(f"| `{field.name}` | {TYPES[plain]}{_limits(meta)} | `{_default(field)}` | {meta.description} |")
    return "\n".join(rows).replace("\\|", "or") + "\n"


def _limits(meta: msgspec.Meta) -> str:
    low, high = meta.ge, meta.le
    if meta.pattern:
        return ": " + " or ".join(f"`{word}`" for word in meta.pattern.strip("^$()").split("|"))
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    return f", {low:g} or more" if low is not None else ""


def _default(field: Any) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    return json.dumps(value)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/config.md").write_text(markdown(), encoding="utf-8")
