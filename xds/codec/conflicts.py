"""What Envoy allows once: an address among the listeners of a set, a domain among the virtual hosts of a route.

Which addresses conflict was measured with Envoy 1.40. Port 0 never conflicts where the listener binds. Listeners that
do not bind conflict as others do. UDP and TCP do not conflict, nor do ``0.0.0.0`` and ``127.0.0.1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Any, NamedTuple

from xds.codec import schema
from xds.codec.findings import FieldPath
from xds.codec.references import served_elsewhere
from xds.model.ip_address import address_text
from xds.model.names import WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import LISTENER, ROUTE, SCOPED_ROUTE, TYPE_PREFIX, V2_URLS, VIRTUAL_HOST

LISTENERS = frozenset((LISTENER, V2_URLS[LISTENER]))
_ROUTES = frozenset((ROUTE, V2_URLS[ROUTE]))
_MANAGERS = frozenset(
    (
        TYPE_PREFIX + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        TYPE_PREFIX + "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
    )
)
_UDP = 1  # SocketAddress.Protocol.UDP
_MEMO_LIMIT = 50_000


class ListenerAddress(NamedTuple):
    """The address of a listener; ``namespace`` is the file of the network namespace. The host of a pipe is its path."""

    protocol: str
    host: str
    port: int
    namespace: str

    def __str__(self) -> str:
        if self.protocol == "pipe":
            return self.host
        return f"{address_text(self.host, self.port)}/{self.protocol}"


class RepeatedDomain(NamedTuple):
    """A domain of virtual host ``host`` that ``owner`` has already."""

    path: FieldPath
    domain: str
    host: str
    owner: str


# A bounded memo by resource version: a pushed listener is compared with all others of its group.
_memo: dict[str, tuple[ListenerAddress, ...]] = {}


def addresses_of(resource: Resource) -> tuple[ListenerAddress, ...]:
    """The addresses that a listener binds or claims; empty for other types and for bytes that do not parse."""
    if resource.type_url not in LISTENERS:
        return ()
    known = _memo.get(resource.version)
    if known is None:
        message = _parse(resource)
        known = () if message is None else tuple(dict.fromkeys(_claimed(message)))
        if len(_memo) >= _MEMO_LIMIT:
            _memo.clear()
        _memo[resource.version] = known
    return known


def _claimed(listener: Any) -> Iterator[ListenerAddress]:
    """An API listener has no address, and an internal listener has no network address."""
    if listener.HasField("api_listener"):
        return
    binds = _binds(listener)
    yield from _address(listener.address, binds)
    for further in getattr(listener, "additional_addresses", ()):
        yield from _address(further.address, binds)


def _binds(listener: Any) -> bool:
    for holder in (listener, *([listener.deprecated_v1] if listener.HasField("deprecated_v1") else [])):
        if "bind_to_port" in holder.DESCRIPTOR.fields_by_name and holder.HasField("bind_to_port"):
            return bool(holder.bind_to_port.value)
    return True


def _address(address: Any, binds: bool) -> Iterator[ListenerAddress]:
    kind = address.WhichOneof("address")
    if kind == "pipe":
        yield ListenerAddress("pipe", address.pipe.path, 0, "")
    if kind != "socket_address" or address.socket_address.resolver_name:
        return
    socket = address.socket_address
    if socket.WhichOneof("port_specifier") != "port_value" or (binds and not socket.port_value):
        return
    try:
        host = str(ip_address(socket.address))
    except ValueError:
        return  # Envoy refuses this address for another reason
    namespace = getattr(socket, "network_namespace_filepath", "")
    yield ListenerAddress("udp" if socket.protocol == _UDP else "tcp", host, socket.port_value, namespace)


def repeated_domains(resource: Resource) -> Iterator[RepeatedDomain]:
    """Domains that occur twice in one route configuration, ignoring case.

    The inline route configurations of listeners and scopes are checked too.
    """
    if resource.type_url in LISTENERS or resource.type_url in _ROUTES or resource.type_url == SCOPED_ROUTE:
        message = _parse(resource)
        for path, configuration in () if message is None else _route_configurations(message, resource.type_url):
            yield from _repeated(configuration, path)


def repeated_by_host(configuring: Resource, hosts: Iterable[Resource]) -> Iterator[tuple[Resource, RepeatedDomain]]:
    """Domains of virtual hosts by VHDS that their route configuration has inline already, each with its virtual host.

    ``configuring`` is a route configuration, or a listener or scope with one inline. Envoy 1.40 rejects the virtual
    host, or the route configuration where that comes later; a listener with it inline then warms without end.
    """
    message = _parse(configuring)
    inline = {} if message is None else _inline_domains(message, configuring.type_url)
    if not any(inline.values()) or (VIRTUAL_HOST, WILDCARD) in served_elsewhere(configuring.type_url, message):
        return
    for host in hosts:
        route = host.name.rpartition("/")[0]
        owners = inline.get(route, {})
        if any(key[len(route) + 1 :].lower() in owners for key in (host.name, *host.aliases)):
            for index, domain in enumerate(_parse(host).domains):
                if domain.lower() in owners:
                    yield host, RepeatedDomain(("domains", index), domain, host.name, owners[domain.lower()])


def _inline_domains(message: Any, type_url: str) -> dict[str, dict[str, str]]:
    """For each route configuration with VHDS: its inline domains in lower case, with their virtual hosts."""
    return {
        configuration.name: {
            domain.lower(): host.name for host in configuration.virtual_hosts for domain in host.domains
        }
        for _, configuration in _route_configurations(message, type_url)
        if "vhds" in configuration.DESCRIPTOR.fields_by_name and configuration.HasField("vhds")
    }


def _route_configurations(message: Any, type_url: str) -> Iterator[tuple[FieldPath, Any]]:
    if type_url in _ROUTES:
        yield (), message
    elif type_url == SCOPED_ROUTE:
        if message.HasField("route_configuration"):
            yield ("route_configuration",), message.route_configuration
    else:
        for path, chain in _chains(message):
            yield from _inline_routes(chain, path)


def _chains(listener: Any) -> Iterator[tuple[FieldPath, Any]]:
    for index, chain in enumerate(listener.filter_chains):
        yield ("filter_chains", index), chain
    if "default_filter_chain" in listener.DESCRIPTOR.fields_by_name and listener.HasField("default_filter_chain"):
        yield ("default_filter_chain",), listener.default_filter_chain


def _inline_routes(chain: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    for index, one in enumerate(chain.filters):
        packed = one.typed_config
        if packed.type_url not in _MANAGERS:
            continue
        manager = schema.parsed(packed.type_url, packed.value)
        if manager is not None and manager.HasField("route_config"):
            yield (*path, "filters", index, "typed_config", "route_config"), manager.route_config


def _repeated(configuration: Any, path: FieldPath) -> Iterator[RepeatedDomain]:
    owners: dict[str, str] = {}
    for number, host in enumerate(configuration.virtual_hosts):
        for index, domain in enumerate(host.domains):
            key = domain.lower()
            if key in owners:
                place = (*path, "virtual_hosts", number, "domains", index)
                yield RepeatedDomain(place, domain, host.name, owners[key])
            else:
                owners[key] = host.name


def _parse(resource: Resource) -> Any:
    return schema.parsed(resource.type_url, resource.body)
