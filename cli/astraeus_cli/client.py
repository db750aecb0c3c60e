"""Asks the controller's API over its unix socket. Standard library only: an answer takes a fraction of a second."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import quote

SOCKET = "/run/astraeus/api.sock"
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


def socket_path(given: str = "") -> str:
    """Where the API is: ``--socket``, else $ASTRAEUS_SOCKET, else its usual place."""
    return given or os.environ.get("ASTRAEUS_SOCKET", "") or SOCKET


def get(path: str, where: str, method: str = "GET") -> Any:
    """The answer to ``GET path`` (or another method) as JSON. Raises NoAnswer or Problem."""
    connection = _Unix(where)
    try:
        connection.request(method, quote(path, safe="/+?="))
        reply = connection.getresponse()
        body = reply.read()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoAnswer(f"no controller answers on {where}; it runs beside slurmctld, so ask there, or see "
                       "whether astraeus-controller is started") from None
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
