"""What an open finding becomes when more is known of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from astraeus_protocol.findings import Finding

from ..rules.cause import surer
from ..rules.conclusion import Conclusion
from ..rules.finished import FIELD as FINISHED
from ..rules.words import proven
from .progress import ranks_of


def better_of(finding: Finding, conclusion: Conclusion) -> tuple[Finding, bool] | None:
    """(the finding as it is to be now, whether history is to say so); None where there is nothing new.

    News are: the guilty rank, last words that say that the training is over (or no longer do), words that prove it, a
    store that is waited for, a surer cause. A store once waited for stays named: that it heals does not end the stall
    at once. Where ranks are in their Python code becomes part of the finding, and no line of history; nor does a
    suspect's cause.
    """
    details, told = finding.details, conclusion.evidence
    stores = sorted(waits_on(details) | waits_on(told))
    cause = {key: told[key] for key in ("cause", "cause_kind") if key in told}
    surer_now = surer(told.get("cause_kind"), details.get("cause_kind"))
    lost = conclusion.rank is None and finding.rank is not None
    before = (finding.rank, finding.pid, details.get(FINISHED), proven(details))
    if lost or before == (conclusion.rank, conclusion.pid, told.get(FINISHED), proven(told) or proven(details)):
        news = not waits_on(told) <= waits_on(details)
        places = bool(told.get("where")) and not details.get("where")
        if not (news or surer_now or places):
            return None
        more: dict[str, object] = {"no_progress_s": round(conclusion.since_s, 1)}
        more |= {"waits_on": stores, "on_storage": told.get("on_storage", [])} if news else {}
        more |= cause if surer_now else {}
        more |= {key: told[key] for key in ("where", "stacks") if key in told} if places else {}
        said = finding.said if lost or conclusion.rank != finding.rank else conclusion.said
        tell = news or (surer_now and finding.kind == "stalled")
        return msgspec.structs.replace(finding, said=said, details=details | more), tell
    void = details.get("cause_kind") == "finished" and not told.get(FINISHED)
    stands = surer(details.get("cause_kind"), told.get("cause_kind")) and not void
    if stands and finding.rank in (None, conclusion.rank):  # another rank has a cause of its own
        cause = {key: details[key] for key in cause if key in details}
    kept = {key: value for key, value in details.items() if key != FINISHED}
    return msgspec.structs.replace(
        finding, rule=conclusion.rule, worker=conclusion.worker, rank=conclusion.rank, node=conclusion.node,
        pid=conclusion.pid, said=conclusion.said, details=kept | told | cause | {
            "ranks": sorted(ranks_of(finding)), "waits_on": stores,
            "no_progress_s": round(conclusion.since_s, 1)}), True


def waits_on(details: Mapping[str, object]) -> set[str]:
    """Stores in a finding's or a conclusion's evidence."""
    stores = details.get("waits_on")
    return set(map(str, stores)) if isinstance(stores, list) else set()
