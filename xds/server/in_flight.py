"""Bytes in flight: how much of what is written may wait in the transport, over all streams.

Each write in progress is a copy of its body in gRPC's memory until the client's flow control lets it out. So large
writes pass one of two lanes, each with a bound and a line of its own, first come, first served:

* the fast lane has most of the room. A write that is still there after ``SLOW_S`` moves to the slow lane, if that has
  room, and its client is remembered as slow until it takes something promptly;
* the slow lane is where slow clients wait for each other, and nobody else for them.

When clients that do not read have filled both while others wait, those that keep the room longest are to be cut off:
`look` names them. Values only; the caller has the clock and does the cutting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import inf

SLOW_S = 1.0  # a write that takes longer
PATIENCE_S = 10.0  # how long a write in the slow lane may take while other slow clients wait
SLOW_SHARE = 0.25
_KNOWN_SLOW = 10_000


class Write:
    """A large body on its way. ``go`` is called when it may start, if it could not at once.

    ``client`` is by whom a client that comes back is recognised, ``peer`` the connection to cut.
    """

    __slots__ = ("began_at", "charge", "client", "cut_at", "go", "is_known_slow", "lane", "peer", "size")

    def __init__(self, client: str, peer: str, size: int, go: Callable[[], None]) -> None:
        self.client = client
        self.peer = peer
        self.size = size
        self.go = go
        self.charge = 0
        self.lane: Lane | None = None
        self.began_at = 0.0
        self.is_known_slow = False
        self.cut_at = -inf

    def is_cut(self, now: float) -> bool:
        """True while it can be expected to leave because of that."""
        return now - self.cut_at < SLOW_S


class Lane:
    """Writes that share a bound. A body larger than it passes alone."""

    __slots__ = ("limit", "line", "used", "writes")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.writes: OrderedDict[Write, None] = OrderedDict()  # under way, oldest first
        self.line: OrderedDict[Write, None] = OrderedDict()

    @property
    def head(self) -> Write | None:
        """Whose turn is next."""
        return next(iter(self.line), None)

    def fits(self, write: Write) -> bool:
        return self.used + min(write.size, self.limit) <= self.limit

    def lacks(self, limit: int) -> int:
        """How many bytes are wanting for all in the line; no need to know whether it is more than ``limit``."""
        lacking = self.used - self.limit
        for write in self.line:
            lacking += min(write.size, self.limit)
            if lacking >= limit:
                break
        return lacking

    def put(self, write: Write) -> None:
        write.lane = self
        write.charge = min(write.size, self.limit)
        self.used += write.charge
        self.writes[write] = None

    def take_out(self, write: Write) -> None:
        del self.writes[write]
        self.used -= write.charge
        write.lane = None


class InFlight:
    """The account of one server. ``enter`` before a write, ``leave`` after it or instead of it."""

    def __init__(self, limit_bytes: int) -> None:
        self.waits = 0  # writes that had to wait for their turn
        self.cuts = 0
        slow = int(limit_bytes * SLOW_SHARE)
        self._fast = Lane(limit_bytes - slow)
        self._slow = Lane(slow)
        self._known_slow: OrderedDict[str, None] = OrderedDict()  # clients, oldest first

    @property
    def used_bytes(self) -> int:
        return self._fast.used + self._slow.used

    @property
    def slow(self) -> int:
        """How many writes are in the slow lane, or wait for it."""
        return len(self._slow.writes) + len(self._slow.line)

    @property
    def waiting(self) -> int:
        return len(self._fast.line) + len(self._slow.line)

    def enter(self, write: Write, now: float) -> bool:
        """True when the write may start at once; else ``write.go`` is called when it may."""
        write.is_known_slow = write.client in self._known_slow
        lane = self._slow if write.is_known_slow else self._fast
        if not lane.line and lane.fits(write):
            lane.put(write)
            write.began_at = now
            return True
        self.waits += 1
        lane.line[write] = None
        return False

    def leave(self, write: Write, now: float, done: bool) -> None:
        """The write is ``done``, or has failed, or will not start."""
        if write.lane is None:
            del (self._slow if write.is_known_slow else self._fast).line[write]
        else:
            write.lane.take_out(write)
            if done and now - write.began_at < SLOW_S:
                self._known_slow.pop(write.client, None)
        self._admit(now)

    def look(self, now: float) -> list[Write]:
        """Call now and then while somebody waits: slow writes make room. Those returned must be cut off by force."""
        found: list[Write] = []
        if self._fast.head is not None:
            found += self._relieve(now)
        if self._slow.head is not None:
            found += self._victims(self._slow.head.size, now, PATIENCE_S)
        self._admit(now)
        return found

    def _relieve(self, now: float) -> list[Write]:
        """Move slow writes out of the fast lane; when they do not fit, those that have to make room for them."""
        excess = 0
        for write in self._stalled(self._fast, now, SLOW_S):
            self._remember(write)
            if self._slow.head is None and self._slow.fits(write):
                self._fast.take_out(write)
                self._slow.put(write)
            else:
                excess += write.charge
        return self._victims(min(excess, self._fast.lacks(excess)), now, SLOW_S)

    def _victims(self, wanted: int, now: float, patience_s: float) -> list[Write]:
        """Cut off those that kept their room longest, until what they and those cut just now give back is enough."""
        lanes = (self._slow, self._fast)
        wanted -= sum(write.charge for lane in lanes for write in lane.writes if write.is_cut(now))
        found: list[Write] = []
        for lane in lanes:
            for write in self._stalled(lane, now, patience_s):
                if wanted <= 0:
                    break
                if not write.is_known_slow or now - write.began_at >= PATIENCE_S:
                    wanted -= write.charge
                    write.cut_at = now
                    self._remember(write)
                    found.append(write)
        self.cuts += len(found)
        return found

    def _stalled(self, lane: Lane, now: float, after_s: float) -> Iterator[Write]:
        for write in list(lane.writes):
            if not write.is_cut(now) and now - write.began_at >= after_s:
                yield write

    def _remember(self, write: Write) -> None:
        self._known_slow[write.client] = None
        if len(self._known_slow) > _KNOWN_SLOW:
            self._known_slow.popitem(last=False)

    def _admit(self, now: float) -> None:
        """Let those start that have their turn."""
        for lane in (self._fast, self._slow):
            while (write := lane.head) is not None and lane.fits(write):
                del lane.line[write]
                lane.put(write)
                write.began_at = now
                write.go()
