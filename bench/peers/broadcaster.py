"""The limit of the transport: grpc.aio that sends prepared messages, without a protocol.

    python -m bench.peers.broadcaster --port 18000 [--tls-cert FILE --tls-key FILE]

Answers the first request for a type on a stream with one message with all its resources, writes the same message to
every stream on a push, and ignores other requests. Settings of gRPC, the event loop and the collector are those of
``xds serve``. It is driven by lines on standard input, as all peers are; its answers also have ``built_cpu_s``, the
seconds of CPU spent so far on making messages, which is not work of the transport.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import uvloop

from bench.peers.resources import Change, Content, name_of
from xds.codec import schema
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.server.grpcio import Credentials, channel_arguments
from xds.server.options import ServerOptions
from xds.server.process import tune_gc
from xds.server.services import SERVICES
from xds.server.tls import pem_files
from xds.snapshots.responses import encode_delta, encode_parts, encode_sotw

SOTW, DELTA = "sotw", "delta"
_BROKEN = (grpc.RpcError, grpc.aio.BaseError)
_MARKS = {CLUSTER: CLUSTER.encode(), ENDPOINT: ENDPOINT.encode()}


class Messages:
    """What is sent now: whole types to those who ask, news to all."""

    def __init__(self) -> None:
        self.content = Content()
        self.version = ""
        self.built_cpu_s = 0.0
        self._first: dict[tuple[str, str], bytes] = {}

    def push(self, change: Change) -> dict[tuple[str, str], bytes]:
        """The news of a change, by type URL and variant."""
        began = time.thread_time()
        whole = self.content.apply(change)
        self.version = str(change.edition)
        self._first.clear()
        news: dict[tuple[str, str], bytes] = {}
        for type_url in self.content.types() if whole else (self.content.one,):
            count = len(self.content.editions(type_url)) if whole else 1
            news[type_url, DELTA] = self._message(type_url, DELTA, count)
            # SotW tells of clusters all or nothing, of assignments only what is new.
            news[type_url, SOTW] = (
                self.first(type_url, SOTW) if type_url == CLUSTER else self._message(type_url, SOTW, count)
            )
        self.built_cpu_s += time.thread_time() - began
        return news

    def first(self, type_url: str, variant: str) -> bytes:
        """All of a type."""
        key = type_url, variant
        if key not in self._first:
            self._first[key] = self._message(type_url, variant, len(self.content.editions(type_url)))
        return self._first[key]

    def _message(self, type_url: str, variant: str, count: int) -> bytes:
        """The first ``count`` resources of a type."""
        parts = [encode_parts(self._resource(type_url, index)) for index in range(count)]
        if variant == SOTW:
            return encode_sotw(type_url, self.version, self.version, parts, b"")
        return encode_delta(type_url, self.version, self.version, parts, (), b"")

    def _resource(self, type_url: str, index: int) -> Resource:
        version = str(self.content.editions(type_url)[index])
        return Resource(type_url, name_of(index), self.content.body(type_url, index), version)


class Stream:
    """One stream: a reader, and the handler itself as the writer. What is newer replaces what is not yet written."""

    __slots__ = ("_due", "_ended", "_wake", "asked", "variant")

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.asked: set[str] = set()
        self._due: dict[str, bytes] = {}
        self._ended = False
        self._wake = asyncio.Event()

    def put(self, type_url: str, message: bytes) -> None:
        """Send this as soon as the stream can take it."""
        self._due[type_url] = message
        self._wake.set()

    async def write(self, context: Any) -> None:
        while not self._ended:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                await context.write(self._due.pop(next(iter(self._due))))

    async def read(self, context: Any, messages: Messages) -> None:
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                if len(self.asked) < len(_MARKS):
                    self._note(request, messages)
        except _BROKEN:
            pass
        self._ended = True
        self._wake.set()

    def _note(self, request: bytes, messages: Messages) -> None:
        """A first request for a type is answered, if there is anything of it."""
        for type_url, mark in _MARKS.items():
            if type_url not in self.asked and mark in request:
                self.asked.add(type_url)
                if messages.content.editions(type_url):
                    self.put(type_url, messages.first(type_url, self.variant))


class Broadcaster:
    """The server."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._messages = Messages()
        self._streams: dict[Stream, None] = {}
        self._server: Any = None

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server(options=channel_arguments(self._options))
        ads = SERVICES[0]
        methods = {ads.stream_method: self._handler(SOTW), ads.delta_method: self._handler(DELTA)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ads.service, methods),))
        files = pem_files(self._options)
        if files is None:
            self._server.add_insecure_port(self._options.address)
        else:
            self._server.add_secure_port(self._options.address, Credentials(files).server())
        await self._server.start()

    async def stop(self) -> None:
        """End at once."""
        await self._server.stop(None)

    def push(self, change: Change) -> None:
        """Set the content and tell every stream that follows what has changed."""
        news = self._messages.push(change)
        for (type_url, variant), message in news.items():
            for stream in self._streams:
                if stream.variant == variant and type_url in stream.asked:
                    stream.put(type_url, message)

    def answer(self) -> dict[str, object]:
        """What was pushed last."""
        return {"pushed": self._messages.version, "built_cpu_s": self._messages.built_cpu_s}

    def _handler(self, variant: str) -> Any:
        async def handle(_requests: Any, context: Any) -> None:
            stream = Stream(variant)
            self._streams[stream] = None
            reader = asyncio.create_task(stream.read(context, self._messages))
            try:
                await stream.write(context)
            finally:
                reader.cancel()
                del self._streams[stream]

        return grpc.stream_stream_rpc_method_handler(handle)


async def obey(options: ServerOptions) -> None:
    """Carry out commands until there are no more."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    schema.pool()  # built on first use: the first push should not pay for it
    broadcaster = Broadcaster(options)
    await broadcaster.start()
    tune_gc()
    say({"ready": True})
    while line := await lines.readline():
        broadcaster.push(Change(**json.loads(line)["push"]))
        say(broadcaster.answer())
    await broadcaster.stop()


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def read_options(arguments: Sequence[str] | None = None) -> ServerOptions:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    chosen = parser.parse_args(arguments)
    return ServerOptions(port=chosen.port, tls_certificate=chosen.tls_cert, tls_key=chosen.tls_key)


def main() -> None:
    options = read_options()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(obey(options))


if __name__ == "__main__":
    main()
