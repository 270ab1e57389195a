"""The write limiter: bounds the bytes of large bodies that wait in the transport, over all streams.

A write in progress keeps its body in memory until the client's flow control admits it. So each large write takes room
in one of two lanes. Each lane has its own bound and its own FIFO queue:

* the fast lane has most of the room. A write that is still in progress after ``slow_write_s`` moves to the slow lane
  if that lane has room, and its client is remembered as slow until it reads a large body promptly;
* in the slow lane, slow clients wait for each other, and no other client waits for them.

When clients that do not read have filled both lanes while others wait, the oldest writes are terminated: their
connections are closed. `WriteLanes` has the rules and is pure; `WriteLimiter` has the clock.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from math import inf
from time import monotonic

from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.flow.work_queue import wake
from xds.server.logs import get_logger

_log = get_logger("xds.server.pacing")


class LargeWrite:
    """The write of one large body. If it cannot start at once, ``on_start`` is called when it may.

    ``client`` identifies a client across connections (its node id), ``peer`` is the address of the connection.
    """

    __slots__ = (
        "began_at",
        "charge",
        "client",
        "from_slow_client",
        "lane",
        "on_start",
        "peer",
        "size",
        "terminated_at",
    )

    def __init__(self, client: str, peer: str, size: int, on_start: Callable[[], None]) -> None:
        self.client = client
        self.peer = peer
        self.size = size
        self.on_start = on_start
        self.charge = 0  # bytes of the lane's room that the write takes
        self.lane: WriteLane | None = None
        self.began_at = 0.0
        self.from_slow_client = False
        self.terminated_at = -inf


class WriteLane:
    """Writes that share a bound of bytes. A body larger than the bound is written alone."""

    __slots__ = ("limit", "queue", "used", "writes")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.writes: OrderedDict[LargeWrite, None] = OrderedDict()  # in progress, oldest first
        self.queue: OrderedDict[LargeWrite, None] = OrderedDict()

    @property
    def head(self) -> LargeWrite | None:
        """The write that starts next."""
        return next(iter(self.queue), None)

    def fits(self, write: LargeWrite) -> bool:
        """Whether a write may start now."""
        return self.used + min(write.size, self.limit) <= self.limit

    def shortfall(self, enough: int) -> int:
        """How many more bytes of room all queued writes need to start; not counted beyond ``enough``."""
        missing = self.used - self.limit
        for write in self.queue:
            missing += min(write.size, self.limit)
            if missing >= enough:
                break
        return missing

    def add(self, write: LargeWrite) -> None:
        """Start a write in this lane: it takes room until ``remove``."""
        write.lane = self
        write.charge = min(write.size, self.limit)
        self.used += write.charge
        self.writes[write] = None

    def remove(self, write: LargeWrite) -> None:
        """Remove a write that has ended, or that changes lanes."""
        del self.writes[write]
        self.used -= write.charge
        write.lane = None


class WriteLanes:
    """The two lanes of one server. Call ``begin`` before a write, and ``end`` after it or if it does not start.

    ``waits`` counts writes that had to wait for room, ``terminated`` writes that were ended by force.
    """

    def __init__(self, limit_bytes: int, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self.waits = 0
        self.terminated = 0
        self._limits = limits
        slow = int(limit_bytes * limits.slow_lane_share)
        self._fast = WriteLane(limit_bytes - slow)
        self._slow = WriteLane(slow)
        self._slow_clients: OrderedDict[str, None] = OrderedDict()  # oldest first

    @property
    def used_bytes(self) -> int:
        """The bytes of writes in progress."""
        return self._fast.used + self._slow.used

    @property
    def slow_n(self) -> int:
        """How many writes are in the slow lane or queued for it."""
        return len(self._slow.writes) + len(self._slow.queue)

    @property
    def waiting_n(self) -> int:
        """How many writes are queued."""
        return len(self._fast.queue) + len(self._slow.queue)

    def begin(self, write: LargeWrite, now: float) -> bool:
        """True if the write may start at once; otherwise ``write.on_start`` is called when it may."""
        write.from_slow_client = write.client in self._slow_clients
        lane = self._slow if write.from_slow_client else self._fast
        if not lane.queue and lane.fits(write):
            lane.add(write)
            write.began_at = now
            return True
        self.waits += 1
        lane.queue[write] = None
        return False

    def end(self, write: LargeWrite, now: float, done: bool) -> None:
        """Remove a write: it is ``done``, or it has failed, or it will not start."""
        if write.lane is None:
            del (self._slow if write.from_slow_client else self._fast).queue[write]
        else:
            write.lane.remove(write)
            if done and now - write.began_at < self._limits.slow_write_s:
                self._slow_clients.pop(write.client, None)
        self._start_queued(now)

    def rebalance(self, now: float) -> list[LargeWrite]:
        """Move slow writes to the slow lane. Call regularly while writes wait.

        Returns the writes whose connections the caller must close to make room.
        """
        victims: list[LargeWrite] = []
        if self._fast.head is not None:
            victims += self._clear_fast_lane(now)
        if self._slow.head is not None:
            victims += self._choose_victims(self._slow.head.size, now, self._limits.slow_write_timeout_s)
        self._start_queued(now)
        return victims

    def _clear_fast_lane(self, now: float) -> list[LargeWrite]:
        """Move slow writes out of the fast lane; returns victims where the slow lane has no room for them."""
        excess = 0
        for write in self._stalled(self._fast, now, self._limits.slow_write_s):
            self._remember_slow(write)
            if self._slow.head is None and self._slow.fits(write):
                self._fast.remove(write)
                self._slow.add(write)
            else:
                excess += write.charge
        return self._choose_victims(min(excess, self._fast.shortfall(excess)), now, self._limits.slow_write_s)

    def _choose_victims(self, wanted: int, now: float, after_s: float) -> list[LargeWrite]:
        """The oldest writes, as many as free ``wanted`` bytes together with those just terminated."""
        lanes = (self._slow, self._fast)
        wanted -= sum(write.charge for lane in lanes for write in lane.writes if self._is_ending(write, now))
        victims: list[LargeWrite] = []
        for lane in lanes:
            for write in self._stalled(lane, now, after_s):
                if wanted <= 0:
                    break
                if not write.from_slow_client or now - write.began_at >= self._limits.slow_write_timeout_s:
                    wanted -= write.charge
                    write.terminated_at = now
                    self._remember_slow(write)
                    victims.append(write)
        self.terminated += len(victims)
        return victims

    def _stalled(self, lane: WriteLane, now: float, after_s: float) -> Iterator[LargeWrite]:
        for write in list(lane.writes):
            if not self._is_ending(write, now) and now - write.began_at >= after_s:
                yield write

    def _is_ending(self, write: LargeWrite, now: float) -> bool:
        """True while a terminated write can be expected to end."""
        return now - write.terminated_at < self._limits.slow_write_s

    def _remember_slow(self, write: LargeWrite) -> None:
        self._slow_clients[write.client] = None
        if len(self._slow_clients) > self._limits.slow_clients:
            self._slow_clients.popitem(last=False)

    def _start_queued(self, now: float) -> None:
        """Start the queued writes that have room now."""
        for lane in (self._fast, self._slow):
            while (write := lane.head) is not None and lane.fits(write):
                del lane.queue[write]
                lane.add(write)
                write.began_at = now
                write.on_start()


class WriteTurns:
    """Bounds how many bytes of large bodies are handed to the transport in one iteration of the loop.

    The transport copies each body when it is handed over. After clients that do not read were disconnected, some forty
    waiting writes start together.
    """

    def __init__(self, bytes_at_once: int) -> None:
        self._bytes_at_once = bytes_at_once
        self._remaining = bytes_at_once  # of this iteration
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._is_refilling = False

    async def take(self, size: int) -> None:
        """Return when a body of ``size`` bytes may be written; first come, first served."""
        if self._waiting or self._remaining <= 0:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((granted, size))
            await granted
        else:
            self._remaining -= size
            self._refill_soon()

    def _refill_soon(self) -> None:
        if not self._is_refilling:
            self._is_refilling = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        """Start the budget of a new iteration, and grant waiting writes."""
        self._is_refilling = False
        self._remaining = self._bytes_at_once
        while self._waiting and self._remaining > 0:
            granted, size = self._waiting.popleft()
            if not granted.done():  # else its stream has ended
                self._remaining -= size
                granted.set_result(None)
        if self._remaining < self._bytes_at_once:
            self._refill_soon()


class WriteLimiter:
    """Limits the large writes of one event loop. ``disconnect`` closes the connections of peers by force."""

    def __init__(
        self,
        limit_bytes: int,
        disconnect: Callable[[Collection[str]], Awaitable[None]],
        limits: FlowLimits = DEFAULT_FLOW,
    ) -> None:
        self.lanes = WriteLanes(limit_bytes, limits)
        self._turns = WriteTurns(limits.write_bytes_at_once)
        self._disconnect = disconnect
        self._rebalance_every_s = limits.rebalance_every_s
        self._rebalancing: asyncio.Task[None] | None = None

    async def write(self, body: bytes, write: Callable[[bytes], Awaitable[None]], client: str, peer: str) -> None:
        """Write a large body when there is room; ``client`` and ``peer`` as in `LargeWrite`."""
        started = asyncio.get_running_loop().create_future()
        entry = LargeWrite(client, peer, len(body), partial(wake, started))
        done = False
        may_start = self.lanes.begin(entry, monotonic())
        try:
            if not may_start:
                self._start_rebalancing()
                await started
            await self._turns.take(len(body))
            await write(body)
            done = True
        finally:
            self.lanes.end(entry, monotonic(), done)

    def _start_rebalancing(self) -> None:
        if self._rebalancing is None or self._rebalancing.done():
            self._rebalancing = asyncio.get_running_loop().create_task(self._rebalance())

    async def _rebalance(self) -> None:
        while self.lanes.waiting_n:
            await asyncio.sleep(self._rebalance_every_s)
            victims = self.lanes.rebalance(monotonic())
            if victims:
                for write in victims:
                    _log.warning("stream.cut", node_id=write.client, peer=write.peer, bytes=write.size)
                await self._disconnect({write.peer for write in victims})
