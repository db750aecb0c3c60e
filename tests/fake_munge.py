"""munge and unmunge without munged: credentials that anybody could forge, decoded in munged's own words."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from pathlib import Path

NAMES = {0: "root", 1001: "alice", 1002: "bob"}
REPLIED = """STATUS:           {status}
ENCODE_HOST:      {host} ({address})
ENCODE_TIME:      2026-12-01 12:53:25 +0000 ({at})
DECODE_TIME:      2026-12-01 12:53:25 +0000 ({now})
TTL:              60
CIPHER:           aes128 (4)
MAC:              sha256 (5)
ZIP:              none (0)
UID:              {name} ({uid})
GID:              {name} ({uid})
LENGTH:           {length}

{payload}"""


def credential(payload: str, *, uid: int = 0, host: str = "c1", address: str = "10.0.0.1", only: int | None = 0) -> str:
    """What munge would print. ``only``: the uid that may decode it."""
    said = {"payload": payload, "uid": uid, "host": host, "address": address, "only": only, "at": int(time.time()),
            "nonce": os.urandom(8).hex()}
    return f"MUNGE:{base64.b64encode(json.dumps(said).encode()).decode()}:"


def install(folder: Path, *, uid: int = 0, host: str = "c1", address: str = "10.0.0.1") -> None:
    """``munge`` and ``unmunge`` in the folder. Where a file ``dead`` lies there, too, munged does not answer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("munge", "unmunge"):
        program = folder / name
        program.write_text(f"#!/bin/sh\nFAKE={folder} FAKE_UID={uid} FAKE_HOST={host} FAKE_ADDRESS={address} "
                           f"exec {sys.executable} -S {__file__} {name} \"$@\"\n")
        program.chmod(0o755)


def main() -> int:
    """As a command."""
    name, *options = sys.argv[1:]
    folder = Path(os.environ["FAKE"])
    with open(folder / "calls", "a", encoding="utf-8") as calls:
        calls.write(f"{name} {' '.join(options)}\n")
    if (folder / "dead").exists():
        print(f'{name}: Error: Failed to access "/run/munge/munge.socket.2": No such file', file=sys.stderr)
        return 6
    text = sys.stdin.read()
    if name == "munge":
        only = next((one.partition("=")[2] for one in options if one.startswith("--restrict-uid=")), None)
        print(credential(text, uid=int(os.environ["FAKE_UID"]), host=os.environ["FAKE_HOST"],
                         address=os.environ["FAKE_ADDRESS"], only={"root": 0, None: None}.get(only, -1)))
        return 0
    said = json.loads(base64.b64decode(text.strip().removeprefix("MUNGE:").removesuffix(":")))
    used = folder / f"used-{said['nonce']}"
    status = "Replayed credential (17)" if used.exists() else "Success (0)"
    used.touch()
    print(REPLIED.format(status=status, now=int(time.time()), name=NAMES.get(said["uid"], "x"),
                         length=len(said["payload"]), **said), end="")
    return 17 if "17" in status else 0


if __name__ == "__main__":
    sys.exit(main())
