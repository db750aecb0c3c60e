"""slurm.conf of one cluster: the image's file with the number of nodes and single settings changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_test_cluster.context import HERE

TEMPLATE = HERE / "image" / "etc" / "slurm" / "slurm.conf"


def slurm_conf(nodes: int, settings: Mapping[str, object] | None = None, text: str | None = None) -> str:
    """The file's text for `nodes` nodes; `settings` replaces or adds `Key=value` lines; None removes one."""
    result = TEMPLATE.read_text() if text is None else text
    result = re.sub(r"^NodeName=c\[1-\d+\]", f"NodeName=c[1-{nodes}]", result, flags=re.MULTILINE)
    for key, value in (settings or {}).items():
        line = "" if value is None else f"{key}={value}\n"
        result, changed = re.subn(rf"^{re.escape(key)}=.*\n", lambda _: line, result, flags=re.MULTILINE)  # noqa: B023
        if not changed:
            result = line + result
    return result
