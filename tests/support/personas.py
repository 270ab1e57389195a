"""Clients in memory that behave like Envoy and gRPC, and detect when a request would have been lost.

Texts say which resource refers to which: see ``tests.support.texts``. Source: docs/internals/clients.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tests.support.envoy_like import DRAIN_S, RETRY_S, EnvoyLike
from tests.support.sansio import Client, Content, Response, Server
from tests.support.texts import TARGET, assignment_of, parse, push
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.dialect import Variant
from xds.protocol.events import Send
from xds.protocol.type_status import TypeStatus

__all__ = [
    "DRAINED_S",
    "DRAIN_S",
    "REMOVED_S",
    "TARGET",
    "EnvoyLike",
    "GrpcLike",
    "Persona",
    "Proxy",
    "assert_in_step",
    "live",
    "push",
    "spend",
    "spend_warming",
]

MANY_STEPS = 10_000
GRID_S = 5.0  # ends are rounded up to it
REMOVED_S = RETRY_S + GRID_S + 1  # after what uses a name is gone
DRAINED_S = DRAIN_S + RETRY_S + 30.0 + GRID_S + 1  # after a listener changed, at most
WARMING_S = 5.0  # on separate streams, after the ACKs of a new cluster: `offer_timeout_s`
MOMENT_S = 0.001


class Proxy(Protocol):
    """The methods that all simulated clients have."""

    server: Server
    lost: list[str]

    def start(self) -> None:
        """Send the first request and handle all responses."""

    def run(self) -> None:
        """Read until no response is left."""

    def step(self) -> bool:
        """Read one response; False when there is none."""
        ...

    def tick(self) -> None:
        """Handle deadlines that have passed."""

    def deadlines(self) -> list[float]:
        """The next deadline, of the client or of the server."""
        ...

    def texts(self, url: str) -> dict[str, str]:
        """The held resources of a type: name to text."""
        ...

    def status(self) -> list[TypeStatus]:
        """The server's status of each type."""
        ...

    def disconnect(self) -> None:
        """End every stream."""

    def reconnect(self) -> None:
        """Open new streams."""


def spend(seconds: float, *clients: Proxy) -> None:
    """Advance the clock. All parties handle their deadlines and read their responses."""
    server = clients[0].server
    end = server.now + seconds
    for _ in range(MANY_STEPS):
        for client in clients:
            client.run()
        due = min((at for client in clients for at in client.deadlines()), default=math.inf)
        if server.now >= end - MOMENT_S and due > server.now:
            return
        server.elapse(max(min(end, due) - server.now, MOMENT_S))
        for client in clients:
            client.tick()
    raise AssertionError("something is always due")


def spend_warming(client: EnvoyLike) -> None:
    """On separate streams: spend the time for which a new cluster is not used after its ACKs, and check that it is not.

    What arrives meanwhile is read and ACKed. Listeners and routes stay as they are until the time is over.
    """
    if client.split:
        before = client.serving()
        spend(WARMING_S - 1, client)
        after = client.serving()
        assert (after[LISTENER], after[ROUTE]) == (before[LISTENER], before[ROUTE]), after
        spend(1, client)


def live(
    server: Server,
    variant: Variant,
    content: Content,
    *,
    split: bool = False,
    ttls: Mapping[str, float] | None = None,
    **fields: Any,
) -> EnvoyLike:
    """An Envoy that uses the pushed resources of this server."""
    push(server, content, source="api" if split else "ads", ttls=ttls)
    client = EnvoyLike(server, variant, split=split, **fields)
    client.start()
    return client


