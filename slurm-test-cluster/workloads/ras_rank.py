#!/usr/bin/env python3
"""A rank of a gang whose NCCL RAS is NVIDIA's own, without a GPU.

It loads a real libnccl.so.2 and hands its RAS thread a communicator that is only a block of memory: who its ranks
are, and how many operations each has launched. From there on the thread, its mesh and its client port are what a
training has. Where the fields lie differs from release to release: ``LAYOUTS``, read with gdb from the library's own
debug information.

The ranks find each other by files in --folder and step together over a connection of each to rank 0: when one stops,
the others wait. What a rank is to do is told there, too: a file ``hang-3`` makes rank 3 launch nothing any more,
``ahead-3`` makes it launch one operation that the others don't, and wait.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import socket
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
IN_PROGRESS = 7
COMM_HASH = 0x1CEB00DA
Field = tuple[int, int]
"""(offset, bytes)"""


class Layout:
    """Where things lie in one release."""

    def __init__(self, size: int, peer_size: int, init: int, add: int, **fields: Field) -> None:
        """``init``, ``add``: addresses of ncclRasCommInit and ncclRasAddRanks; ``size``: of a communicator."""
        self.size, self.peer_size, self.init, self.add, self.fields = size, peer_size, init, add, fields


LAYOUTS = {
    "2.28.9": Layout(
        1082968, 120, 1383008, 1376976, commHash=(1066184, 8), peerInfo=(26272, 8), peerInfoValid=(26312, 1),
        rank=(1066192, 4), nRanks=(1066196, 4), cudaDev=(1066200, 4), nvmlDev=(1066204, 4), seqNumber=(1075728, 40),
        initState=(1075672, 4), abortFlag=(1069048, 8)),
    "2.30.7": Layout(
        1199744, 144, 1910240, 1912256, commHash=(1181416, 8), peerInfo=(26784, 8), peerInfoValid=(26824, 1),
        rank=(1181424, 4), nRanks=(1181428, 4), cudaDev=(1181432, 4), nvmlDev=(1181436, 4), seqNumber=(1191576, 40),
        initState=(1191520, 4), abortFlag=(1184296, 8)),
}
PEER = struct.Struct("<iii4xQQ")
"""Of a peer, the same in both: its rank, its two device numbers, hashes of its host and process."""
RANK_INIT = struct.Struct("<28siiiQQ")
"""What a rank tells the others of itself: address of its RAS, PID, two device numbers, the two hashes."""


class Communicator:
    """The block of memory, and what is done with it."""

    def __init__(self, library: str, version: str, rank: int, ranks: int, address: str) -> None:
        self.layout, self.rank, self.ranks = LAYOUTS[version], rank, ranks
        self.library = ctypes.CDLL(library)
        self.base = _base_of(library)
        self.block = ctypes.create_string_buffer(self.layout.size + 4096)
        self.abort = ctypes.create_string_buffer(64)
        for name, value in (("commHash", COMM_HASH), ("rank", rank), ("nRanks", ranks), ("cudaDev", rank % 8),
                            ("nvmlDev", rank % 8), ("abortFlag", ctypes.addressof(self.abort)),
                            ("initState", IN_PROGRESS)):
            self.put(name, value)
        where = struct.pack("<H2x4s", socket.AF_INET, socket.inet_aton(address)).ljust(28, b"\0")
        self.own = ctypes.create_string_buffer(RANK_INIT.pack(where, 0, 0, 0, 0, 0), RANK_INIT.size)
        self._call(self.layout.init, ctypes.addressof(self.block), ctypes.addressof(self.own))

    def address(self) -> str:
        """Where its RAS thread can be reached by the others' (hexadecimal)."""
        return RANK_INIT.unpack(self.own.raw)[0].hex()

    def ready(self, all_of_them: list[dict[str, object]]) -> None:
        """Every rank is known: the communicator is made."""
        told, peers = b"", b""
        for one in all_of_them:
            host, process = zlib.crc32(str(one["host"]).encode()), 7919 * (int(str(one["rank"])) + 1)
            device = int(str(one["rank"])) % 8
            told += RANK_INIT.pack(bytes.fromhex(str(one["address"])), one["pid"], device, device, host, process)
            peers += PEER.pack(one["rank"], device, device, host + COMM_HASH, process + COMM_HASH).ljust(
                self.layout.peer_size, b"\0")
        self.peers = ctypes.create_string_buffer(peers, len(peers))
        given = _allocated(told)  # NCCL frees it
        self._call(self.layout.add, given, len(all_of_them))
        self.put("peerInfo", ctypes.addressof(self.peers))
        self.put("peerInfoValid", 1)
        self.put("initState", 0)

    def launched(self, kind: str, count: int) -> None:
        """So many operations of a kind."""
        at = self.layout.fields["seqNumber"][0] + 8 * KINDS.index(kind)
        struct.pack_into("<Q", self.block, at, count)

    def put(self, name: str, value: int) -> None:
        at, size = self.layout.fields[name]
        self.block[at:at + size] = value.to_bytes(size, "little")

    def _call(self, at: int, *words: int) -> None:
        kinds = [ctypes.c_void_p, ctypes.c_void_p if at == self.layout.init else ctypes.c_int]
        code = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self.base + at)(*words)
        if code:
            raise SystemExit(f"NCCL answers {code}")


