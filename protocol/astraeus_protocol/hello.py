"""How a node proves itself, once an hour: a credential beside a report, which makes the session's key.

With MUNGE the node draws the key and encodes ``astraeus-node 1 <node> <nonce> <key>`` for root alone to decode; that
munged calls the encoder root, and from which host, is the proof. With a shared key (sites on auth/slurm) the credential
is ``KEY 1 <node> <time> <nonce> <hex>``, the hex an HMAC with that key, and the session's key another one.
"""

from __future__ import annotations

import hmac
import re

MUNGE_PREFIX, KEY_PREFIX = "MUNGE:", "KEY 1 "
CREDENTIAL_MAX = 4096
"""Bytes of a credential: what munge makes of a hello has 400."""
TTL_S = 60
"""For so long MUNGE's credential holds; it is used at once."""
KEPT_S = 3600.0
"""After so long a node proves itself anew (issue 7.1: once an hour)."""
TAKEN_S = 7200.0
"""For so long a session is taken: an hour of a munged that is down makes no node silent."""
SKEW_S = 300.0
"""How far a node's time of day may be off for its shared key to be taken; MUNGE's own bound is the same."""

_NODE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PAYLOAD = re.compile(rf"astraeus-node 1 ({_NODE}) ([0-9a-f]{{32}}) ([0-9a-f]{{64}})\n?")
_KEY = re.compile(rf"KEY 1 ({_NODE}) ([0-9]{{1,12}}\.[0-9]{{3}}) ([0-9a-f]{{32}}) ([0-9a-f]{{64}})")


def payload(node: str, nonce: str, key: bytes) -> str:
    """What MUNGE encodes."""
    return f"astraeus-node 1 {node} {nonce} {key.hex()}"


def read_payload(text: str) -> tuple[str, str, bytes] | None:
    """(node, nonce, key) of what MUNGE decoded; None where it is no hello: say, a credential made for Slurm."""
    found = _PAYLOAD.fullmatch(text)
    return (found[1], found[2], bytes.fromhex(found[3])) if found else None


def with_key(shared: bytes, node: str, nonce: str, wall: float) -> tuple[str, bytes]:
    """(credential, the session's key) of a site with a shared key. ``wall``: Unix time."""
    said = f"{node} {wall:.3f} {nonce}"
    return f"{KEY_PREFIX}{said} {_mac(shared, 'hello', said).hex()}", _mac(shared, "session", said)


def read_key(credential: str, keys: list[bytes]) -> tuple[str, float, str, bytes] | None:
    """(node, Unix time, nonce, the session's key) where one of the keys made it; None where none did."""
    found = _KEY.fullmatch(credential)
    if not found:
        return None
    node, wall, nonce, mac = found.groups()
    said = f"{node} {wall} {nonce}"
    for shared in keys:
        if hmac.compare_digest(_mac(shared, "hello", said).hex(), mac):
            return node, float(wall), nonce, _mac(shared, "session", said)
    return None


def _mac(shared: bytes, what: str, said: str) -> bytes:
    return hmac.digest(shared, f"{what}\n{said}".encode(), "sha256")
