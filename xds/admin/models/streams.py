"""Refused streams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPeer:
    """The refused streams of one address for one reason, and the last of them.

    * ``address``: the address of the client, without its port;
    * ``reason``: ``unauthenticated``, ``forbidden`` (a scope is missing), ``node`` (it may not be the node that it
      names), ``tls`` (the handshake failed), ``protocol`` (not the protocol of the port, or an unknown method),
      ``request`` (a request breaks a rule) or ``limit``;
    * ``message``: why the last one was refused;
    * ``peer``: where the last one came from, as ``HOST:PORT`` after the kind of the address;
    * ``service``: the service or method that it asked for; ``REST`` for a poll, ``HTTP`` for a connection to the HTTP
      port; empty if it did not get that far;
    * ``principal``: who the client is; empty if it is not known;
    * ``node``: the id of the node; empty if it is not known;
    * ``group``: the group of the node; empty if it is not known;
    * ``count``: how many streams were refused since ``first``;
    * ``first``: when the first one was refused;
    * ``last``: when the last one was refused.
    """

    schema_name: ClassVar[str] = "RefusedStreamItem"

    address: str
    reason: str
    message: str
    peer: str
    service: str
    principal: str
    node: str
    group: str
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPeers:
    """Refused streams by address and reason; those that were refused last are first.

    * ``recent``: how many streams were refused in the last ``recent_s`` seconds, to the minute;
    * ``recent_s``: the length of that window;
    * ``summary``: that number and the last one in words; empty if none was refused in that time;
    * ``partial``: present if servers did not answer: their names. What they refused is missing.
    """

    schema_name: ClassVar[str] = "RefusedStreamsAnswer"

    items: tuple[RefusedPeer, ...]
    recent: int
    recent_s: int
    summary: str
    partial: tuple[str, ...] = ()
