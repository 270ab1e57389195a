"""Clients that are driven by hand: they ask for a site as Envoy does, and what they answer, and when, a test says.

The sites are those of ``tests.support.texts``: texts that refer to each other, as the codec would find it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.sansio import Client, Server
from tests.support.texts import TARGET, Site, joined
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, RUNTIME, SECRET, alias_of

OFFER_TIMEOUT_S = 5.0
ORDER_TIMEOUT_S = 30.0
RETURN_S = 2.0
GRID_S = 5.0  # ends are rounded up to it
REMOVED_S = 15.0 + GRID_S  # after all is ACKed, where no listener changed
DRAINED_S = 600.0 + REMOVED_S  # where one did
LOGGED_S = ORDER_TIMEOUT_S + REMOVED_S  # after a push that changed no listener: removals have ended in the log
ASKED_FOR = {
    ENDPOINT: ("a", "b", "c"),
    ROUTE: ("r1",),
    SECRET: ("s",),
    RUNTIME: ("layer",),
    EXTENSION_CONFIG: ("f",),
}
TYPES = (CLUSTER, ENDPOINT, LISTENER, ROUTE)


def start(client: Client, urls: Iterable[str] = TYPES) -> Client:
    """Ask for the site as Envoy does, and take all of it."""
    for url in urls:
        client.subscribe(url, *ASKED_FOR.get(url, ()))
    client.settle()
    return client


def with_listener(content: Site, text: str) -> Site:
    """The site with another listener text: old connections stay on the filter chain that was."""
    return joined(content, {LISTENER: {TARGET: text}})


def pending(client: Client) -> list[str]:
    """Aliases of the types of all responses that wait to be read."""
    return [alias_of(send.type_url) for send in client.pending()]


def told(client: Client) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Alias, names and removed names of all responses that wait to be read."""
    return [(alias_of(send.type_url), send.response.names, send.response.removed) for send in client.pending()]


def states(client: Client) -> set[str]:
    """What operators see of the client's types."""
    return {status.state for status in client.stream.status()}


def wait(server: Server, seconds: float, *clients: Client) -> None:
    """Time passes, and these clients ACK whatever comes, at once."""
    end = server.now + seconds
    for client in clients:
        client.settle()
    while server.now < end:
        due = [at for client in server.streams if (at := client.stream.deadline()) is not None]
        server.elapse(min(max(min(due, default=end) - server.now, 0.001), end - server.now))
        for client in clients:
            client.settle()
