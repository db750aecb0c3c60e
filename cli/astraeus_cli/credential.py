"""Who asks, from another host: a MUNGE credential for one request, which root on the controller's host decodes."""

from __future__ import annotations

import subprocess

TTL_S, DEADLINE_S = 60, 5.0
PREFIX = "MUNGE:"


class NoCredential(Exception):
    """munge made none; the text is one sentence."""


def authorization(method: str, target: str) -> str:
    """Value of the header Authorization for this very request."""
    argv = ["munge", "--restrict-uid=0", f"--ttl={TTL_S}"]
    try:
        done = subprocess.run(argv, input=f"astraeus-api 1 {method} {target}".encode(), capture_output=True,
                              timeout=DEADLINE_S, check=False)
    except OSError as fault:
        raise NoCredential(f"can't run munge, which says to the controller who you are: {fault.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoCredential(f"munge gave no answer within {DEADLINE_S:g} s; see whether munged runs here") from None
    said = done.stdout.decode("ascii", "replace").strip()
    if not said.startswith(PREFIX):
        words = " ".join(done.stderr.decode(errors="replace").split())[:200]
        raise NoCredential(f"munge makes no credential: {words or 'it printed nothing'}")
    return f"MUNGE {said}"
