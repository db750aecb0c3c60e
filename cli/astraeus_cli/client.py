"""Asks the controller's API: over its unix socket, from another host over TCP. Standard library only: an answer takes a
fraction of a second."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from . import credential

SOCKET = "/run/astraeus/api.sock"
SETTINGS = Path("/etc/astraeus/astraeus.toml")
PORT = 6832
TIMEOUT_S = 10.0


class NoAnswer(Exception):
    """The controller could not be asked; the text is one sentence."""


class Problem(Exception):
    """The controller answered with an error; the text is its sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self.path)


def place(given: str = "") -> str:
    """Where the API is: ``--socket`` (a path, or http://HOST:PORT), else $ASTRAEUS_SOCKET, else $ASTRAEUS_API, else the
    usual socket, and where there is none the site's ``[cli] api``."""
    named = given or os.environ.get("ASTRAEUS_SOCKET", "") or os.environ.get("ASTRAEUS_API", "")
    return named or (SOCKET if Path(SOCKET).exists() else _of_site() or SOCKET)


def _of_site() -> str:
    import tomllib

    try:
        found = tomllib.loads(SETTINGS.read_text(encoding="utf-8")).get("cli", {}).get("api", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def get(path: str, where: str, method: str = "GET") -> Any:
    """The answer to ``GET path`` (or another method) as JSON. Raises NoAnswer or Problem."""
    target, headers = quote(path, safe="/+?="), dict[str, str]()
    if where.startswith("http://"):
        far = urlsplit(where)
        if not far.hostname:
            raise NoAnswer(f"{where} names no host; write http://HOST:{PORT}")
        connection = http.client.HTTPConnection(far.hostname, far.port or PORT, timeout=TIMEOUT_S)
        try:
            headers["Authorization"] = credential.authorization(method, target)
        except credential.NoCredential as fault:
            raise NoAnswer(str(fault)) from None
    else:
        connection = _Unix(where)
    try:
        connection.request(method, target, headers=headers)
        reply = connection.getresponse()
        body = reply.read()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoAnswer(f"no controller answers on {where}; it runs beside slurmctld: ask there, name it in "
                       "$ASTRAEUS_API (http://HOST:6832), or see whether astraeus-controller is started") from None
    except PermissionError:
        raise NoAnswer(f"you may not open {where}; ask whoever runs the cluster to let users into its folder"
                       ) from None
    except (OSError, http.client.HTTPException) as fault:
        raise NoAnswer(f"the controller on {where} gave no answer: {fault}") from None
    finally:
        connection.close()
    try:
        answer = json.loads(body)
    except ValueError:
        raise NoAnswer(f"what answers on {where} is not the controller") from None
    if reply.status != 200:
        sentence = answer.get("detail", "") if isinstance(answer, dict) else ""
        raise Problem(reply.status, sentence or f"the controller answered with status {reply.status}")
    return answer
