"""The JSON of Linkerd's side: the answers to its proxies, and the configuration that its API cannot express."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import TypedDict

from xds.api.shapes.fleet import LinkerdItem, NodeItem
from xds.api.shapes.values import timestamp
from xds.control.destinations import DestinationStream
from xds.destination.destination_resolver import ProfileAnswer, StateAnswer
from xds.destination.endpoint import DestinationEndpoint

ENDPOINTS_SHOWN = 1_000


class DestinationEndpointItem(TypedDict):
    """An endpoint. ``protocol``: ``h2``, ``opaque``, or empty for unknown; ``identity`` is empty outside of a mesh."""

    address: str
    port: int
    weight: int
    zone: str
    identity: str
    protocol: str
    labels: dict[str, str]


class OverrideItem(TypedDict):
    """Requests go to ``authority`` instead, in proportion to ``weight``."""

    authority: str
    weight: int


class ProfileRouteItem(TypedDict):
    """A route of a profile. ``methods`` is empty for all."""

    name: str
    path_regex: str
    methods: list[str]
    is_retryable: bool
    timeout_s: float


class ProfileItem(TypedDict):
    """A profile. ``endpoint`` is the single endpoint of an address, null for a service."""

    name: str
    is_opaque: bool
    routes: list[ProfileRouteItem]
    overrides: list[OverrideItem]
    endpoint: DestinationEndpointItem | None


class DestinationItem(TypedDict):
    """The answer to a Linkerd proxy for a destination. ``source``: the service, cluster or instance that it is.

    ``endpoints`` are the first thousand of ``endpoints_total``; without any, the answer is ``exists``. ``is_known``
    is false while the answer is awaited. ``skipped`` lists the configuration that the API cannot express, with reasons.
    """

    authority: str
    group: str
    source: str
    is_known: bool
    exists: bool
    endpoints: list[DestinationEndpointItem]
    endpoints_total: int
    profile: ProfileItem
    skipped: list[str]


def with_linkerd(item: NodeItem, streams: Iterable[DestinationStream]) -> NodeItem:
    """A node with the last answers on its Linkerd streams."""
    found = {stream.id: stream for stream in streams}
    for each in item["streams"]:
        if each["id"] in found:
            each["linkerd"] = linkerd_item(found[each["id"]])
    return item


def linkerd_item(stream: DestinationStream) -> LinkerdItem:
    """The last answer on a Linkerd stream."""
    status = stream.status
    return {
        "method": stream.method,
        "authority": status.authority,
        "source": status.source,
        "is_known": status.is_settled,
        "exists": status.exists,
        "endpoints": status.endpoints_n,
        "messages": stream.messages_n,
        "sent": timestamp(stream.sent_at) if stream.sent_at else None,
        "skipped": list(status.skipped),
    }


def destination_item(authority: str, group: str, state: StateAnswer | None, profile: ProfileAnswer) -> DestinationItem:
    """The item of a destination. ``state`` is None for an address, which has a profile only."""
    held = state.state if state is not None else None
    endpoints = held.endpoints if held is not None else ()
    skipped = (*(state.skipped if state is not None else ()), *profile.skipped)
    return {
        "authority": authority,
        "group": group,
        "source": (state.source if state is not None else "") or profile.source,
        "is_known": state is None or held is not None,
        "exists": held.exists if held is not None else profile.source != "nothing",
        "endpoints": [_endpoint_item(one) for one in endpoints[:ENDPOINTS_SHOWN]],
        "endpoints_total": len(endpoints),
        "profile": _profile_item(profile),
        "skipped": list(dict.fromkeys(skipped)),
    }


def _profile_item(answer: ProfileAnswer) -> ProfileItem:
    profile = answer.profile
    return {
        "name": profile.name,
        "is_opaque": profile.is_opaque,
        "routes": [
            {
                "name": route.name,
                "path_regex": route.condition.path_regex,
                "methods": list(route.condition.methods),
                "is_retryable": route.is_retryable,
                "timeout_s": route.timeout_s,
            }
            for route in profile.routes
        ],
        "overrides": [{"authority": one.authority, "weight": one.weight} for one in profile.overrides],
        "endpoint": _endpoint_item(profile.endpoint) if profile.endpoint is not None else None,
    }


def _endpoint_item(one: DestinationEndpoint) -> DestinationEndpointItem:
    return {
        "address": one.address,
        "port": one.port,
        "weight": one.weight,
        "zone": one.zone,
        "identity": one.mesh.identity,
        "protocol": one.mesh.hint.value,
        "labels": dict(one.labels),
    }
