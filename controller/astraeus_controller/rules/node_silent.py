"""A node has missed three reports (docs/rules.md, "node_silent"): that proves nothing but its silence."""

from __future__ import annotations

from astraeus_protocol.durations import say_seconds

from . import say
from .conclusion import Conclusion
from .picture import Picture

RULE = "node_silent"


def judge(picture: Picture) -> list[Conclusion]:
    """One conclusion for each silent node that holds workers of a watched step."""
    found = []
    for node, silent_s in zip(picture.job.silent_nodes, picture.job.silent_s, strict=True):
        stale = [w for step in picture.job.steps if step.watched for w in step.workers
                 if w.node == node and w.state == "stale"]
        if not stale:
            continue
        at = picture.now - silent_s
        noun = "worker is" if len(stale) == 1 else "workers are"
        since = say.clock(at, picture.now)
        said = (f"node {node} has not reported since {since}, for {say_seconds(silent_s)}; "
                f"{len(stale)} {noun} stale, which proves nothing about them")
        found.append(Conclusion(
            verdict="node_silent", rule=RULE, step="-", worker=picture.job.run, rank=None, node=node,
            pid=None, since_s=silent_s, since=at, said=said, workers=tuple(w.name for w in stale),
            evidence={"ranks": [w.rank for w in stale]}))
    return found
