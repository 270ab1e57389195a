"""A gRPC stream of any kind in the asyncio shell, from its admission slot to its final status.

A stream has two tasks: a reader, and the gRPC handler itself as the writer. Engine work runs in the work queue, in turn
with all other streams (`xds.server.flow.work_queue`). Changes are offered to a client only after all earlier responses
are written. A low-priority work item closes a stream: closing takes some 100 us, a network failure ends thousands of
streams at once, and clients that reconnect come first.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Protocol
from urllib.parse import unquote

import grpc

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.certificate import Certificate
from xds.model.errors import LimitError, RemoteProtocolError
from xds.model.node import Node
from xds.server.flow.admission import AdmissionSlot
from xds.server.flow.limits import RateLimit
from xds.server.flow.work_queue import SingleWaiterEvent, WorkQueue
from xds.server.flow.write_limiter import WriteLimiter
from xds.server.identity import NodeAuthorizer
from xds.server.metrics.counters import Metrics
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


class CallContext(Protocol):
    """A gRPC call, as handlers and interceptors see it on either transport."""

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""

    def invocation_metadata(self) -> Any:
        """The metadata of the request, as pairs."""

    def peer(self) -> str:
        """The client's address, percent-encoded as gRPC has it."""

    async def read(self) -> Any:
        """The next message, or ``grpc.aio.EOF``."""

    async def write(self, message: bytes) -> None:
        """Send a message; returns when it has passed the client's flow-control windows."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with this status. Raises."""

    def listen(self, on_message: Callable[[bytes], bool]) -> None:
        """Offer each message to ``on_message`` first, if the transport can; ``read`` returns those that it refuses."""

    def write_now(self, message: bytes) -> bool:
        """Send a message if that needs no waiting; False: nothing was sent."""


@dataclass(slots=True)
class StreamDependencies:
    """Objects that all streams of a server share. ``ids`` yields the ids of streams."""

    work_queue: WorkQueue
    write_limiter: WriteLimiter
    node_auth: NodeAuthorizer
    refusals: RefusalRecorder
    metrics: Metrics
    options: ServerOptions
    ids: count[int]


class StreamHandler(ABC):
    """One stream. It keeps ``slot`` until its first message is handled. ``identity`` is that of its client.

    ``service`` is the short name of its service, for logs and authorisation. ``on_message`` is offered each message
    before the reader, if the transport can do that (`CallContext.listen`): an ACK then needs no task switch.
    """

    __slots__ = (
        "_context", "_deps", "_drained", "_ending", "_outbox", "_peer", "_rate", "_service_label", "_slot", "_status",
        "_wake", "_work_queue", "_work_queued", "_write_now", "id", "identity",
    )  # fmt: skip

    def __init__(
        self,
        deps: StreamDependencies,
        context: CallContext,
        slot: AdmissionSlot,
        service: str,
        identity: Identity = ANONYMOUS,
        on_message: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.id = next(deps.ids)
        self.identity = identity
        self._context = context
        self._deps = deps
        self._peer = unquote(context.peer())
        self._rate = RateLimit(deps.options.requests_per_s, deps.options.requests_burst)
        self._service_label = service
        self._slot: AdmissionSlot | None = slot
        self._work_queue = deps.work_queue
        self._work_queued = False
        self._outbox: list[bytes] = []  # a list, because an empty deque takes ten times the memory
        self._drained = SingleWaiterEvent()  # a body of the outbox was written
        self._wake = SingleWaiterEvent()  # the writer has something to do
        self._ending = False
        self._status = OK_STATUS
        self._write_now = context.write_now
        if on_message is not None:
            context.listen(on_message)

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

    def finish(self, status: Status = OK_STATUS) -> None:
        """End the stream once its outbox is written. The first status counts."""
        if not self._ending:
            self._ending = True
            self._status = status
        self._wake.set()

    async def run(self) -> None:
        """Serve the stream until either side ends it."""
        began_at = monotonic()
        self._on_open()
        reader = asyncio.create_task(self._read())
        try:
            await self._write()
        except (asyncio.CancelledError, *CALL_ERRORS):
            self._status = CLIENT_LEFT
        except Exception:
            self._fail()
        finally:
            reader.cancel()
            self._ending = True  # work that is still queued does nothing
            self._release_slot()
            self._work_queue.submit_low(partial(self._on_close, monotonic() - began_at))
        if self._status is CLIENT_LEFT:
            raise asyncio.CancelledError  # there is no client to send a status to
        if self._status[0] is not grpc.StatusCode.OK:
            await self._context.abort(*self._status)

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

    # Writing

    async def _write(self) -> None:
        """Write the responses of the outbox until the stream ends."""
        outbox, write, limiter = self._outbox, self._context.write, self._deps.write_limiter
        small_bytes = self._deps.options.flow.small_write_bytes
        while not self._ending or outbox:
            await self._wake.wait()
            self._wake.clear()
            while outbox:
                body = outbox[0]
                if len(body) <= small_bytes:
                    await write(body)
                else:
                    await limiter.write(body, write, self.node.id if self.node is not None else "", self._peer)
                del outbox[0]
                self._drained.set()
            if self._has_work():
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
    async def _read(self) -> None:
        """Read requests until the client ends its side or breaks a rule; then `finish`. Must not raise."""

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
