"""The answers that a Linkerd proxy would get for a destination, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from xds.linkerd.core.authority import ProtocolGeneration, read_authority
from xds.linkerd.core.context_token import ContextToken, node_of, read_token
from xds.linkerd.core.mesh_state import DestinationClient
from xds.linkerd.core.resolver import ProfileAnswer, StateAnswer
from xds.linkerd.destinations import Destinations
from xds.model.node import Locality, Node

UNNAMED_PEER = "ipv4:127.0.0.1:0"  # the peer of a proxy without a context token


@dataclass(frozen=True, slots=True)
class DestinationPreview:
    """The answers for a proxy of ``group``, empty if no group matches. ``state`` is None for an IP address."""

    authority: str
    group: str
    state: StateAnswer | None
    profile: ProfileAnswer


def preview(destinations: Destinations, path: str, token_text: str = "") -> DestinationPreview:
    """The answers for a proxy with a context token. Nothing is awaited.

    Raises ``RemoteProtocolError`` as `DestinationResolver` does.
    """
    resolver, cache = destinations.resolver, destinations.cache
    authority = read_authority(path, resolver.rules.naming)
    token = read_token(token_text)
    zone = token.zone or destinations.zone_of(token.node_name)
    node = _node(token, zone)
    match = cache.match(node)
    group = match.group if match is not None else ""
    view = cache.view(group, "", node.locality, cache.line(group, None)) if match is not None else None
    client = DestinationClient(zone, token.node_name, view.snapshot if view is not None else None)
    is_address = authority.address is not None
    state = None if is_address else resolver.state(authority, client, ProtocolGeneration.LINKERD)
    return DestinationPreview(str(authority), group, state, resolver.profile(authority, client))


def _node(token: ContextToken, zone: str) -> Node:
    return node_of(token, UNNAMED_PEER, Locality(token.region, zone, token.sub_zone))
