"""Who speaks: HMAC-SHA256 with a key that only root reads.

A report carries ``Astraeus-Signature: v1 <hex>`` over ``report\\n<node>\\n<nonce>\\n<body>``; its reply one over
``reply\\n<node>\\n<nonce>\\n<body>``, so that neither can be replayed as the other or for another node.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

HEADER = "Astraeus-Signature"
NODE_HEADER = "Astraeus-Node"
NONCE_HEADER = "Astraeus-Nonce"
KEY_MIN = 32


class KeyFault(Exception):
    """The key file can't be used; the text says why and what to do."""


def read_key(path: str | Path) -> bytes:
    """Key from ``path``: at least 32 bytes, a file of root (or ours) that nobody else can read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as fault:
        raise KeyFault(f"can't read the report key {path}: {fault.strerror}; "
                       f"make one: head -c 48 /dev/urandom | base64 > {path}; chmod 600 {path}") from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            raise KeyFault(f"the report key {path} must be a file that only its owner reads: chmod 600 {path}")
        key = file.read(4096).strip()
    if len(key) < KEY_MIN:
        raise KeyFault(f"the report key {path} is shorter than {KEY_MIN} bytes; "
                       f"make one: head -c 48 /dev/urandom | base64 > {path}")
    return key


def sign(key: bytes, kind: str, node: str, nonce: str, body: bytes) -> str:
    """Value of the signature header; ``kind`` is ``report`` or ``reply``."""
    text = f"{kind}\n{node}\n{nonce}\n".encode()
    return "v1 " + hmac.digest(key, text + body, "sha256").hex()


def verify(key: bytes, kind: str, node: str, nonce: str, body: bytes, signature: str) -> bool:
    """Whether ``signature`` is ours for exactly this; takes the same time whatever is wrong."""
    return hmac.compare_digest(sign(key, kind, node, nonce, body), signature)
