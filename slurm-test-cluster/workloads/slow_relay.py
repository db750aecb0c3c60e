"""Hands TCP connections on and each of their bytes late: a slow network, where the kernel has no netem.

slow_relay.py PORT HOST:PORT SECONDS listens on 127.0.0.1:PORT; what either side sends arrives SECONDS later, and so
does the end of it.
"""

from __future__ import annotations

import asyncio
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Everything that comes, in order, each piece ``delay_s`` after it came."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def take() -> None:
        while data := await reader.read(1 << 16):
            waiting.put_nowait((loop.time() + delay_s, data))
        waiting.put_nowait((loop.time() + delay_s, b""))

    taking = asyncio.create_task(take())
    try:
        while True:
            at, data = await waiting.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        taking.cancel()


async def main(port: int, target: str, delay_s: float) -> None:
    """Serve until killed."""
    host, _, number = target.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(delay_s)
        try:
            there, back = await asyncio.open_connection(host, int(number))
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, back, delay_s), pump(there, writer, delay_s), return_exceptions=True)
        for one in (writer, back):
            one.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
