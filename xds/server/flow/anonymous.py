"""Anonymous connections: those without an authenticated call so far. They are poor in memory, calls, time and number.

A connection ceases to be anonymous when a call on it has passed the check of its credential. Without configured
credentials every call passes that needs one where there are some, so that a proxy is anonymous nowhere for long. Health
checks need none, and prove nothing.

A whole fleet may connect at once from one address. So connections that still wait to be read are not counted for their
address, and a connection has ``patience_s`` for its first call before another one may take its place.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol

_IPV6_SITE_BYTES = 8  # a host has all addresses of a /64


class AnonymousLimits(NamedTuple):
    """Limits of connections without an authenticated call.

    * ``seconds``: until it must have one. It is then told to go, and closed ``grace_s`` later if calls are still open:
      a client that only checks the health connects again.
    * ``per_source``: connections of one source address, beyond those that are not read yet, or for less than
      ``patience_s``. The oldest one makes room.
    * ``total``: over all addresses; beyond it the newest one of the address that has most.
    * ``calls``: open calls of one connection that need no credential, also later.
    * ``refused_calls``: open calls of one connection that lack the credential that they need. They end within a tenth
      of a second; a proxy with a wrong token may have hundreds of them, and is to read why.
    * ``message_bytes``: of a call that needs no credential.
    """

    seconds: float = 15.0
    per_source: int = 1_000
    total: int = 65_536
    calls: int = 100
    refused_calls: int = 1_000
    message_bytes: int = 4 << 10
    grace_s: float = 5.0
    patience_s: float = 5.0


DEFAULT_ANONYMOUS = AnonymousLimits()


class AnonymousConnection(Protocol):
    """A connection, as `AnonymousConnections` uses it."""

    @property
    def source(self) -> str:
        """Where it comes from, by `source_of`."""

    @property
    def read_since(self) -> float | None:
        """When reading began (the clock of the event loop); None while it waits."""

    @property
    def is_going_away(self) -> bool:
        """Whether it was told to go."""

    def go_away(self) -> None:
        """Accept no more calls; close when the last one has ended."""

    def abort(self) -> None:
        """Close at once."""


class AnonymousConnections:
    """The anonymous connections of one server. Exceeded limits are counted in ``limit_hits``."""

    def __init__(self, limits: AnonymousLimits, limit_hits: Counter[str]) -> None:
        self.limits = limits
        self._limit_hits = limit_hits
        self._all: dict[AnonymousConnection, None] = {}  # in the order of arrival, which is that of reading
        self._by_source: dict[str, dict[AnonymousConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: AnonymousConnection, now: float) -> None:
        """Add an accepted connection. If there are too many, one of them is closed."""
        self._all[connection] = None
        of_source = self._by_source.setdefault(connection.source, {})
        of_source[connection] = None
        if len(of_source) > self.limits.per_source:
            oldest = next(iter(of_source))
            if oldest.read_since is not None and now - oldest.read_since >= self.limits.patience_s:
                self._close(oldest, "anonymous_connections")
        if len(self._all) > self.limits.total:
            largest = max(self._by_source.values(), key=len)
            self._close(next(reversed(largest)), "anonymous_connections")

    def remove(self, connection: AnonymousConnection) -> None:
        """Remove a connection that is closed, or not anonymous any more. Harmless when repeated."""
        if connection not in self._all:
            return
        del self._all[connection]
        of_source = self._by_source[connection.source]
        del of_source[connection]
        if not of_source:
            del self._by_source[connection.source]

    def expire(self, now: float) -> None:
        """End the connections whose time is over. Call it every second or so."""
        for connection in list(self._all):
            if connection.read_since is None or now - connection.read_since < self.limits.seconds:
                return
            if now - connection.read_since >= self.limits.seconds + self.limits.grace_s:
                self._close(connection, "anonymous_seconds")
            elif not connection.is_going_away:
                connection.go_away()

    def close(self) -> None:
        """Close all of them."""
        for connection in list(self._all):
            self._close(connection, "")

    def _close(self, connection: AnonymousConnection, limit: str) -> None:
        self.remove(connection)
        if limit:
            self._limit_hits[limit] += 1
        connection.abort()


def source_of(address: Any) -> str:
    """The host of a socket's peer address, for IPv6 its /64; empty for a connection that does not use IP."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    parsed = ip_address(str(address[0]).partition("%")[0])
    if parsed.version == 4:
        return str(parsed)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.packed[:_IPV6_SITE_BYTES].hex()
