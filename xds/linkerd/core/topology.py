"""Selects the endpoints for a client: by zone, node, name of an instance, and IP version."""

from __future__ import annotations

from dataclasses import dataclass

from xds.linkerd.core.endpoint import DestinationEndpoint


@dataclass(frozen=True, slots=True)
class EndpointFilter:
    """The properties of a client that select its endpoints. ``zone`` and ``node`` are empty if unknown.

    ``instance``: only endpoints with this name. ``node_only``: only endpoints on the client's node, even if there are
    none. ``has_ipv6``: the client reaches IPv6 addresses.
    """

    zone: str = ""
    node: str = ""
    instance: str = ""
    node_only: bool = False
    has_ipv6: bool = True


def select_endpoints(
    endpoints: tuple[DestinationEndpoint, ...], client: EndpointFilter
) -> tuple[DestinationEndpoint, ...]:
    """The endpoints for a client. Zone hints count only if every endpoint has some, one of them for the zone."""
    selected = endpoints
    if client.instance:
        selected = tuple(one for one in selected if client.instance in one.names)
    if client.node_only:
        selected = tuple(one for one in selected if client.node and one.node == client.node)
    elif selected and all(one.hinted_zones for one in selected):
        near = tuple(one for one in selected if client.zone in one.hinted_zones)
        selected = near or selected
    if not client.has_ipv6:
        selected = tuple(one for one in selected if one.numeric_address[0] == 4)
    return selected if len(selected) != len(endpoints) else endpoints
