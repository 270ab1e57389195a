"""The event loop for grpcio's transport: uvloop that drains grpcio's wake-up bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

_BYTES = 1 << 10  # a socket pair holds some 280 of them
_LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # a plain number: the flags are enumerations, slow to combine

# Draining the bytes at each call costs a push a fifth to a third of its CPU: grpcio's thread never blocks then, and it
# and the loop wake each other for each event. So the bytes are left to accumulate for some calls.
SKIPPED = 31
ARRIVING_S = 0.5  # after a stream has arrived nothing is skipped: each one is some four events, and many may follow


class Loop(uvloop.Loop):
    """Drains grpcio's wake-up bytes before they fill their socket pair.

    grpc.aio writes one byte to a socket pair for every event, and its reader takes one byte for all events that are
    queued. Once some 280 bytes fill the pair, grpcio's thread blocks and hands over one event in an iteration of the
    loop: a new stream then waits behind thousands of ACKs.
    """

    drains_until = 0.0

    def drain_always(self) -> None:
        """A stream has arrived, and others may be behind it."""
        self.drains_until = self.time() + ARRIVING_S

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        if isinstance(fd, socket.socket) and _is_grpc(callback):
            return self._add_waking_reader(fd, callback, *args)
        return super().add_reader(fd, callback, *args)

    def _add_waking_reader(self, pair: Any, *args: Any) -> None:
        super().add_reader(pair, _DrainingReader(self, pair), *args)


def _is_grpc(callback: Callable[..., Any]) -> bool:
    method = callback.func if isinstance(callback, partial) else callback
    return getattr(method, "__name__", "") == "_handle_events"


class _DrainingReader:
    """Takes the bytes that have accumulated, but for the one that ``handle`` reads before it takes all events."""

    __slots__ = ("_loop", "_pair", "_skip")

    def __init__(self, loop: Loop, pair: socket.socket) -> None:
        self._loop = loop
        self._pair = pair
        self._skip = 0

    def __call__(self, handle: Callable[..., Any], *args: Any) -> None:
        if self._skip and self._loop.time() > self._loop.drains_until:
            self._skip -= 1
        else:
            self._drain()
        handle(*args)

    def _drain(self) -> None:
        waiting = len(self._pair.recv(_BYTES, _LOOK))
        if waiting > 1:
            self._pair.recv(waiting - 1)
        self._skip = SKIPPED
