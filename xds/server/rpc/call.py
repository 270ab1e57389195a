"""One call, as its handler sees it: what is used of gRPC's ServicerContext, and all that its stock services use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

import grpc

from xds.control.certificate import Certificate
from xds.http2.events import Stream
from xds.http2.headers import Fields, RequestHead
from xds.http2.messages import MessageError, Piece, decompress
from xds.server.admission import FIRST_MESSAGE_S
from xds.server.rpc.metadata import Metadata, metadata_fields, read_metadata
from xds.server.wakeup import Wakeup

_DECOMPRESSED_AT_ONCE = 1 << 10  # a longer message may become a thousand times as long: not on the loop


class CallEndedError(grpc.RpcError):  # type: ignore[misc]
    """Reading from or writing to a call that is over."""


class Wire(Protocol):
    """The connection of a call, as the call uses it."""

    @property
    def peer(self) -> str: ...
    @property
    def certificate(self) -> Certificate | None: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def is_paused(self) -> bool: ...
    def send_head(self, stream: Stream, metadata: Fields) -> None: ...
    def send_message(self, stream: Stream, message: bytes) -> bool: ...
    def send_now(self, stream: Stream, message: bytes) -> bool: ...
    def end(self, stream: Stream, status: int, details: str, metadata: Fields) -> None: ...
    def taken(self, stream: Stream) -> None: ...


class Call:
    """A call in progress. The connection tells it what comes in; its handler reads and writes."""

    __slots__ = (
        "_code", "_deserialize", "_details", "_encoding", "_ended", "_half_closed", "_heard", "_inbox", "_metadata",
        "_serialize", "_stream", "_take", "_timer", "_trailing", "_was_heard", "_wire", "_written", "method", "task",
    )  # fmt: skip

    def __init__(self, wire: Wire, stream: Stream, head: RequestHead) -> None:
        self.method = head.path
        self.task: asyncio.Task[None] | None = None
        self._wire = wire
        self._stream = stream
        self._encoding = head.encoding
        self._metadata = head.metadata
        self._inbox: list[Piece] = []  # what nobody has read yet
        self._heard = Wakeup()  # a message has come, or the last one had
        self._written = Wakeup()  # what was held up may be through
        self._half_closed = False
        self._ended = False  # the status is told, or nobody is there to be told
        self._was_heard = False  # a message has come, whoever took it
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Fields = ()
        self._serialize: Callable[[Any], bytes] | None = None
        self._deserialize: Callable[[bytes], Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._take: Callable[[bytes], bool] | None = None

    # As its connection sees it

    def begin(self, task: asyncio.Task[None], timeout_s: float | None) -> None:
        """``task`` is the handler at work; it has so much time."""
        self.task = task
        if timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)

    def hear(self, piece: Piece) -> None:
        """A message has come."""
        self._was_heard = True
        if self._take is not None and not self._inbox and not piece.compressed and self._take(piece.data):
            self._wire.taken(self._stream)
            return
        self._inbox.append(piece)
        self._heard.set()

    def half_close(self) -> None:
        """No more messages come."""
        self._half_closed = True
        self._heard.set()

    def write_on(self) -> None:
        """What was written is through, as far as it was held up."""
        self._written.set()

    def fail(self, error: MessageError) -> None:
        """What came is no message: the client is told."""
        self.conclude(_code_of(error), str(error))
        self.cancel()

    def cancel(self) -> None:
        """The client is gone, or has no interest any more."""
        if not self._ended:
            self._code = grpc.StatusCode.CANCELLED
        self._leave()
        if self.task is not None:
            self.task.cancel()

    def finish(self) -> None:
        """The handler has ended.

        One that was cancelled keeps its frame, which refers to the call: without this the two would be a cycle, and
        tens of thousands of resets leave their memory to a collector that comes late, and then takes seconds.
        """
        self.task = None

    def conclude(self, code: grpc.StatusCode | None = None, details: str = "") -> None:
        """Tell the client how it ended; the first to say so is right."""
        if self._ended:
            return
        self._leave()
        if code is not None:
            self._code, self._details = code, details
        self._wire.end(self._stream, self._code.value[0], self._details, self._trailing)

    def _leave(self) -> None:
        self._ended = True
        self._take = None  # its owner refers to the call
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.conclude(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        self.cancel()

    def speaks(self, deserialize: Callable[[bytes], Any] | None, serialize: Callable[[Any], bytes] | None) -> None:
        """How the handler's messages become bytes and back; None: they are bytes."""
        self._deserialize, self._serialize = deserialize, serialize

    # As its handler sees it

    async def read(self) -> Any:
        """The next message, or ``grpc.aio.EOF``."""
        while not self._inbox:
            if self._half_closed:
                return grpc.aio.EOF
            self._heard.clear()
            await self._heard.wait()
        compressed, data = self._inbox.pop(0)
        self._wire.taken(self._stream)
        if compressed:
            data = await self._decompressed(data)
        return data if self._deserialize is None else await self._deserialized(data)

    async def _decompressed(self, data: bytes) -> bytes:
        try:
            if len(data) > _DECOMPRESSED_AT_ONCE:
                return await asyncio.to_thread(decompress, data, self._encoding, self._wire.message_bytes)
            return decompress(data, self._encoding, self._wire.message_bytes)
        except MessageError as error:
            await self.abort(_code_of(error), str(error))

    async def _deserialized(self, data: bytes) -> Any:
        assert self._deserialize is not None
        try:
            return self._deserialize(data)
        except Exception:  # whatever a parser raises: the client's fault, not ours
            await self.abort(grpc.StatusCode.INTERNAL, "the request cannot be parsed")

    def listen(self, take: Callable[[bytes], bool]) -> None:
        """Messages, as bytes, are offered to ``take`` as they come; those that it refuses wait for `read`."""
        self._take = take

    async def requests(self) -> AsyncIterator[Any]:
        """The messages of the request, as handlers of streams are given them."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def write(self, message: Any) -> None:
        """Send a message; returns when the client's windows and our socket have let it through."""
        if self._ended:
            raise CallEndedError("the call is over")
        data = message if self._serialize is None else self._serialize(message)
        wire, stream = self._wire, self._stream
        self._written.clear()
        is_through = wire.send_message(stream, data)
        while not is_through or wire.is_paused:
            await self._written.wait()
            self._written.clear()
            is_through = not stream.pending

    def write_now(self, message: bytes) -> bool:
        """Send bytes if nothing has to be waited for; False: nothing was sent."""
        return not self._ended and self._wire.send_now(self._stream, message)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with this status."""
        trailing = metadata_fields(trailing_metadata)
        if not self._was_heard and not self._half_closed:
            await self._first_message()
        self._trailing = trailing or self._trailing
        self.conclude(code, details)
        raise grpc.aio.AbortError(details)

    async def _first_message(self) -> None:
        """gRPC's asyncio client takes a refusal that overtakes its first message for an internal error."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), FIRST_MESSAGE_S)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send the head of the response before its first message. Raises ``ValueError`` for what gRPC does not
        allow."""
        fields = metadata_fields(metadata)
        if not self._ended and not self._stream.head_sent:
            self._wire.send_head(self._stream, fields)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = metadata_fields(metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def peer(self) -> str:
        """The client's address, percent-encoded as gRPC has it."""
        return quote(self._wire.peer, safe=":.")

    @property
    def certificate(self) -> Certificate | None:
        """What the client has shown, verified; None for nothing. gRPC's own contexts have ``auth_context`` instead."""
        return self._wire.certificate

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The request's metadata, that of ``-bin`` keys as bytes."""
        return tuple(read_metadata(self._metadata))

    def cancelled(self) -> bool:
        return self.task is not None and self.task.cancelled()

    def done(self) -> bool:
        return self._ended


def _code_of(error: MessageError) -> grpc.StatusCode:
    if error.too_large:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    return grpc.StatusCode.UNIMPLEMENTED if error.unsupported else grpc.StatusCode.INTERNAL
