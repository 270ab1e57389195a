"""A TCP proxy that the test can cut: the client is disconnected while the server keeps running."""

from __future__ import annotations

import asyncio
import contextlib

from tests.support.background import Background
from tests.support.process import LOOPBACK

CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards a free loopback port to ``target_port`` until it is cut; ``restore`` makes it forward again.

    A connection that is opened while it is cut is accepted and held: after a refusal a client would double its back-off
    (Envoy: up to 30 s), and the test would wait for that.
    """

    def __init__(self, background: Background, target_port: int) -> None:
        self.connections = 0
        self._background = background
        self._target_port = target_port
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = background.run(asyncio.start_server(self._serve, LOOPBACK, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Drop every connection and hold new ones."""
        self._background.run(self._cut())

    def restore(self) -> None:
        """Forward again, also the held connections."""
        self._background.loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """Cut, and stop listening."""
        self.cut()
        self._background.loop.call_soon_threadsafe(self._server.close)

    async def _cut(self) -> None:
        self._open.clear()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open.wait()
            await self._forward(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            target_reader, target_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
            self._writers.add(target_writer)
            self.connections += 1
            try:
                await _until_either_ends(_pump(reader, target_writer), _pump(target_reader, writer))
            finally:
                self._writers.discard(target_writer)
                target_writer.transport.abort()


async def _until_either_ends(*pumps: asyncio.Future[None]) -> None:
    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    for pump in pumps:
        pump.cancel()


def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> asyncio.Task[None]:
    return asyncio.create_task(_copy(source, sink))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
