"""A gRPC server of our transport with handlers of every kind, and clients that speak HTTP/2 by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any, Self

import grpc

from tests.server.conftest import until, within
from tests.wire.http2.talk import HELLO, Frame, opening
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.grpc.server import DEFAULT_KEEPALIVE, GrpcServer, Keepalive
from xds.server.tls import PemFiles
from xds.wire.http2 import frames as f
from xds.wire.http2.headers import encode
from xds.wire.http2.stream import DEFAULT_LIMITS, Http2Limits

SERVICE = "t.T"
CHUNK = bytes(64 << 10)
LOOPBACK = "127.0.0.1"


class Handlers:
    """What the service does. ``left`` names the calls whose handlers have ended; ``flooded`` counts messages."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[str] = []
        self.flooded: dict[str, int] = {}

    async def echo(self, request: bytes, context: Any) -> bytes:
        metadata = [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
        await context.send_initial_metadata(metadata)
        context.set_trailing_metadata((*metadata, ("x-peer", context.peer())))
        return request

    async def count(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def count_by_writing(self, request: bytes, context: Any) -> None:
        for number in range(int(request)):
            await context.write(b"%d" % number)

    async def join(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def talk(self, _requests: Any, context: Any) -> None:
        self.entered.append("talk")
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(request)
        finally:
            self.left.append("talk")

    async def talk_by_generating(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def fail(self, _request: bytes, _context: Any) -> bytes:
        raise ZeroDivisionError("a secret")

    async def refuse(self, _requests: Any, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION, "no: \u00e4 100%\n", (("x-t", "1"), ("x-t-bin", b"\0\xff,"))
        )

    async def speak_of_code(self, _request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.DATA_LOSS)
        context.set_details("some of it")
        return b"what is left"

    async def wait(self, _requests: Any, _context: Any) -> None:
        self.entered.append("wait")
        try:
            await asyncio.Event().wait()
        finally:
            self.left.append("wait")

    async def flood(self, request: bytes, context: Any) -> None:
        """Write for ever."""
        name = request.decode()
        try:
            while True:
                await context.write(CHUNK)
                self.flooded[name] = self.flooded.get(name, 0) + 1
        finally:
            self.left.append(name)

    def table(self) -> dict[str, Any]:
        return {
            "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "CountByWriting": grpc.unary_stream_rpc_method_handler(self.count_by_writing),
            "Join": grpc.stream_unary_rpc_method_handler(self.join),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "TalkByGenerating": grpc.stream_stream_rpc_method_handler(self.talk_by_generating),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Refuse": grpc.stream_stream_rpc_method_handler(self.refuse),
            "SpeakOfCode": grpc.unary_unary_rpc_method_handler(self.speak_of_code),
            "Wait": grpc.stream_stream_rpc_method_handler(self.wait),
            "Flood": grpc.unary_stream_rpc_method_handler(self.flood),
            "Number": grpc.unary_unary_rpc_method_handler(_square, int, lambda number: b"%d" % number),
        }


async def _square(request: int, _context: Any) -> int:
    return request * request


class Served:
    """The server, and channels to it that are closed with it."""

    def __init__(
        self,
        limits: Http2Limits = DEFAULT_LIMITS,
        keepalive: Keepalive = DEFAULT_KEEPALIVE,
        flow: FlowLimits = DEFAULT_FLOW,
        **anonymous: Any,
    ) -> None:
        self.handlers = Handlers()
        self.server = GrpcServer((LOOPBACK, 0), limits, keepalive, flow=flow, **anonymous)
        generic = grpc.method_handlers_generic_handler(SERVICE, self.handlers.table())
        self.server.add_generic_rpc_handlers((generic,))
        self.port = 0
        self._open = AsyncExitStack()

    async def start(self, files: PemFiles | None = None) -> Self:
        self.port = await self.server.listen(files)
        return self

    async def stop(self) -> None:
        await self._open.aclose()
        await within(self.server.stop(0))

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def channel(self, credentials: Any = None, **options: int) -> Any:
        """A connection of its own."""
        arguments = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        arguments += [(f"grpc.{key}", value) for key, value in options.items()]
        if credentials is None:
            channel = grpc.aio.insecure_channel(self.address, options=arguments)
        else:
            channel = grpc.aio.secure_channel(f"localhost:{self.port}", credentials, options=arguments)
        return await self._open.enter_async_context(channel)

    async def call(self, method: str, request: bytes, channel: Any = None, **options: Any) -> bytes:
        """A unary call."""
        channel = channel if channel is not None else await self.channel()
        answer: bytes = await within(channel.unary_unary(f"/{SERVICE}/{method}")(request, **options))
        return answer

    async def quiet(self) -> None:
        """Nothing is left of anybody: no connection, no call, no task."""
        await until(lambda: not self.server.sockets)
        await self.idle()

    async def idle(self) -> None:
        """No call is left."""
        counted = self.server
        await until(lambda: counted.calls_started == counted.calls_succeeded + counted.calls_failed)
        await until(lambda: not tasks_of_calls())


def tasks_of_calls() -> int:
    """How many tasks the calls of this loop have."""
    names = [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    return sum(name in ("_serve", "_pass_messages") for name in names)


def serve_special(served: Served, handle: Any) -> None:
    handler = grpc.stream_stream_rpc_method_handler(handle)
    served.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("o.O", {"Special": handler}),))


async def special(served: Served, handle: Any, **options: Any) -> Any:
    """A call of a handler of one's own."""
    serve_special(served, handle)
    return (await served.channel()).stream_stream("/o.O/Special")(**options)


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"


def head(method: str) -> bytes:
    """The header block of a request."""
    fields = ((":method", "POST"), (":scheme", "http"), (":path", path(method)), ("content-type", "application/grpc"))
    return encode(fields)


class RawClient:
    """A socket on which HTTP/2 is spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, served: Served, greeting: bytes = HELLO) -> RawClient:
        client = cls(*await asyncio.open_connection(LOOPBACK, served.port))
        await client.say(greeting)
        return client

    async def say(self, *data: bytes) -> None:
        self.writer.writelines(data)
        await within(self.writer.drain())

    async def open(self, stream_id: int, method: str = "Talk") -> None:
        await self.say(opening(stream_id, head=head(method)))

    async def frame(self) -> Frame:
        """The next frame."""
        length_and_kind, flags, stream_id = f.HEADER.unpack(
            await within(self._reader.readexactly(f.FRAME_HEADER_BYTES))
        )
        payload = await within(self._reader.readexactly(length_and_kind >> 8))
        return Frame(length_and_kind & 0xFF, flags, stream_id, payload)

    async def until(self, kinds: Collection[int], stream_id: int | None = None) -> Frame:
        """The next frame of one of these kinds."""
        while True:
            frame = await self.frame()
            if frame.kind in kinds and stream_id in (None, frame.stream_id):
                return frame

    async def closed(self) -> list[Frame]:
        """All frames until the server closes."""
        frames = []
        try:
            while True:
                frames.append(await self.frame())
        except (asyncio.IncompleteReadError, ConnectionError):
            return frames

    def close(self) -> None:
        self.writer.close()


Serve = Callable[..., Awaitable[Served]]