def _allocated(data: bytes) -> int:
    """A copy of it that the C library's free() takes."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    at = library.malloc(len(data))
    ctypes.memmove(at, data, len(data))
    return int(at)


def _base_of(library: str) -> int:
    path = os.path.realpath(library)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(path):
            return int(line.split("-")[0], 16)
    raise SystemExit(f"{library} is not mapped")


class Gang:
    """A connection of each rank to rank 0, which answers once all have spoken."""

    def __init__(self, folder: Path, rank: int, ranks: int, address: str) -> None:
        self.rank, self.links = rank, []
        if rank == 0:
            server = socket.create_server((address, 0))
            _write(folder / "hub", json.dumps(server.getsockname()))
            self.links = [server.accept()[0] for _ in range(ranks - 1)]
        else:
            host, port = json.loads(_wait_for(folder / "hub"))
            self.links = [socket.create_connection((host, port))]

    def together(self) -> None:
        """Returns once every rank has come here."""
        for link in self.links if self.rank == 0 else ():
            _one(link)
        for link in self.links:
            link.sendall(b".")
        if self.rank:
            _one(self.links[0])


def _one(link: socket.socket) -> None:
    if not link.recv(1):
        time.sleep(1e9)  # a peer is gone; as in a collective, nobody tells


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.rename(path)


def _wait_for(path: Path) -> str:
    for _ in range(600):
        if path.exists():
            return path.read_text()
        time.sleep(0.1)
    raise SystemExit(f"{path} did not come")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--rank", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--ranks", type=int, default=int(os.environ.get("SLURM_NTASKS", "1")))
    parser.add_argument("--address", default="", help="this rank's; empty: of the host's name")
    parser.add_argument("--every", type=float, default=0.25, metavar="SECONDS", help="a step takes so long")
    chosen = parser.parse_args()
    rank, ranks, folder = chosen.rank, chosen.ranks, chosen.folder
    version = next((v for v in LAYOUTS if re.search(rf"\b{re.escape(v)}\b", chosen.library)), "")
    if not version:
        raise SystemExit(f"--library names none of {', '.join(LAYOUTS)} in its path")
    os.environ["RANK"] = str(rank)
    address = chosen.address or socket.gethostbyname(socket.gethostname())
    folder.mkdir(parents=True, exist_ok=True)
    comm = Communicator(chosen.library, version, rank, ranks, address)
    _write(folder / f"rank-{rank}", json.dumps(
        {"rank": rank, "host": address, "pid": os.getpid(), "address": comm.address()}))
    comm.ready([json.loads(_wait_for(folder / f"rank-{other}")) for other in range(ranks)])
    gang = Gang(folder, rank, ranks, address)
    step = 0
    while True:
        step += 1
        if (folder / f"hang-{rank}").exists():
            print(f"rank {rank} launches nothing any more", file=sys.stderr, flush=True)
            threading.Event().wait()
        if (folder / f"ahead-{rank}").exists():
            comm.launched("AllGather", 1)
            threading.Event().wait()
        comm.launched("AllReduce", step)
        gang.together()
        if rank == 0 and step % 4 == 0:
            print(f"step {step}", flush=True)
        time.sleep(chosen.every)


if __name__ == "__main__":
    main()
