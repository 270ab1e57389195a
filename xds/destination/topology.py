"""Which endpoints a client gets of all: by its zone, by its node, by the names of instances and by IP version."""

from __future__ import annotations

from dataclasses import dataclass

from xds.destination.endpoint import DestinationEndpoint


@dataclass(frozen=True, slots=True)
class ClientPlace:
    """Where a client is, and what it was asked to reach; empty for what is not known.

    ``instance``: only endpoints of this name. ``node_only``: only endpoints on the client's node, even if there are
    none. ``has_ipv6``: it reaches IPv6 addresses.
    """

    zone: str = ""
    node: str = ""
    instance: str = ""
    node_only: bool = False
    has_ipv6: bool = True


def filtered(endpoints: tuple[DestinationEndpoint, ...], client: ClientPlace) -> tuple[DestinationEndpoint, ...]:
    """The endpoints for a client. Hints count only if every endpoint has some, and one of them is for the zone."""
    found = endpoints
    if client.instance:
        found = tuple(one for one in found if client.instance in one.names)
    if client.node_only:
        found = tuple(one for one in found if client.node and one.node == client.node)
    elif found and all(one.hinted_zones for one in found):
        near = tuple(one for one in found if client.zone in one.hinted_zones)
        found = near or found
    if not client.has_ipv6:
        found = tuple(one for one in found if one.place[0] == 4)
    return found if len(found) != len(endpoints) else endpoints