def assert_in_step(client: EnvoyLike, content: Content) -> None:
    """Check that everything pushed is in use, nothing else is held, and nothing waits."""
    used = {name for text in content.get(LISTENER, {}).values() for name in parse(text).names}
    assigned = {assignment_of(name, text) for name, text in content.get(CLUSTER, {}).items()}
    expected = {
        LISTENER: dict(content.get(LISTENER, {})),
        ROUTE: {name: text for name, text in content.get(ROUTE, {}).items() if name in used},
        CLUSTER: dict(content.get(CLUSTER, {})),
        ENDPOINT: {name: text for name, text in content.get(ENDPOINT, {}).items() if name in assigned},
    }
    serving, unfinished = client.serving(), (client.warming, client.opening, client.draining)
    assert not client.lost, client.lost
    assert serving == expected, (serving, expected)
    assert not any(unfinished), unfinished
    for url in (LISTENER, CLUSTER):
        assert client.texts(url) == expected[url], client.texts(url)
    states = {status.type_url: status.state for status in client.status()}
    assert set(states.values()) == {"synced"}, states
    assert not client.deadlines(), client.deadlines()


class Persona(Client, ABC):
    """A client that reads its inbox one response at a time. ``lost`` has the reasons for lost requests."""

    def __init__(self, server: Server, variant: Variant, node_id: str = "node", **fields: Any) -> None:
        self.lost: list[str] = []
        super().__init__(server, variant, node_id, **fields)

    def run(self) -> None:
        """Read until no response is left."""
        for _ in range(MANY_STEPS):
            if not self.step():
                return
        raise AssertionError("the server never stops sending")

    def step(self) -> bool:
        """Read one response; False when there is none."""
        if not self.inbox:
            return False
        send, message = self.read()
        self.react(send, message)
        self.lost += self.blackholes()
        return True

    def tick(self) -> None:
        """Does nothing: this client has no deadlines."""

    def deadlines(self) -> list[float]:
        """The next deadline of the server."""
        deadline = self.stream.deadline()
        return [deadline] if deadline is not None else []

    def status(self) -> list[TypeStatus]:
        """The server's status of each type."""
        return self.stream.status()

    @abstractmethod
    def react(self, send: Send, message: Response) -> None:
        """Handle a response as this kind of client does."""

    @abstractmethod
    def blackholes(self) -> Iterable[str]:
        """The reasons for which a request would be lost now."""


class GrpcLike(Persona):
    """Subscribes by name; ACKs first and then requests the next type; uses new clusters once they are ready."""

    def __init__(self, server: Server, node_id: str = "node", **fields: Any) -> None:
        self.in_use: set[str] = set()
        self.wanted: set[str] = set()  # the clusters that the last route configuration refers to
        super().__init__(server, Variant.SOTW, node_id, **fields)

    def start(self) -> None:
        """The first request of a channel to the target."""
        self.subscribe(LISTENER, TARGET)
        self.run()

    def react(self, send: Send, message: Response) -> None:
        self.hold(message)
        self.reply(send)
        listeners = [parse(text) for text in self.texts(LISTENER).values()]
        self._ask(ROUTE, {route for each in listeners for route in each.names})
        if clusters := {name for each in listeners for name in each.to}:
            self.wanted = clusters
        elif self.texts(ROUTE):
            self.wanted = {name for text in self.texts(ROUTE).values() for name in text.split()}
        self._ask(CLUSTER, self.in_use | self.wanted)
        self._ask(ENDPOINT, set(self.texts(CLUSTER)))
        if self.wanted <= set(self.texts(CLUSTER)) & set(self.texts(ENDPOINT)):
            self.in_use = self.wanted
            self._ask(CLUSTER, self.in_use)
            self._ask(ENDPOINT, self.in_use)

    def blackholes(self) -> Iterable[str]:
        if self.in_use and not self.texts(LISTENER):
            yield f"no listener {TARGET}"
        yield from (f"no cluster {name}" for name in self.in_use if name not in self.texts(CLUSTER))
        yield from (f"no endpoints of {name}" for name in self.in_use if not self.texts(ENDPOINT).get(name))

    def _ask(self, url: str, names: set[str]) -> None:
        if names != (self.types[url].names if url in self.types else set()):
            self.want(url, names)
