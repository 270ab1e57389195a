"""Admission of new connections and streams: a fleet that connects at once is served in order, some at a time.

A waiting connection is not read, and the first request of a waiting stream stays in the transport's flow control. So
waiting takes almost no memory, although each first request has Envoy's node of 60 kB. Connections take turns, and none
has more than its share of the slots: tens of thousands of streams on one connection delay no other connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import Protocol

from xds.server.counters import Metrics
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits


class Throttled(Protocol):
    """A new connection, as the throttle uses it."""

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``."""

    def resume_reading(self) -> None:
        """Read again."""


class ConnectionThrottle:
    """Bounds how many new connections are read at once, first come, first served.

    A connection keeps its slot until its first request is consumed, at most for ``first_message_s``.
    """

    def __init__(self, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self._limits = limits
        self._reading: dict[Throttled, asyncio.TimerHandle] = {}
        self._waiting: dict[Throttled, None] = {}

    def add(self, connection: Throttled) -> None:
        """Add an accepted connection. It is paused unless a slot is free."""
        if len(self._reading) < self._limits.connection_slots:
            self._give_slot(connection)
        else:
            self._waiting[connection] = None
            connection.pause_reading()

    def release(self, connection: Throttled) -> None:
        """Remove a connection: its first request was consumed, or it is closed. Harmless when repeated."""
        timer = self._reading.pop(connection, None)
        if timer is None:
            self._waiting.pop(connection, None)
            return
        timer.cancel()
        while self._waiting and len(self._reading) < self._limits.connection_slots:
            next_connection = next(iter(self._waiting))
            del self._waiting[next_connection]
            self._give_slot(next_connection)
            next_connection.resume_reading()

    def _give_slot(self, connection: Throttled) -> None:
        delay_s = self._limits.first_message_s
        self._reading[connection] = asyncio.get_running_loop().call_later(delay_s, self.release, connection)


class AdmissionSlot:
    """The slot of one admitted stream."""

    __slots__ = ("_admission", "_has_message", "_peer", "_timer")

    def __init__(self, admission: Admission, peer: str) -> None:
        delay_s = admission.limits.first_message_s
        self._admission = admission
        self._peer = peer
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(delay_s, self._expire)
        self._has_message = False

    def extend(self) -> None:
        """Note that the first request has arrived: the slot may be kept ``first_answer_s`` longer."""
        self._has_message = True

    def release(self) -> None:
        """Return the slot: the first request was handled, or the stream has ended. Harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._admission._release(self._peer)

    def _expire(self) -> None:
        if self._has_message and self._timer is not None:
            self._has_message = False
            delay_s = self._admission.limits.first_answer_s
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire)
        else:
            self.release()


_Waiting = dict[asyncio.Future[None], None]  # in the order of arrival


class Admission:
    """Admits the new streams of one server."""

    def __init__(self, metrics: Metrics, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self.limits = limits
        self._metrics = metrics
        self._free = limits.admission_slots
        self._slots: Counter[str] = Counter()  # in use, by connection
        self._waiting: dict[str, _Waiting] = {}  # by connection, in the order of their turns

    async def acquire(self, peer: str) -> AdmissionSlot:
        """Wait for a slot for a stream of the connection ``peer``.

        Streams of a connection: first come, first served. Connections take turns.
        """
        began_at = monotonic()
        if self._free and self._has_share(peer) and peer not in self._waiting:
            self._take(peer)
        else:
            await self._wait(peer)
        self._metrics.admission_seconds.observe(monotonic() - began_at)
        return AdmissionSlot(self, peer)

    def _has_share(self, peer: str) -> bool:
        return self._slots[peer] < self.limits.slots_per_connection

    def _take(self, peer: str) -> None:
        self._free -= 1
        self._slots[peer] += 1

    async def _wait(self, peer: str) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, {})[granted] = None
        self._metrics.awaiting_admission += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(peer)  # the slot was granted just before
            else:
                self._leave(peer, granted)
            raise
        finally:
            self._metrics.awaiting_admission -= 1

    def _leave(self, peer: str, granted: asyncio.Future[None]) -> None:
        """Remove a stream that no longer waits."""
        waiting = self._waiting.get(peer)
        if waiting is not None:
            waiting.pop(granted, None)  # its turn may have come after it was cancelled
            if not waiting:
                del self._waiting[peer]

    def _release(self, peer: str) -> None:
        """Take back a slot of a connection, and give it to the next waiting connection with free slots in its share."""
        self._free += 1
        self._slots[peer] -= 1
        if not self._slots[peer]:
            del self._slots[peer]
        # Only connections that use their whole share are skipped: they are few.
        while (next_peer := next(filter(self._has_share, self._waiting), None)) is not None:
            if self._grant(next_peer):
                return

    def _grant(self, peer: str) -> bool:
        """Give a slot to the first waiting stream of a connection, which then moves to the end. False if none waits."""
        waiting = self._waiting.pop(peer)
        is_granted = False
        while waiting and not is_granted:
            granted = next(iter(waiting))
            del waiting[granted]
            if not granted.done():  # else it was cancelled just now
                self._take(peer)
                granted.set_result(None)
                is_granted = True
        if waiting:
            self._waiting[peer] = waiting
        return is_granted
