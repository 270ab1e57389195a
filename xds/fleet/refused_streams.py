"""Refused streams and connections of clients, one row for an address and a reason. No clock, no logger.

A refused client tries again without end, and a hostile one thousands of times a second. So memory is bounded: of one
address there is one row for a reason, and the rows refused longest ago are dropped first. `RefusedStreams.add` returns
how many refusals a report (a log line, an event) of a row would have, or 0 while none is due.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

ROWS_LIMIT = 1_000
KEPT_S = 3600.0
RECENT_S = 600
MINUTE_S = 60
REPORT_EVERY_S = 60.0  # of the same address, reason and message
REPORT_CHANGED_S = 1.0  # of the same address and reason, with another message
TEXT_LIMIT = 500


class RefusalReason(StrEnum):
    """Why a client is refused; also the label of the counter. The message of a refusal has the details.

    * ``UNAUTHENTICATED``: no token or certificate, or one that is unknown or has expired;
    * ``FORBIDDEN``: a scope is missing;
    * ``NODE``: the client may not be the node that it names;
    * ``TLS``: the TLS handshake failed;
    * ``PROTOCOL``: not the protocol of this port, or an unknown method;
    * ``REQUEST``: a request that breaks a rule, such as one without a node id;
    * ``LIMIT``: more than a limit allows.
    """

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NODE = "node"
    TLS = "tls"
    PROTOCOL = "protocol"
    REQUEST = "request"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class StreamRefusal:
    """One refused stream, or a connection without any.

    * ``peer``: the address of the client with its port, as gRPC writes it (``ipv4:10.0.0.7:4711``) or without the kind;
    * ``service``: the short name of the service (``ADS``), the method, or the port; empty if the client named none;
    * ``principal``, ``node``, ``group``: as far as they were known.
    """

    reason: RefusalReason
    message: str
    peer: str
    service: str = ""
    principal: str = ""
    node: str = ""
    group: str = ""

    @property
    def address(self) -> str:
        """The address without the port."""
        return address_of(self.peer)

    @property
    def text(self) -> str:
        """Where it came from and why it was refused, in one line."""
        return f"{self.address or 'an unknown address'}: {self.message}"


class RecordRefusal(Protocol):
    """Records a refused stream, or a connection without a stream; the fields are those of `StreamRefusal`."""

    def __call__(
        self, reason: RefusalReason, message: str, peer: str, *, service: str = "", principal: str = ""
    ) -> None:
        """Record it."""


def record_nothing(reason: RefusalReason, message: str, peer: str, *, service: str = "", principal: str = "") -> None:
    """The default of parts that are used without a server."""


@dataclass(slots=True)
class RefusedClient:
    """The refusals of one address for one reason: the last one, and their number. Times are epoch seconds."""

    last: StreamRefusal
    first_at: float
    last_at: float
    count: int = 0
    _unreported: int = 0
    _reported_at: float = 0.0
    _reported_message: str = ""

    def add(self, refusal: StreamRefusal, now: float) -> int:
        """Count a refusal; how many a report would have, 0 while none is due."""
        self.last, self.last_at = refusal, now
        self.count += 1
        self._unreported += 1
        pause_s = REPORT_EVERY_S if refusal.message == self._reported_message else REPORT_CHANGED_S
        return self._unreported if now - self._reported_at >= pause_s else 0

    def note_reported(self) -> None:
        """The refusals up to now were reported."""
        self._unreported, self._reported_at, self._reported_message = 0, self.last_at, self.last.message


class RefusedStreams:
    """The clients that were refused within the last hour, at most ``ROWS_LIMIT`` rows."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, RefusalReason], RefusedClient] = OrderedDict()  # refused last at the end
        self._minutes: deque[list[int]] = deque(maxlen=RECENT_S // MINUTE_S)  # number of the minute, refusals

    def add(self, refusal: StreamRefusal, now: float) -> tuple[RefusedClient, int]:
        """Count a refusal: its row, and how many refusals a report would have, 0 while none is due."""
        minute = int(now // MINUTE_S)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append([minute, 0])
        self._minutes[-1][1] += 1
        key = (refusal.address, refusal.reason)
        row = self._rows.get(key)
        if row is None:
            self._forget_old(now)
            self._rows[key] = row = RefusedClient(refusal, now, now)
        self._rows.move_to_end(key)
        return row, row.add(refusal, now)

    def clients(self, now: float) -> Iterator[RefusedClient]:
        """The rows, those that were refused last first."""
        return (row for row in reversed(self._rows.values()) if now - row.last_at < KEPT_S)

    def recent(self, now: float) -> int:
        """How many streams were refused in the last ``RECENT_S`` seconds, to the minute."""
        oldest = int(now // MINUTE_S) - RECENT_S // MINUTE_S
        return sum(count for minute, count in self._minutes if minute > oldest)

    def summary(self, now: float) -> str:
        """``13 streams refused in 10 min, last from 10.0.0.7: no token``; empty if none was refused in that time."""
        refused, last = self.recent(now), next(self.clients(now), None)
        if not refused or last is None:
            return ""
        what = "stream" if refused == 1 else "streams"
        return f"{refused} {what} refused in {RECENT_S // MINUTE_S} min, last from {last.last.text}"

    def _forget_old(self, now: float) -> None:
        """Make room for a row."""
        while self._rows:
            oldest = next(iter(self._rows.values()))
            if len(self._rows) < ROWS_LIMIT and now - oldest.last_at < KEPT_S:
                return
            self._rows.popitem(last=False)


def address_of(peer: str) -> str:
    """The host of an address: ``ipv4:10.0.0.7:4711``, ``ipv6:[::1]:4711`` and ``[::1]:4711`` without kind and port."""
    bare = peer.removeprefix("ipv4:").removeprefix("ipv6:")
    host, colon, port = bare.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else bare
