"""What systemd is told by who runs as a unit of ``Type=notify``: sd_notify(3), without its library."""

from __future__ import annotations

import os
import socket

TELL_S = 1.0


def tell(words: str) -> str:
    """Send ``READY=1``, ``WATCHDOG=1``, ``STATUS=…`` to $NOTIFY_SOCKET, a second at most; nothing where systemd did not
    ask. Returns "" or why it could not be told, for a log."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.settimeout(TELL_S)
        try:
            channel.connect("\0" + where[1:] if where.startswith("@") else where)
            channel.send(words.encode())
        except OSError as fault:
            return f"systemd can't be told {words.partition('=')[0]}: {fault.strerror}"
    return ""
