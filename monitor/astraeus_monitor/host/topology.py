"""What is wired to what: the site's topology file, and the one that its own discovery writes.

Both hold lines ``NODE DEVICE PORT SWITCH SWITCH-PORT``; ``#`` begins a comment. sysfs does not tell what is at a
port's other end.
"""

from __future__ import annotations

import os

MAX_BYTES = 16 << 20
Peers = dict[tuple[str, int], str]
"""(device, port) to SWITCH/PORT."""


class TopologyFault(Exception):
    """The file can't be used; the message says what to write."""


def peers(path: str, node: str) -> Peers:
    """What the file says of this node's ports. Raises TopologyFault."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise TopologyFault(f"{path}: {fault.strerror}") from None
    if len(text) > MAX_BYTES:
        raise TopologyFault(f"{path} holds more than 16 MiB")
    found: Peers = {}
    mine = node.encode()
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.partition(b"#")[0].split()
        if not words or (words[0] != mine and len(words) == 5):
            continue
        if len(words) != 5 or not words[2].isdigit() or len(words[2]) > 3:
            raise TopologyFault(f"line {number} of {path} can't be read; write NODE DEVICE PORT SWITCH SWITCH-PORT")
        _, device, port, switch, at = (word.decode(errors="replace") for word in words)
        found[device, int(port)] = "".join(c if c.isprintable() else "?" for c in f"{switch}/{at}")[:128]
    return found
