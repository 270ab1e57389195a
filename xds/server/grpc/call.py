"""One gRPC call: the parts of gRPC's ServicerContext that our services and grpc's own services use."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

import grpc

from xds.access.certificate import Certificate
from xds.server.flow.limits import DEFAULT_FLOW
from xds.server.flow.work_queue import Waiter, wake
from xds.server.stream import CallHandler
from xds.wire.http2.headers import Fields, RequestHead
from xds.wire.http2.messages import GrpcMessage, MessageError, decompress
from xds.wire.http2.stream import Stream

_DECOMPRESSED_INLINE_BYTES = 1 << 10  # a longer message may grow a thousandfold: it is decompressed in a thread


class CallEndedError(grpc.RpcError):  # type: ignore[misc]
    """Raised by a write after the call has ended."""


class CallConnection(Protocol):
    """The connection of a call, as the call uses it."""

    @property
    def peer(self) -> str:
        """The client's address, as gRPC writes it."""

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""

    @property
    def is_paused(self) -> bool:
        """Whether the socket's buffer is full: writers wait."""

    def send_head(self, stream: Stream, metadata: Fields) -> None:
        """Send the headers of a response."""

    def send_message(self, stream: Stream, message: bytes) -> bool:
        """Send or queue a message; False: some of it waits for the client's windows."""

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message if it can be sent at once; False: nothing was sent."""

    def end(self, stream: Stream, status: int, details: str, metadata: Fields) -> None:
        """Send the final status, behind all queued messages."""

    def consumed(self, stream: Stream) -> None:
        """Note that a message of the stream was consumed: the client may send more."""

    def ended(self, call: Call) -> None:
        """Note that a call has ended, with all its tasks."""


class Call:
    """A call in progress. Its connection passes events to it.

    Its handler is a coroutine, which reads and writes messages; or an object that the coroutine has passed to `serve`,
    and then the call has a task only while messages have to wait.
    """

    __slots__ = (
        "_arrived", "_code", "_connection", "_deserialize", "_details", "_encoding", "_ended", "_had_message",
        "_half_closed", "_handler", "_inbox", "_metadata", "_serialize", "_stream", "_task", "_timer", "_trailing",
        "_written", "method",
    )  # fmt: skip

    def __init__(self, connection: CallConnection, stream: Stream, head: RequestHead) -> None:
        self.method = head.path
        self._connection = connection
        self._stream = stream
        self._encoding = head.encoding
        self._metadata = head.metadata
        self._inbox: list[GrpcMessage] = []  # not read yet
        self._arrived: Waiter = None  # for a message, or the end of the client's side
        self._written: Waiter = None  # for the end of the write in progress
        self._half_closed = False
        self._ended = False  # the status was sent, or the client has left
        self._had_message = False  # a message has arrived, read or not
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Fields = ()
        self._serialize: Callable[[Any], bytes] | None = None
        self._deserialize: Callable[[bytes], Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handler: CallHandler | None = None
        self._task: asyncio.Task[None] | None = None  # runs the coroutine, or passes messages to the handler

    # For its connection

    def begin(self, handle: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
        """Start the handler, and end the call after ``timeout_s``."""
        self._start(handle)
        if timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self.expire)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            # A cancelled task keeps its frame, and the frame refers to the call. Call and task would be a reference
            # cycle: the cyclic collector would take seconds to free them after tens of thousands of resets.
            self._task = None
        if self._ended and self._task is None:
            self._connection.ended(self)

    def on_message(self, compressed: bool, data: bytes) -> None:
        """Handle a message that has arrived."""
        self._had_message = True
        if self._handler is not None and self._task is None and not compressed and self._handler.take(data):
            self._connection.consumed(self._stream)
            return
        self._inbox.append(GrpcMessage(compressed, data))
        wake(self._arrived)
        self._pass_on()

    def half_close(self) -> None:
        """Note that the client has ended its side: no more messages arrive."""
        self._half_closed = True
        wake(self._arrived)
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass messages to a handler that could not take them at once, in a task."""
        if self._handler is not None and self._task is None:
            self._start(self._pass_messages(self._handler))

    async def _pass_messages(self, handler: CallHandler) -> None:
        try:
            while self._inbox:
                await handler.receive(await self.read())
            if self._half_closed:
                await handler.end_requests()
        except grpc.aio.AbortError:
            handler.cancel()  # the client has been told why its message cannot be read
        finally:
            self._task = None  # the next message is offered to the handler at once

    def on_written(self) -> None:
        """Wake the writer: messages have passed the client's windows, or the socket's buffer has room."""
        wake(self._written)

    def fail(self, error: MessageError) -> None:
        """End the call with the matching status: the client sent a malformed message."""
        self.stop(_code_of(error), str(error))

    def expire(self, details: str = "Deadline Exceeded") -> None:
        """End the call: its time is over."""
        self.stop(grpc.StatusCode.DEADLINE_EXCEEDED, details)

    def stop(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with this status, and cancel its handler."""
        handler, task = self._handler, self._task
        self.finish(code, details)
        self._cancel(handler, task)

    def cancel(self) -> None:
        """Cancel the handler: the client has left, or has cancelled the call."""
        handler, task = self._handler, self._task
        if not self._ended:
            self._code = grpc.StatusCode.CANCELLED
        self._mark_ended()
        self._cancel(handler, task)

    def _cancel(self, handler: CallHandler | None, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
        if handler is not None:
            handler.cancel()

    def finish(self, code: grpc.StatusCode | None = None, details: str = "") -> None:
        """Send the final status. The first status counts."""
        if self._ended:
            return
        if code is not None:
            self._code, self._details = code, details
        self._mark_ended()
        self._connection.end(self._stream, self._code.value[0], self._details, self._trailing)

    def _mark_ended(self) -> None:
        self._ended = True
        self._cancel_timer()
        if self._handler is not None:
            self._handler = None  # it refers to the call
            if self._task is not None:
                self._task.cancel()  # it passes messages to the handler
        if self._task is None:
            self._connection.ended(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_codecs(self, deserialize: Callable[[bytes], Any] | None, serialize: Callable[[Any], bytes] | None) -> None:
        """Set the functions that decode and encode messages; None: the handler uses bytes."""
        self._deserialize, self._serialize = deserialize, serialize

    # For its handler

    async def read(self) -> Any:
        """The next message, or ``grpc.aio.EOF``."""
        while not self._inbox:
            if self._half_closed:
                return grpc.aio.EOF
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
            self._arrived = None
        compressed, data = self._inbox.pop(0)
        self._connection.consumed(self._stream)
        if compressed:
            data = await self._decompressed(data)
        return data if self._deserialize is None else await self._deserialized(data)

    async def _decompressed(self, data: bytes) -> bytes:
        limit = self._stream.assembler.limit
        try:
            if len(data) > _DECOMPRESSED_INLINE_BYTES:
                return await asyncio.to_thread(decompress, data, self._encoding, limit)
            return decompress(data, self._encoding, limit)
        except MessageError as error:
            await self.abort(_code_of(error), str(error))

    async def _deserialized(self, data: bytes) -> Any:
        assert self._deserialize is not None
        try:
            return self._deserialize(data)
        except Exception:  # whatever a parser raises is the client's fault
            await self.abort(grpc.StatusCode.INTERNAL, "the request cannot be parsed")

    async def requests(self) -> AsyncIterator[Any]:
        """The messages of the request, for handlers that iterate over them."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def write(self, message: Any) -> None:
        """Send a message; returns when it has passed the client's windows and our socket."""
        if self._ended:
            raise CallEndedError("the call has ended")
        data = message if self._serialize is None else self._serialize(message)
        connection, stream = self._connection, self._stream
        is_sent = connection.send_message(stream, data)
        while not is_sent or connection.is_paused:
            self._written = asyncio.get_running_loop().create_future()
            await self._written
            self._written = None
            is_sent = not stream.pending

    def write_now(self, message: bytes) -> bool:
        """Send bytes if that needs no waiting; False: nothing was sent."""
        return not self._ended and self._connection.send_now(self._stream, message)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with this status."""
        trailing = metadata_fields(trailing_metadata)
        if not self._may_end:
            self._arrived = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._arrived,), timeout=DEFAULT_FLOW.first_message_s)
        self._trailing = trailing or self._trailing
        self.finish(code, details)
        raise grpc.aio.AbortError(details)

    @property
    def _may_end(self) -> bool:
        """Whether an error may be sent: before the first message, grpc.aio's client reports it as an internal error."""
        return self._had_message or self._half_closed

    # For a handler without a task

    async def serve(self, handler: CallHandler) -> None:
        """Pass messages and the end of the call to ``handler`` from now on. Returns at once; the call goes on."""
        self._handler = handler
        self._task = None  # this one ends now
        self._metadata = ()  # the client is known
        arrived, self._inbox = self._inbox, []
        for message in arrived:
            self.on_message(*message)
        if self._half_closed:
            self._pass_on()

    @property
    def is_served(self) -> bool:
        """Whether the call is passed to a handler without a task."""
        return self._handler is not None

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End a served call with this status. Harmless when it has ended."""
        if self._ended or self._may_end or code is grpc.StatusCode.OK:
            self.finish(code, details)
        else:
            self._cancel_timer()
            self._timer = asyncio.get_running_loop().call_later(
                DEFAULT_FLOW.first_message_s, self.finish, code, details
            )

    # For any handler

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send the headers before the first message. Raises ``ValueError`` for metadata that gRPC does not allow."""
        fields = metadata_fields(metadata)
        if not self._ended and not self._stream.head_sent:
            self._connection.send_head(self._stream, fields)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Set the metadata of the final status. Raises ``ValueError`` for metadata that gRPC does not allow."""
        self._trailing = metadata_fields(metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the final status for a handler that returns without an error."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of the final status."""
        self._details = details

    def code(self) -> grpc.StatusCode:
        """The final status as set so far."""
        return self._code

    def details(self) -> str:
        """The text of the final status as set so far."""
        return self._details

    def peer(self) -> str:
        """The client's address, percent-encoded as gRPC has it."""
        return quote(self._connection.peer, safe=":.")

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""
        return self._connection.certificate

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The request's metadata; values of ``-bin`` keys are bytes."""
        return tuple(read_metadata(self._metadata))

    def cancelled(self) -> bool:
        """Whether the handler was cancelled."""
        return self._ended and self._code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._ended


def _code_of(error: MessageError) -> grpc.StatusCode:
    if error.too_large:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    return grpc.StatusCode.UNIMPLEMENTED if error.unsupported else grpc.StatusCode.INTERNAL


Metadata = Iterable[tuple[str, str | bytes]]

_BINARY = "-bin"
_TEXT = re.compile(r"[ -~]*")
_KEY = re.compile(r"[a-z0-9_.-]+")


def read_metadata(fields: Fields) -> Iterator[tuple[str, str | bytes]]:
    """The metadata of a request; values of ``-bin`` keys are bytes."""
    for key, value in fields:
        if key.endswith(_BINARY):
            # Two values of one key may arrive as one value with a comma.
            yield from ((key, _decoded(each.strip(" "))) for each in value.split(","))
        else:
            yield (key, value)


def metadata_fields(metadata: Metadata) -> Fields:
    """Metadata of a handler as header fields. Raises ``ValueError`` for metadata that gRPC does not allow."""
    return tuple(_field(key, value) for key, value in metadata)


def _field(key: str, value: str | bytes) -> tuple[str, str]:
    if not _KEY.fullmatch(key):
        raise ValueError(f"metadata cannot have the key {key!r}")
    if key.endswith(_BINARY):
        data = value if isinstance(value, bytes) else value.encode()
        return key, base64.b64encode(data).decode().rstrip("=")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not _TEXT.fullmatch(text):
        raise ValueError(f"metadata of {key} has characters beyond printable ASCII; use a key that ends in {_BINARY}")
    return key, text


def _decoded(value: str) -> bytes:
    """The bytes of a binary value, whose base64 may lack its padding; empty if it is invalid."""
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return b""
