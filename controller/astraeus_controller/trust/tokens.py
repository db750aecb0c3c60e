"""Bearer tokens for curl: who and until when, signed with a key that only this controller has."""

from __future__ import annotations

import base64
import hmac
import os
import time
from pathlib import Path

LIFE_S = 3600
PREFIX = "astraeus1"
TOKEN_MAX = 256
KEY_BYTES = 32


class BadToken(Exception):
    """The token opens nothing; the text says why."""


class Tokens:
    """``key``: 32 random bytes. Nothing of a token is kept: it ends by itself after an hour."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def make(self, uid: int, now: float | None = None) -> tuple[str, int]:
        """(token, Unix time of its end) for the user."""
        until = int(time.time() if now is None else now) + LIFE_S
        return f"{PREFIX}.{uid}.{until}.{self._mac(uid, until)}", until

    def uid(self, token: str, now: float | None = None) -> int:
        """Whose it is. Raises BadToken."""
        parts = token.split(".")
        if len(token) > TOKEN_MAX or not token.isascii() or len(parts) != 4 or parts[0] != PREFIX or not (
                parts[1].isdigit() and parts[2].isdigit()):
            raise BadToken("this is no token of this controller")
        uid, until = int(parts[1]), int(parts[2])
        if not hmac.compare_digest(self._mac(uid, until), parts[3]):
            raise BadToken("this is no token of this controller")
        if until <= (time.time() if now is None else now):
            raise BadToken("the token has expired")
        return uid

    def _mac(self, uid: int, until: int) -> str:
        mac = hmac.digest(self.key, f"{PREFIX}\n{uid}\n{until}".encode(), "sha256")
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def kept_key(path: Path) -> bytes:
    """The key in the file, made where there is none: tokens outlive a restart. Raises OSError."""
    try:
        key = path.read_bytes()
        if len(key) == KEY_BYTES and not path.stat().st_mode & 0o077:
            return key
        path.unlink()
    except FileNotFoundError:
        pass
    key = os.urandom(KEY_BYTES)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(key)
    return key
