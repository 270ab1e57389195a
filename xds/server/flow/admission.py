"""Admission of new connections and streams: a fleet that connects at once is served in order, some at a time.

A waiting connection is not read, and the first request of a waiting stream stays in the transport's flow control, so
waiting costs next to nothing even when each first request has Envoy's node of 60 kB.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.metrics.counters import Metrics


class Throttled(Protocol):
    """A new connection, as the throttle uses it."""

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``."""

    def resume_reading(self) -> None:
        """Read."""


class ConnectionThrottle:
    """Bounds how many new connections are read at once, first come, first served.

    A connection keeps its slot until its first request was consumed, or for ``first_message_s``.
    """

    def __init__(self, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self._limits = limits
        self._reading: dict[Throttled, asyncio.TimerHandle] = {}
        self._waiting: dict[Throttled, None] = {}

    def add(self, connection: Throttled) -> None:
        """A connection was accepted. It is paused unless a slot is free."""
        if len(self._reading) < self._limits.connection_slots:
            self._give_slot(connection)
        else:
            self._waiting[connection] = None
            connection.pause_reading()

    def release(self, connection: Throttled) -> None:
        """The connection's first request was consumed, or it is closed. Harmless when repeated."""
        timer = self._reading.pop(connection, None)
        if timer is None:
            self._waiting.pop(connection, None)
            return
        timer.cancel()
        while self._waiting and len(self._reading) < self._limits.connection_slots:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._give_slot(following)
            following.resume_reading()

    def _give_slot(self, connection: Throttled) -> None:
        delay_s = self._limits.first_message_s
        self._reading[connection] = asyncio.get_running_loop().call_later(delay_s, self.release, connection)


class AdmissionSlot:
    """The slot of one admitted stream."""

    __slots__ = ("_admission", "_has_message", "_timer")

    def __init__(self, admission: Admission) -> None:
        delay_s = admission.limits.first_message_s
        self._admission = admission
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(delay_s, self._expire)
        self._has_message = False

    def extend(self) -> None:
        """The stream's first request has arrived: the slot lasts until it is handled, or ``first_answer_s`` longer."""
        self._has_message = True

    def release(self) -> None:
        """The stream's first request was handled, or the stream has ended. Harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._admission._release()

    def _expire(self) -> None:
        if self._has_message and self._timer is not None:
            self._has_message = False
            delay_s = self._admission.limits.first_answer_s
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire)
        else:
            self.release()


class Admission:
    """Admits the new streams of one server."""

    def __init__(self, metrics: Metrics, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self.limits = limits
        self._metrics = metrics
        self._free = limits.admission_slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> AdmissionSlot:
        """Wait for a slot; first come, first served."""
        began_at = monotonic()
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._wait()
        self._metrics.admission_seconds.observe(monotonic() - began_at)
        return AdmissionSlot(self)

    async def _wait(self) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        self._metrics.awaiting_admission += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release()  # the slot was granted just before
            raise
        finally:
            self._metrics.awaiting_admission -= 1

    def _release(self) -> None:
        """Pass a slot on to the next waiting stream."""
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
