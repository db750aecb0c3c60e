"""``POST /token``: a bearer token for who asks, for programs that know no MUNGE."""

from __future__ import annotations

from datetime import UTC, datetime

from ..trust.readers import UNKNOWN_UID, Reader
from ..trust.tokens import Tokens
from .problem import Problem
from .views import Json


def token(reader: Reader, tokens: Tokens) -> Json:
    """``token``, ``until`` (ISO time) and ``user``. A proxy's user without a uid here gets none."""
    if reader.uid == UNKNOWN_UID:
        raise Problem(403, f"user {reader.user} is not known on the controller's host")
    made, until = tokens.make(reader.uid)
    return {"token": made, "user": reader.user,
            "until": datetime.fromtimestamp(until, UTC).isoformat().replace("+00:00", "Z")}
