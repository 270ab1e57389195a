"""The event loop: uvloop, with what gRPC needs to be heard in time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

_BYTES = 1 << 16


class Loop(uvloop.Loop):
    """Reads all of gRPC's wake-up calls at once.

    grpc.aio writes one byte to a socket pair for every event, and its reader takes one byte for all events that are
    there. So bytes pile up; once some 280 of them fill the pair, gRPC's thread blocks, and hands over one event in an
    iteration of the loop from then on, a new stream behind thousands of ACKs.
    """

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        if isinstance(fd, socket.socket) and _is_grpc(callback):
            return self._add_waking_reader(fd, callback, *args)
        return super().add_reader(fd, callback, *args)

    def _add_waking_reader(self, pair: Any, *args: Any) -> None:
        super().add_reader(pair, _hear, pair, *args)


def _is_grpc(callback: Callable[..., Any]) -> bool:
    method = callback.func if isinstance(callback, partial) else callback
    return getattr(method, "__name__", "") == "_handle_events"


def _hear(pair: socket.socket, handle: Callable[..., Any], *args: Any) -> None:
    """Leave one byte to ``handle``, which takes it and then all events."""
    waiting = len(pair.recv(_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    if waiting > 1:
        pair.recv(waiting - 1)
    handle(*args)
