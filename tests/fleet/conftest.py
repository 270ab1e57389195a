"""Engine events as the fleet sees them, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from xds.fleet.fleet import Fleet
from xds.model.node import Locality, Node
from xds.model.resource import Resource
from xds.model.resource_type import resource_type, type_url_of
from xds.model.snapshot import ResourceSet
from xds.protocol.events import (
    Acked,
    Event,
    Identified,
    Nacked,
    Send,
    Subscribed,
    Synced,
    ViewChanged,
)
from xds.protocol.requests import ErrorDetail
from xds.snapshots.responses import Response

_numbers = count(1)


def resource_set(alias: str, version: str, **resources: str) -> ResourceSet:
    """A set of a type: names with their content versions."""
    type_url = type_url_of(alias)
    members = {name: Resource(type_url, name, content.encode(), content) for name, content in resources.items()}
    return ResourceSet(resource_type(type_url), version, members)


def response(served: ResourceSet, names: Sequence[str] | None = None, removed: Sequence[str] = ()) -> Response:
    """A response that carries the whole set, or ``names`` of it."""
    number = next(_numbers)
    told = tuple(served.resources if names is None else names)
    digest = repr([(name, served.resources[name].version) for name in told] + sorted(removed)).encode()
    return Response(b"", f"n{number}", number, served, told, tuple(removed), digest)


class Client:
    """One stream of one node, told event by event."""

    def __init__(
        self,
        fleet: Fleet,
        node: str = "n1",
        group: str = "default",
        peer: str = "ipv4:127.0.0.1:1",
        api: str = "",
        now: float = 1000.0,
    ) -> None:
        self.fleet = fleet
        self.id = next(_numbers)
        self.now = now
        self.node = Node(node, "edge", Locality("r", "z"), user_agent="envoy 1.40.0")
        fleet.stream_opened(self.id, peer, "ADS", "sotw", self.now, api)
        self.apply_events(Identified(self.node, group))

    def apply_events(self, *events: Event) -> None:
        self.now += 1
        self.fleet.apply_events(self.id, events, self.now)

    def subscribe(self, alias: str, *names: str, missing: Sequence[str] = ()) -> None:
        wanted = frozenset(names) - {"*"}
        self.apply_events(Subscribed(type_url_of(alias), "*" in names, wanted, tuple(missing)))

    def send(self, sent: Response) -> None:
        self.apply_events(Send(sent.resource_set.type.type_url, sent.nonce, sent.body, sent))

    def ack(self, sent: Response) -> None:
        self.send(sent)
        self.apply_events(Acked(sent.resource_set.type.type_url, sent.nonce, sent))

    def nack(self, sent: Response, message: str = "no good", guilty: Sequence[str] = ()) -> None:
        self.send(sent)
        self.apply_events(
            Nacked(sent.resource_set.type.type_url, sent.nonce, sent, ErrorDetail(13, message), tuple(guilty))
        )

    def in_step(self, served: ResourceSet) -> None:
        self.apply_events(Synced(served.type.type_url, served))

    def follow(self, group: str) -> None:
        self.apply_events(ViewChanged(group))

    def close(self) -> None:
        self.now += 1
        self.fleet.stream_closed(self.id, self.now)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()
