"""Connected clients in the fleet, made from the engine's own events."""

from __future__ import annotations

from itertools import count

from xds.fleet.fleet import Fleet
from xds.model.node import Node
from xds.model.snapshot import ResourceSet
from xds.protocol.events import (
    Acked,
    Event,
    HeldContent,
    HoldChanged,
    Identified,
    LingerChanged,
    Nacked,
    Send,
    Subscribed,
    ViewChanged,
)
from xds.protocol.requests import ErrorDetail
from xds.snapshots.linger import Lingering, Removal
from xds.snapshots.responses import Response

_numbers = count(1)


class Client:
    """One stream of one node; ``api`` is ``v2`` on the v2 transport."""

    def __init__(self, fleet: Fleet, node: Node, group: str, api: str = "") -> None:
        self.stream_id = next(_numbers)
        self.node = node
        self._fleet = fleet
        fleet.stream_opened(self.stream_id, "127.0.0.1:1", "ADS", "sotw", 1.0, api)
        fleet.apply_events(self.stream_id, [Identified(node, group)], 1.0)

    def subscribe(self, type_url: str, *names: str) -> None:
        """Subscribe to everything of a type, or to these names."""
        self._fleet.apply_events(self.stream_id, [Subscribed(type_url, not names, frozenset(names))], 2.0)

    def send(self, held: ResourceSet) -> None:
        """Receive a set, and do not answer yet."""
        response = _response(held)
        url = held.type.type_url
        self._fleet.apply_events(self.stream_id, [Send(url, response.nonce, response.body, response)], 3.0)

    def ack(self, held: ResourceSet) -> None:
        """Receive a set and ACK it."""
        response = _response(held)
        url = held.type.type_url
        events: list[Event] = [Send(url, response.nonce, response.body, response), Acked(url, response.nonce, response)]
        self._fleet.apply_events(self.stream_id, events, 3.0)

    def nack(self, held: ResourceSet, message: str, at_s: float = 3.0) -> None:
        """Receive a set and NACK it."""
        response = _response(held)
        url = held.type.type_url
        sent = Send(url, response.nonce, response.body, response)
        self._fleet.apply_events(
            self.stream_id, [sent, Nacked(url, response.nonce, response, ErrorDetail(13, message))], at_s
        )

    def linger(self, *removals: Removal) -> None:
        """Keep lingering resources."""
        self._fleet.apply_events(self.stream_id, [LingerChanged(Lingering(removals))], 3.0)

    def hold(self, *trees: HeldContent) -> None:
        """Have held resources."""
        self._fleet.apply_events(self.stream_id, [HoldChanged(trees)], 3.0)

    def move(self, group: str) -> None:
        """Be served as a member of another group; empty: no group matches."""
        self._fleet.apply_events(self.stream_id, [ViewChanged(group)], 3.0)

    def leave(self) -> None:
        """Close the stream."""
        self._fleet.stream_closed(self.stream_id, 4.0)


def _response(held: ResourceSet) -> Response:
    number = next(_numbers)
    return Response(b"", str(number), number, held, tuple(held.resources), (), held.digest)
