"""Our piece of a job's comment: ``[astraeus: stalled since 14:02 UTC, rank 5 on c3]``. Pure text.

What others wrote stays byte for byte. Whether a piece is ours is not guessed from its looks (a user may write
``[astraeus: …]`` too, whole or broken off): only the very texts that we wrote into this job's field, or were
about to write, are taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from astraeus_protocol.findings import Finding

from ..rules.finished import FIELD as FINISHED

START, END = "[astraeus: ", "]"
LIMIT = 400
"""Bytes of a piece, brackets included."""
OTHERS = ("{", "[", "JS1:")
"""How the comments of other tools begin: JSON, and job submit plugins' own format. A text that begins like our
piece and is not ours is a person's."""


def piece(text: str) -> str:
    """``[astraeus: text]``: one line of printable ASCII without ``|`` and ``]``, LIMIT bytes at most."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in " ".join(text.split()))
    plain = plain.replace("|", "/").replace("]", ")").replace("[", "(")
    room = LIMIT - len(START) - len(END)
    if len(plain) > room:
        plain = plain[:room - 3].rstrip() + "..."
    return START + plain + END


def split(text: str, ours: Iterable[str]) -> tuple[str, str]:
    """(what others wrote, our piece that stands in ``text`` or ""). ``ours``: pieces that may stand there.

    Only the last of them goes, and the one space that we put before it, also when somebody wrote on behind it.
    """
    places = [(text.rfind(mine), mine) for mine in ours if mine and mine in text]
    if not places:
        return text, ""
    at, mine = max(places)
    before, after = text[:at], text[at + len(mine):]
    if before and not before.endswith(" "):
        return text, ""  # not as we put it: somebody's copy
    return before[:-1] + after, mine


def with_piece(text: str, mine: str) -> str:
    """``text`` of others with our piece after it; without one where ``mine`` is empty."""
    if not mine:
        return text
    return f"{text} {mine}" if text else mine


def anothers(text: str) -> bool:
    """Whether the text (of others) is another tool's, to be left alone."""
    return text.startswith(OTHERS) and not text.startswith(START.strip())


def clock(at: float, now: float) -> str:
    """``14:02``, with the day before it where it is not today's: ``11-28 14:02``. UTC."""
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%H:%M" if moment.date() == datetime.fromtimestamp(now, UTC).date() else "%m-%d %H:%M")


def place(finding: Finding) -> str:
    """``rank 5 on c3``; ``step 1, rank 5 on c3`` where the worker's name tells its step."""
    step = ""
    if "." in finding.worker:
        step = f"step {finding.step}, "
    if finding.rank is None:
        return f"{step}no rank stands out"
    return f"{step}rank {finding.rank} on {finding.node}"


def open_text(findings: list[Finding], note: str = "") -> str:
    """``stalled since 14:02 UTC, rank 5 on c3 and 1 more, restarting 1/10, cause=stalled``."""
    first = min(findings, key=lambda finding: (finding.since, finding.key))
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    text = f"stalled since {clock(first.since, first.detected_at)} UTC, {place(first)}{more}"
    text += _cause(findings)
    return f"{text}, {note}" if note else text


def _cause(findings: list[Finding]) -> str:
    """``, rank stopped``: the cause that all of them share, without what only its user is to read: a comment is
    everybody's."""
    causes = {"finished but not exited" if one.details.get(FINISHED)
              else str(one.details.get("cause") or "").partition(":")[0] for one in findings}
    return f", {causes.pop()}" if len(causes) == 1 and any(causes) else ""


def closing_text(finding: Finding, until: float, note: str) -> str:
    """``stalled 14:02-14:31, rank 5 on c3, restarted 1/10``."""
    return f"stalled {clock(finding.since, until)}-{clock(until, until)}, {place(finding)}, {note}"
