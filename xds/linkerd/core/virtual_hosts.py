"""The virtual hosts of a group's route configurations, by name, and the addresses of its listeners.

The cluster of a name is that of the default route of its virtual host: the route that matches every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from xds.codec.schema import parsed_or_empty
from xds.linkerd.core.endpoint import shortest
from xds.model.resource import Resource
from xds.model.resource_type import LISTENER, ROUTE
from xds.model.snapshot import ResourceSet

_SETS_CACHED = 64
_EXACT, _SUFFIX, _PREFIX, _ANY = range(4)
_HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_TCP = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


@dataclass(frozen=True, eq=False, slots=True)
class NamedHost:
    """A virtual host and the route configuration that has it."""

    route_configuration: str
    host: Any


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """The target of a listener's address: a route configuration, by name or inline, or the cluster of a TCP proxy."""

    listener: str
    route_configuration: str = ""
    inline: Any = None
    cluster: str = ""


@lru_cache(_SETS_CACHED)
def hosts_of(routes: ResourceSet) -> tuple[NamedHost, ...]:
    """The virtual hosts of a set of route configurations."""
    return tuple(
        NamedHost(name, host)
        for name, one in routes.resources.items()
        for host in parsed_or_empty(ROUTE, one.body).virtual_hosts
    )


@lru_cache(_SETS_CACHED)
def addresses_of(listeners: ResourceSet) -> dict[tuple[str, int], BoundAddress | None]:
    """The targets of listeners by address and port; None for an address that several listeners have."""
    addresses: dict[tuple[str, int], BoundAddress | None] = {}
    for resource in listeners.resources.values():
        for address, bound in _bound_addresses(resource):
            addresses[address] = bound if address not in addresses else None
    return addresses


def _bound_addresses(resource: Resource) -> Iterator[tuple[tuple[str, int], BoundAddress]]:
    message = parsed_or_empty(LISTENER, resource.body)
    bound = list(_bound_filters(resource.name, message))
    if len(bound) != 1:
        return
    for address in (message.address, *(each.address for each in message.additional_addresses)):
        socket = address.socket_address
        if socket.address and socket.port_value:
            yield (_normalized(socket.address), socket.port_value), bound[0]


def _normalized(address: str) -> str:
    """An IP address in its shortest form; a name unchanged."""
    try:
        return shortest(address)
    except ValueError:
        return address


def _bound_filters(name: str, listener: Any) -> Iterator[BoundAddress]:
    chains = [*listener.filter_chains]
    if listener.HasField("default_filter_chain"):
        chains.append(listener.default_filter_chain)
    for chain in chains:
        for each in chain.filters:
            kind = each.typed_config.type_url.rpartition("/")[2]
            if kind == _HTTP:
                manager = parsed_or_empty(kind, each.typed_config.value)
                inline = manager.route_config if manager.HasField("route_config") else None
                yield BoundAddress(name, manager.rds.route_config_name, inline)
            elif kind == _TCP:
                yield BoundAddress(name, cluster=parsed_or_empty(kind, each.typed_config.value).cluster)


def find_host(hosts: Iterable[NamedHost], name: str, port: int, *, or_any: bool) -> list[NamedHost]:
    """The virtual hosts of the best match of a name: exact, then by suffix and prefix (the longest), then ``*``.

    Several virtual hosts are ambiguous, unless they lead to one cluster. ``or_any``: whether ``*`` counts.
    """
    best: tuple[int, int] | None = None
    matching: list[NamedHost] = []
    for each in hosts:
        ranks = [rank for domain in each.host.domains if (rank := _rank(domain, name, port, or_any)) is not None]
        if not ranks:
            continue
        rank = min(ranks)
        if best is None or rank < best:
            best, matching = rank, [each]
        elif rank == best:
            matching.append(each)
    return matching


def _rank(domain: str, name: str, port: int, or_any: bool) -> tuple[int, int] | None:
    """How well a domain matches; lower is better. None if it does not match."""
    wanted = (f"{name}:{port}".lower(), name.lower())
    domain = domain.lower()
    if domain in wanted:
        return _EXACT, wanted.index(domain)
    if domain == "*":
        return (_ANY, 0) if or_any else None
    if domain.startswith("*") and any(one.endswith(domain[1:]) and len(one) >= len(domain) for one in wanted):
        return _SUFFIX, -len(domain)
    if domain.endswith("*") and any(one.startswith(domain[:-1]) and len(one) >= len(domain) for one in wanted):
        return _PREFIX, -len(domain)
    return None


def default_route(host: Any) -> Any:
    """The route that matches every request; None if there is none, or if it does not lead to clusters."""
    for route in host.routes:
        if is_catch_all(route.match):
            return route if route.WhichOneof("action") == "route" else None
    return None


def is_catch_all(match: Any) -> bool:
    """Whether a match matches every request."""
    kind = match.WhichOneof("path_specifier")
    is_any = (kind == "prefix" and match.prefix in ("", "/")) or (
        kind == "safe_regex" and match.safe_regex.regex in (".*", "/.*")
    )
    others = (match.headers, match.query_parameters, match.dynamic_metadata)
    flags = ("runtime_fraction", "grpc", "tls_context")
    return is_any and not any(others) and not any(match.HasField(name) for name in flags)
