"""``read nccl_ras [--address HOST:PORT]``: asks an NCCL RAS now, in the network namespace of this command.

Whoever gives an address has decided to ask: it is asked whatever its version, in JSON, in text where it has no JSON.
Without one the processes that listen on NCCL's own port are found, and asked as the monitor asks.
"""

from __future__ import annotations

import msgspec
from astraeus_protocol.devices import Ras, RasComm, RasRank
from astraeus_protocol.ras import behind

from ..host import listeners
from ..host.listeners import Place
from ..host.procfs import Proc
from ..probes.ras import PORT, Client, Policy, look_at_ras
from ..sources.nccl_ras import compact

LOOPBACK = ("127.0.0.1", "::1")
NO_JSON = "it can't answer in JSON"


class RasReading(msgspec.Struct, tag="nccl_ras", omit_defaults=True):
    """What was answered."""

    ras: Ras


def places(address: str) -> list[Place] | str:
    """Where to ask, or what is wrong with the words."""
    host, _, number = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65536:
        return f"{address} is no address; write --address HOST:PORT, such as --address localhost:{PORT}"
    hosts = LOOPBACK if host in ("", "localhost") else (host,)
    return [Place(one, int(number), True) for one in hosts]


def here(proc: Proc) -> Ras:
    """The first process that listens on NCCL's own port and may be asked."""
    said = Ras(unknown=f"no process here listens on port {PORT}; write --address HOST:PORT where it is another")
    for pid in sorted(proc.pids()):
        try:
            stat = proc.stat(pid) if listeners.places(proc, [pid], PORT) else None
        except OSError:
            continue  # another user's, or one that has just gone
        if stat is not None:
            said = next(iter(look_at_ras(proc, [(pid, stat.start)], Policy(), {}))).said
            if not said.unknown:
                break
    return said


def ask(found: list[Place]) -> Ras:
    """One answer, or why there is none. Both loopback families are tried: ``localhost`` may be either."""
    why = ""
    for place in found:
        for json in (True, False):
            reply, said = Client(json).ask([place], lambda told, at: True)
            if reply is not None:
                return compact(reply)
            why = why or said
            if said != NO_JSON:
                break
            why = ""
    return Ras(unknown=why or "it can't be asked")


def text(ras: Ras) -> str:
    """For people."""
    form = "text" if ras.text else "JSON"
    lines = [f"nccl_ras: NCCL {ras.version}, {ras.of} communicator{'' if ras.of == 1 else 's'} ({form})"
             + ("" if ras.comms else "; nothing odd, which is no proof that all is well")]
    return "\n  ".join([*lines, *(line for comm in ras.comms for line in _of(comm))])


def _of(comm: RasComm) -> list[str]:
    head = f"communicator {comm.id.partition(' ')[0]} of {comm.size}"
    lines = [f"{head}: rank {_who(one)} is {'considered dead' if one.why == 'dead' else 'missing'}"
             for one in comm.missing]
    low = behind(comm)[0]
    for group in comm.groups if len(comm.groups) > 1 else ():
        counts = ", ".join(f"{kind or 'collective'} #{count}" for kind, count in sorted(group.counts.items()))
        who = ": " + ", ".join(map(_who, group.ranks[:8])) if group.ranks and group.n <= 8 else ""
        lines.append(f"{head}: {group.n} rank{'' if group.n == 1 else 's'} launched {counts or 'nothing'}"
                     + (" (behind)" if group in low else "") + who)
    if len(comm.states) > 1:
        lines.append(f"{head}: " + ", ".join(f"{count} {state}" for state, count in sorted(comm.states.items())))
    return lines + [f"{head}: {count} report error {error}" for error, count in comm.errors.items()]


def _who(one: RasRank) -> str:
    return f"{one.rank} ({one.host or 'host unknown'}, PID {one.pid or 'unknown'})"

