"""The client of NCCL's RAS: whom it asks, what it never does, and what it makes of servers that are none of ours."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from astraeus_monitor.host.listeners import Place, places, reached
from astraeus_monitor.host.nccl import version_of
from astraeus_monitor.host.procfs import Proc
from astraeus_monitor.probes import ras
from astraeus_monitor.probes.ras import Client, Policy, belongs, factor, port_of, refusal
from astraeus_monitor.sources.nccl_ras import Reply

JSON = (b'{"nccl_version": "2.30.7", "communicators": [{"hash": "0x1", "size": 2, "ranks": [{"rank": 0, "host": '
        b'"10.0.0.1", "pid": PID}], "missing_ranks": []}]}\n')
Server = Callable[[socket.socket], None]


@pytest.mark.parametrize(("version", "policy", "said"), [
    ((2, 29, 2), Policy(), ""),
    ((2, 32, 3), Policy(), ""),
    ((2, 29, 1), Policy(), "NCCL 2.29.1 is not asked: the site asks from 2.29.2 on (ras_min_version)"),
    ((2, 28, 7), Policy((2, 24, 0)), ""),
    ((2, 27, 5), Policy((2, 24, 0)), "NCCL 2.27.5 answers in text only, which the site does not ask for (ras_text)"),
    ((2, 27, 5), Policy((2, 24, 0), text=True), ""),
    ((2, 26, 2), Policy((2, 0, 0), text=True), "NCCL 2.26.2 is never asked: a question may crash the run"),
    ((2, 26, 6), Policy((2, 26, 0), text=True), "NCCL 2.26.6 is never asked: a question may crash the run"),
    ((2, 21, 5), Policy((2, 0, 0), text=True), "NCCL 2.21.5 has no RAS"),
])
def test_which_versions_are_asked(version: tuple[int, int, int], policy: Policy, said: str) -> None:
    assert refusal(version, policy) == said


@pytest.mark.parametrize(("text", "port"), [("", 28028), ("localhost:16507", 16507), ("[::1]:9", 9), (" :77 ", 77),
                                            ("localhost", None), ("x:0", None), ("x:65536", None), ("x:٣", None)])
def test_the_port(text: str, port: int | None) -> None:
    assert port_of(text) == port


def test_how_long_it_waits() -> None:
    assert [factor({"NCCL_RAS_TIMEOUT_FACTOR": text}) for text in ("", "2", "1.5", "0")] == [1, 2, 1.5, 1]


def test_addresses_of_proc() -> None:
    assert [reached(text) for text in ("0100007F", "00000000", "00000000000000000000000001000000", "0" * 32,
                                       "0500000A")] == ["127.0.0.1", "127.0.0.1", "::1", "::1", "10.0.0.5"]


def test_whose_answer_it_is() -> None:
    """A PID alone tells nothing: another job's process on another node may have the same."""
    shared, alone = Place("127.0.0.1", 1, False), Place("127.0.0.1", 1, True)
    reply = Reply(processes={("10.0.0.2", 7), ("10.0.0.1", 8)})
    assert not belongs(reply, shared, {7}, {"10.0.0.1"})
    assert belongs(reply, shared, {8}, {"10.0.0.1"})
    assert belongs(reply, alone, {9}, {"10.0.0.1"}), "nobody else listens there"


@pytest.fixture
def serve() -> Iterator[Callable[..., Place]]:
    """``serve(*handlers)``: a server whose connections are handled one by one."""
    opened: list[socket.socket] = []

    def begin(*handlers: Server) -> Place:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def run() -> None:
            for handler in handlers:
                link, _ = server.accept()
                opened.append(link)
                handler(link)

        threading.Thread(target=run, daemon=True).start()
        return Place("127.0.0.1", server.getsockname()[1], True)

    yield begin
    for one in opened:
        one.close()


def answers(pid: int, heard: list[bytes]) -> Server:
    def handler(link: socket.socket) -> None:
        for reply in (b"SERVER PROTOCOL 2\n", b"OK\n", JSON.replace(b"PID", b"%d" % pid)):
            heard.append(link.recv(1024))
            link.sendall(reply)
        link.settimeout(0.05)
        try:
            heard.append(link.recv(1) or b"HALF CLOSED")
        except TimeoutError:
            heard.append(b"kept open")
        link.close()
    return handler


def silent(link: socket.socket) -> None:
    pass


def test_it_tries_again_and_leaves_the_connection_open(serve: Callable[..., Place],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "HANDSHAKE_S", 0.1)
    heard: list[bytes] = []
    place = serve(silent, lambda link: link.close(), answers(1, []), answers(2, heard))
    reply, why = Client(True).ask([place], lambda told, at: ("10.0.0.1", 2) in told.processes)
    assert reply is not None, why
    assert reply.of == 1
    assert heard == [b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n", b"STATUS\n", b"kept open"]


@pytest.mark.parametrize(("handler", "said"), [
    (silent, "is silent: 3 connections were accepted and not answered"),
    (lambda link: (link.recv(64), link.close())[1], "the connection was closed before an answer"),
    (lambda link: link.sendall(b"220 smtp\n"), "is no NCCL RAS"),
    (lambda link: link.sendall(b"SERVER PROTOCOL 2\nERROR: Unknown command SET FORMAT json\n"),
     "it can't answer in JSON"),
    (answers(1, []), "another job's processes answer on port"),
])
def test_what_is_no_answer_is_unknown(serve: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, handler: Server,
                                      said: str) -> None:
    monkeypatch.setattr(ras, "HANDSHAKE_S", 0.05)
    monkeypatch.setattr(ras, "TRIES", 3)
    reply, why = Client(True).ask([serve(*[handler] * 3)], lambda told, at: False)
    assert reply is None
    assert said in why


def test_refused_is_unknown_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reply, why = Client(True).ask([Place("127.0.0.1", port, True)], lambda told, at: True)
    assert (reply, why) == (None, f"port {port}: Connection refused")


def test_where_a_process_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert places(Proc(), [os.getpid()], port) == [Place("127.0.0.1", port, True)]
        assert places(Proc(), [os.getppid()], port) == []


@pytest.mark.parametrize(("path", "package", "data", "found"), [
    ("usr/lib/libnccl.so.2.27.5", "", b"", "2.27.5"),
    ("venv/site-packages/nvidia/nccl/lib/libnccl.so.2", "nvidia_nccl_cu13-2.30.7.dist-info", b"", "2.30.7"),
    ("opt/libnccl.so.2", "", b"\0" * 5000 + b"NCCL version 2.28.9+cuda12.9\0", "2.28.9"),
    ("opt/torch/lib/libtorch_cuda.so", "", b"\0NCCL version 2.26.2+cuda12.2\0", "2.26.2"),
    ("opt/libnccl.so.2", "", b"no words", ""),
])
def test_the_library_tells_its_version(tmp_path: Path, path: str, package: str, data: bytes, found: str) -> None:
    root = tmp_path / "7" / "root"
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    if package:
        (root / "venv/site-packages" / package).mkdir()
    (tmp_path / "7" / "maps").write_text(
        f"7f00-7f01 r-xp 00000000 08:01 12 {' ' * 20}/{path}\n7f02-7f03 rw-p 0 0:0 0\n")
    version, stamp, why = version_of(Proc(str(tmp_path)), 7, {})
    assert version == found, why
    if found:
        assert version_of(Proc(str(tmp_path)), 7, {stamp: "9.9.9"})[0] == "9.9.9", "read once"
    else:
        assert why == "/opt/libnccl.so.2 does not tell which version it is"
