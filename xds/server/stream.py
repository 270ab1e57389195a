"""A gRPC stream of any kind in the asyncio shell, from its admission slot to its final status.

A stream at rest has no task: its call passes messages and the end to it (`CallHandler`). A writer task lives while the
outbox has something. Engine work runs in the work queue, in turn with all other streams
(`xds.server.flow.work_queue`). Changes are offered to a client only after all earlier responses are written. A
low-priority work item closes a stream: closing takes some 100 us, a network failure ends thousands of streams at once,
and clients that reconnect come first.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from sys import intern
from time import monotonic
from typing import Any, Protocol
from urllib.parse import unquote

import grpc

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.certificate import Certificate
from xds.model.errors import LimitError, RemoteProtocolError
from xds.model.node import Node
from xds.server.counters import Metrics
from xds.server.flow.admission import AdmissionSlot
from xds.server.flow.limits import RateLimit
from xds.server.flow.work_queue import Waiter, WorkQueue, wake
from xds.server.flow.write_limiter import WriteLimiter
from xds.server.identity import NodeAuthorizer
from xds.server.options import ServerOptions
from xds.server.refusals import RefusalRecorder

Status = tuple[grpc.StatusCode, str]
CALL_ERRORS = (grpc.RpcError, grpc.aio.BaseError)  # raised by ``read`` and ``write`` after the call has ended
OK_STATUS: Status = (grpc.StatusCode.OK, "")
CLIENT_LEFT: Status = (grpc.StatusCode.CANCELLED, "the client is gone")
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def status_of(error: RemoteProtocolError) -> Status:
    """The gRPC status for a client that broke a rule."""
    return _CODES[error.code.value], error.message


def check_size(data: bytes, limit_bytes: int) -> None:
    """Raises ``LimitError`` for a request that is too large."""
    if len(data) > limit_bytes:
        raise LimitError("receive_bytes", f"a request of {len(data)} bytes; at most {limit_bytes} are accepted")


class CallHandler(Protocol):
    """Handles a call without a task of its own, as its transport uses it. None of its methods raises."""

    def take(self, data: bytes) -> bool:
        """Handle a message at once; False if it has to wait: pass it to ``receive``, and the next ones after it."""

    async def receive(self, data: bytes) -> None:
        """Handle a message; returns when the next one may be read."""

    async def end_requests(self) -> None:
        """The client has ended its side, behind all messages."""

    def cancel(self) -> None:
        """The client has left, or the call was cancelled: nothing more can be sent."""


class CallContext(Protocol):
    """A gRPC call, as handlers and interceptors see it on either transport."""

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""

    def invocation_metadata(self) -> Any:
        """The metadata of the request, as pairs."""

    def peer(self) -> str:
        """The client's address, percent-encoded as gRPC has it."""

    async def write(self, message: bytes) -> None:
        """Send a message; returns when it has passed the client's flow-control windows."""

    def write_now(self, message: bytes) -> bool:
        """Send a message if that needs no waiting; False: nothing was sent."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with this status. Raises."""

    async def serve(self, handler: CallHandler) -> None:
        """Pass the messages and the end of the call to ``handler``. The call may go on when this returns."""

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End a served call with this status. Harmless when it has ended."""


@dataclass(slots=True)
class StreamDependencies:
    """Objects that all streams of a server share. ``ids`` yields the ids of streams; ``streams`` are the open ones."""

    work_queue: WorkQueue
    write_limiter: WriteLimiter
    node_auth: NodeAuthorizer
    refusals: RefusalRecorder
    metrics: Metrics
    options: ServerOptions
    ids: count[int]
    streams: dict[StreamHandler, None]


class StreamHandler(ABC):
    """One stream. It keeps ``slot`` until its first message is handled. ``identity`` is that of its client.

    ``service`` is the short name of its service, for logs and authorisation.
    """

    __slots__ = (
        "_began_at", "_context", "_deps", "_ending", "_is_closed", "_outbox", "_peer", "_progress", "_rate",
        "_service_label", "_slot", "_status", "_work_queue", "_work_queued", "_writer", "id", "identity",
    )  # fmt: skip

    def __init__(
        self,
        deps: StreamDependencies,
        context: CallContext,
        slot: AdmissionSlot,
        service: str,
        identity: Identity = ANONYMOUS,
    ) -> None:
        self.id = next(deps.ids)
        self.identity = identity
        self._began_at = monotonic()
        self._context = context
        self._deps = deps
        self._peer = intern(unquote(context.peer()))
        self._rate = RateLimit(deps.options.requests_per_s, deps.options.requests_burst)
        self._service_label = service
        self._slot: AdmissionSlot | None = slot
        self._work_queue = deps.work_queue
        self._work_queued = False
        self._outbox: list[bytes] = []  # a list, because an empty deque takes ten times the memory
        self._writer: asyncio.Task[None] | None = None
        self._progress: Waiter = None  # of `receive`
        self._ending = False
        self._is_closed = False
        self._status = OK_STATUS

    @property
    @abstractmethod
    def node(self) -> Node | None:
        """The client's node; None before the client has sent it."""

    @property
    @abstractmethod
    def group(self) -> str:
        """The group that the stream follows; empty while there is none."""

    @property
    def peer(self) -> str:
        """The client's address, as gRPC writes it."""
        return self._peer

    @property
    def service_label(self) -> str:
        """The short name of the service (``ADS``)."""
        return self._service_label

    @property
    def is_ending(self) -> bool:
        """Whether the server has decided to end the stream."""
        return self._ending

    @property
    def is_at_rest(self) -> bool:
        """Whether the client has answered everything that it was sent, and nothing of it waits."""
        return not self._outbox

    # Authorisation

    def recheck(self) -> None:
        """Check the stream against the current rules and the client's current identity, and end it if it is refused."""
        if self.node is not None:
            try:
                self._authorize(self.node, self.group)
            except RemoteProtocolError as error:
                self.finish(status_of(error))

    def _authorize(self, node: Node, group: str) -> None:
        """Raises ``RemoteProtocolError`` if the client may not be this node or follow this group."""
        self._deps.node_auth.check(self.identity, node, group, self._service_label, self._peer)

    # Lifecycle

    async def run(self) -> None:
        """Begin, and serve the call. The stream may go on when this returns."""
        self._deps.streams[self] = None
        self._on_open()
        await self._context.serve(self)

    def finish(self, status: Status = OK_STATUS) -> None:
        """End the stream once its outbox is written. The first status counts."""
        if not self._ending:
            self._ending = True
            self._status = status
            asyncio.get_running_loop().call_soon(self._end_if_written)  # the caller may have more to send

    def cancel(self) -> None:
        """As `CallHandler.cancel`."""
        if not self._is_closed:
            self._status = CLIENT_LEFT
            self._close()

    def _end_if_written(self) -> None:
        if not self._is_closed and not self._outbox:
            self._close()

    def _close(self) -> None:
        """The end, for both sides."""
        self._ending = self._is_closed = True  # work that is still queued does nothing
        if self._writer is not None:
            self._writer.cancel()
        self._release_slot()
        del self._deps.streams[self]
        self._work_queue.submit_low(partial(self._on_close, monotonic() - self._began_at))
        self._context.end(*self._status)

    def _fail(self) -> None:
        """End the stream after a bug of the server. Called while the exception is handled."""
        self._log_failure()
        self.finish((grpc.StatusCode.INTERNAL, "internal error"))

    def _refuse(self, error: RemoteProtocolError) -> None:
        """A request broke a rule: count the limit that it hit, if any, record the refusal, and end the stream."""
        self._deps.metrics.count_limit(error)
        self._deps.refusals.record_request(error, self._peer, self._service_label, self.identity, self.node)
        self.finish(status_of(error))

    def _release_slot(self) -> None:
        """Give up the admission slot: the first message is handled, or the stream ends."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    # Reading

    def take(self, data: bytes) -> bool:
        """As `CallHandler.take`. By default every message is received in a task."""
        return False

    async def receive(self, data: bytes) -> None:
        """As `CallHandler.receive`."""
        if self._ending:
            return
        try:
            await self._receive(data)
        except RemoteProtocolError as error:
            self._refuse(error)
        except Exception:
            self._fail()

    async def end_requests(self) -> None:
        """As `CallHandler.end_requests`: by default the stream ends as well."""
        self.finish()

    async def _until_progress(self) -> None:
        """Wait until a response is written, or a request of an inbox is handled."""
        self._progress = asyncio.get_running_loop().create_future()
        await self._progress
        self._progress = None

    # Writing

    def _write_body(self, body: bytes) -> None:
        """Write a response: at once, or through the outbox."""
        may_be_direct = len(body) <= self._deps.options.flow.direct_write_bytes and not self._outbox
        if may_be_direct and self._context.write_now(body):
            return
        self._outbox.append(body)
        if self._writer is None and not self._is_closed:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Write the responses of the outbox."""
        outbox, write, limiter = self._outbox, self._context.write, self._deps.write_limiter
        small_bytes = self._deps.options.flow.small_write_bytes
        try:
            while outbox:
                body = outbox[0]
                if len(body) <= small_bytes:
                    await write(body)
                else:
                    await limiter.write(body, write, self.node.id if self.node is not None else "", self._peer)
                del outbox[0]
                wake(self._progress)
        except CALL_ERRORS:
            self.cancel()
        except Exception:
            outbox.clear()
            self._fail()
        finally:
            self._writer = None
        if self._ending:
            self._end_if_written()
        elif self._has_work():
            self._submit_work()

    # Work

    def _submit_work(self) -> None:
        """Submit a work item that offers changes. While the outbox is not empty, the writer submits it afterwards."""
        if not self._work_queued and not self._outbox:
            self._work_queued = True
            self._work_queue.run_first(self._work)

    def _work(self) -> None:
        """A work item: offer the changes to the client."""
        self._work_queued = False
        if self._ending or self._outbox:
            return
        try:
            self._offer()
        except RemoteProtocolError as error:  # the client may not follow its new group
            self.finish(status_of(error))
        except Exception:
            self._fail()

    # For each kind of stream

    @abstractmethod
    def _on_open(self) -> None:
        """Register the stream: it begins."""

    @abstractmethod
    async def _receive(self, data: bytes) -> None:
        """Handle a request; returns when the next one may be read. Raises ``RemoteProtocolError``."""

    @abstractmethod
    def _has_work(self) -> bool:
        """Whether `_offer` has something to do."""

    @abstractmethod
    def _offer(self) -> None:
        """Put the responses that are due into the outbox. Raises ``RemoteProtocolError``."""

    @abstractmethod
    def _on_close(self, lasted_s: float) -> None:
        """The last work item: remove the stream from everything. Must not raise."""

    @abstractmethod
    def _log_failure(self) -> None:
        """Log the exception that is handled."""


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """A streaming method of a gRPC service. ``label`` is the short name of the service in metrics and logs.

    ``handle`` makes the handler of a call.
    """

    service: str
    method: str
    label: str
    handle: Callable[[CallContext, AdmissionSlot, Identity], StreamHandler]
