"""The life of a stream in the asyncio shell, whatever it carries: from its place at admission to its final status.

A stream has two tasks: a reader, and the gRPC handler itself as the writer. Its last act is a turn of the kind that can
wait (`xds.server.turns`): leaving takes some 100 us, a network that breaks ends thousands at once, and those who come
back stand behind them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, Protocol, cast
from urllib.parse import unquote

import grpc

from xds.control.access import ANONYMOUS, Identity
from xds.model.errors import RemoteProtocolError
from xds.model.node import Node
from xds.server.admission import Place
from xds.server.turns import Turns
from xds.server.wakeup import Wakeup

COPY_S_PER_BYTE = 1e-9  # what handing a large body to grpcio, which copies it, takes of the loop

Status = tuple[grpc.StatusCode, str]
BROKEN = (grpc.RpcError, grpc.aio.BaseError)  # what reading and writing raise when the call is over
FINE: Status = (grpc.StatusCode.OK, "")
GONE: Status = (grpc.StatusCode.CANCELLED, "the client is gone")
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def status_of(error: RemoteProtocolError) -> Status:
    """What a client is told that broke a rule."""
    return _CODES[error.code.value], error.message


class Context(Protocol):
    """What is used of gRPC's ServicerContext."""

    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...
    async def abort(self, code: grpc.StatusCode, details: str) -> None: ...
    def peer(self) -> str: ...


class PromptContext(Context, Protocol):
    """What our own transport offers beyond gRPC's: an ACK, and an answer to it, without a task in between."""

    def listen(self, take: Callable[[bytes], bool]) -> None: ...
    def write_now(self, message: bytes) -> bool: ...


def never(_message: bytes) -> bool:
    """The ``write_now`` of grpcio's transport, which does nothing at once, and copies what it is given."""
    return False


class Shell(ABC):
    """One stream. It holds ``place`` until its first message is taken up. ``identity`` is who opened it.

    Where the transport can, ``take`` is offered what comes before the reader is (`PromptContext`).
    """

    __slots__ = ("_context", "_ending", "_peer", "_place", "_status", "_turns", "_wake", "_write_now", "identity")

    def __init__(
        self,
        context: Context,
        place: Place,
        turns: Turns,
        take: Callable[[bytes], bool] | None = None,
        identity: Identity = ANONYMOUS,
    ) -> None:
        self.identity = identity
        self._context = context
        self._peer = unquote(context.peer())
        self._place: Place | None = place
        self._turns = turns
        self._wake = Wakeup()
        self._ending = False
        self._status = FINE
        self._write_now: Callable[[bytes], bool] = never
        if hasattr(context, "listen"):
            prompt = cast(PromptContext, context)
            self._write_now = prompt.write_now
            if take is not None:
                prompt.listen(take)

    @property
    @abstractmethod
    def node(self) -> Node | None:
        """Who it is of, once it has said so."""

    @property
    def peer(self) -> str:
        """The client's address, as gRPC writes it."""
        return self._peer

    @abstractmethod
    def recheck(self) -> None:
        """The rules or its identity have changed: end it where it would not be let in now."""

    @property
    def is_ending(self) -> bool:
        return self._ending

    def finish(self, status: Status = FINE) -> None:
        """End the stream when what is to be written is."""
        if not self._ending:
            self._ending = True
            self._status = status
        self._wake.set()

    async def run(self) -> None:
        """The whole stream, until either side ends it."""
        began_at = monotonic()
        self._enter()
        reader = asyncio.create_task(self._read())
        try:
            await self._write()
        except (asyncio.CancelledError, *BROKEN):
            self._status = GONE
        except Exception:
            self._fail()
        finally:
            reader.cancel()
            self._ending = True  # turns that are asked for come to nothing
            self._leave_admission()
            self._turns.take_late(partial(self._close, monotonic() - began_at))
        if self._status is GONE:
            raise asyncio.CancelledError  # nobody is there to be told a status
        if self._status[0] is not grpc.StatusCode.OK:
            await self._context.abort(*self._status)

    def _fail(self) -> None:
        """A bug of ours costs one stream. Called while its exception is handled."""
        self._log_failure()
        self.finish((grpc.StatusCode.INTERNAL, "internal error"))

    def _leave_admission(self) -> None:
        """The first message is taken up, or none comes any more."""
        if self._place is not None:
            self._place.leave()
            self._place = None

    # What differs with what it carries

    @abstractmethod
    def _enter(self) -> None:
        """The stream begins."""

    @abstractmethod
    async def _read(self) -> None:
        """Take what comes until the client ends its side; then, and on an error, `finish`. Must not raise."""

    @abstractmethod
    async def _write(self) -> None:
        """Write what there is, whenever ``_wake`` is set, until the stream ends."""

    @abstractmethod
    def _close(self, lasted_s: float) -> None:
        """A turn, the last one: take the stream out of everything. Must not raise."""

    @abstractmethod
    def _log_failure(self) -> None: ...
