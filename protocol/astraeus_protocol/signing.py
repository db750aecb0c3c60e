"""Who speaks: HMAC-SHA256 with the session key of a node (``hello``), over all that is said.

A report carries ``Astraeus-Signature: v2 <hex>`` over ``report\\n<node>\\n<nonce>\\n<time>\\n<body>``; its reply one
over ``reply\\n<node>\\n<nonce>\\n\\n<body>``, so that neither can be replayed as the other, or for another node or
report. ``time`` is the sender's CLOCK_BOOTTIME in milliseconds: of a report that was held back it tells the age,
whatever either side's time of day is.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

HEADER = "Astraeus-Signature"
NODE_HEADER = "Astraeus-Node"
NONCE_HEADER = "Astraeus-Nonce"
TIME_HEADER = "Astraeus-Time"
CREDENTIAL_HEADER = "Astraeus-Credential"
"""Beside the first report of a session: what proves the node and makes the session's key (``hello``)."""
KEY_MIN = 32
FILE_MAX = 16384


class KeyFault(Exception):
    """The key file can't be used; the text says why and what to do."""


def read_keys(path: str | Path) -> list[bytes]:
    """Keys in ``path``, one a line, the newest last: a file of root (or ours) that nobody else can read, each of at
    least 32 bytes. Empty lines and such that begin with ``#`` are none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as fault:
        raise KeyFault(f"can't read the report key {path}: {fault.strerror}; "
                       f"make one: head -c 48 /dev/urandom | base64 -w0 > {path}; chmod 600 {path}") from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            raise KeyFault(f"the report key {path} must be a file that only its owner reads: chmod 600 {path}")
        lines = [line.strip() for line in file.read(FILE_MAX).splitlines()]
    keys = [line for line in lines if line and not line.startswith(b"#")]
    if not keys or any(len(key) < KEY_MIN for key in keys):
        raise KeyFault(f"the report key {path} is shorter than {KEY_MIN} bytes; "
                       f"make one: head -c 48 /dev/urandom | base64 -w0 > {path}")
    return keys


def sign(key: bytes, kind: str, node: str, nonce: str, body: bytes, time: str = "") -> str:
    """Value of the signature header; ``kind`` is ``report`` or ``reply``."""
    text = f"{kind}\n{node}\n{nonce}\n{time}\n".encode()
    return "v2 " + hmac.digest(key, text + body, "sha256").hex()


def verify(key: bytes, kind: str, node: str, nonce: str, body: bytes, signature: str, time: str = "") -> bool:
    """Whether ``signature`` is ours for exactly this; takes the same time whatever is wrong."""
    return signature.isascii() and hmac.compare_digest(sign(key, kind, node, nonce, body, time), signature)
