"""The bootstrap that ``envoy --mode validate`` checks. It contains each resource as a static resource.

In that mode Envoy connects to no management server, so nothing may depend on discovery. Assignments and routes get a
cluster or listener of their own, secrets are static (by ADS they crash Envoy 1.40), and filters with ECDS get their
configuration inline. API listeners, scoped routes and unknown types are not checked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xds.codec import schema
from xds.codec.findings import Findings
from xds.codec.naming import VALUE_KEY
from xds.codec.parse import MessageParser
from xds.codec.render import render_resource
from xds.codec.walk import typed_values
from xds.model.resource import Resource
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SECRET,
    TYPE_PREFIX,
    VIRTUAL_HOST,
    alias_of,
)

Json = dict[str, Any]

PREFIX = "xds-check"
_BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
_LAYER = "envoy.config.bootstrap.v3.RuntimeLayer"
_SDS_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTES = "envoy.config.route.v3.RouteConfiguration"
_LOCALITY = "envoy.config.endpoint.v3.LocalityLbEndpoints"
_TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"
_INTERNAL = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
_NODE = {"id": PREFIX, "cluster": PREFIX}
_ANYWHERE = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
_PATH_FIELDS = ("filename", "path")


@dataclass(frozen=True, slots=True)
class ProbedResource:
    """One resource as part of the bootstrap: ``part`` is the list it belongs to, ``body`` its serialized message.

    ``index`` is its position in the input; ``paths`` are the files that it names. ``body`` is empty for a resource that
    cannot be part of a bootstrap.
    """

    resource: Resource
    index: int
    part: str
    body: bytes
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """Resources that others refer to: secrets and extension configurations, by name."""

    secrets: Mapping[str, Json]
    extensions: Mapping[str, Json]


def probe_context(resources: Iterable[Resource], without: frozenset[int] = frozenset()) -> ProbeContext:
    """The secrets and extension configurations among ``resources``, except at the positions ``without``."""
    by_type: dict[str, dict[str, Json]] = {SECRET: {}, EXTENSION_CONFIG: {}}
    for index, resource in enumerate(resources):
        if resource.type_url in by_type and index not in without:
            by_type[resource.type_url][resource.name] = _rendered(resource)
    return ProbeContext(by_type[SECRET], by_type[EXTENSION_CONFIG])


def probed_resources(resources: Iterable[Resource], context: ProbeContext) -> Iterator[ProbedResource]:
    """Each resource that can be checked."""
    for index, resource in enumerate(resources):
        place = _PLACES.get(resource.type_url)
        if place is None:
            continue
        if VALUE_KEY in render_resource(resource):
            yield ProbedResource(resource, index, "", b"", frozenset())
            continue
        placed = place(f"{PREFIX}:{alias_of(resource.type_url)}/{resource.name}", resource)
        if placed is not None:
            part, type_name, value = placed
            _inline_discovered(type_name, value, context)
            paths = frozenset((*_paths(value), *_paths(_rendered(resource))))  # of a secret, only its user is placed
            yield ProbedResource(resource, index, part, _message(type_name, value), paths)


def bootstrap(members: Iterable[ProbedResource], context: ProbeContext) -> bytes:
    """The serialized bootstrap with these resources."""
    runtime = {"layers": [{"name": "xds-check", "static_layer": {}}]}
    extensions = [{"name": "envoy.bootstrap.internal_listener", "typed_config": {"@type": TYPE_PREFIX + _INTERNAL}}]
    static = {"secrets": list(context.secrets.values())}
    document = {
        "node": _NODE,
        "static_resources": static,
        "layered_runtime": runtime,
        "bootstrap_extensions": extensions,
    }
    message: Any = schema.require(_BOOTSTRAP)()
    MessageParser(Findings()).read(message, document)
    lists = {
        "clusters": message.static_resources.clusters,
        "listeners": message.static_resources.listeners,
        "layers": message.layered_runtime.layers,
    }
    for unit in members:
        lists[unit.part].add().MergeFromString(unit.body)
    return bytes(message.SerializeToString())


def _rendered(resource: Resource) -> Json:
    """The message without ``@type`` and without a wrapper."""
    value: Json = copy.deepcopy(render_resource(resource))
    inner = value.get("resource")
    return {key: each for key, each in (inner if isinstance(inner, dict) else value).items() if key[0] != "@"}


def _message(type_name: str, value: Json) -> bytes:
    findings = Findings()
    reader, message = MessageParser(findings), schema.require(type_name)()
    reader.read(message, value)
    return b"" if findings else reader.pack(message)


# The place of each type: the list, the type of its items, the item

_Place = tuple[str, str, Json]


def _cluster(name: str, resource: Resource) -> _Place:
    value = _rendered(resource)
    if value.get("type") == "EDS":
        value["type"] = "STATIC"
        value.pop("eds_cluster_config", None)
        value["load_assignment"] = {"cluster_name": resource.name}
    return "clusters", CLUSTER, value


def _assignment(name: str, resource: Resource) -> _Place:
    return _static_cluster(name, load_assignment=_rendered(resource))


def _secret(name: str, resource: Resource) -> _Place | None:
    """A cluster that uses the secret: Envoy checks a static secret only where it is used."""
    value, reference = _rendered(resource), {"name": resource.name}
    if "tls_certificate" in value:
        context: Json = {"tls_certificate_sds_secret_configs": [reference]}
    elif "validation_context" in value:
        context = {"validation_context_sds_secret_config": reference}
    else:
        return None
    tls = {"@type": TYPE_PREFIX + _TLS, "common_tls_context": context}
    socket = {"name": "envoy.transport_sockets.tls", "typed_config": tls}
    return _static_cluster(name, transport_socket=socket)


def _listener(name: str, resource: Resource) -> _Place | None:
    value = _rendered(resource)
    return None if "api_listener" in value else ("listeners", LISTENER, value)


def _routes(name: str, resource: Resource) -> _Place:
    return _routing_listener(name, _rendered(resource))


def _virtual_host(name: str, resource: Resource) -> _Place:
    return _routing_listener(name, {"name": name, "virtual_hosts": [_rendered(resource)]})


def _runtime(name: str, resource: Resource) -> _Place:
    return "layers", _LAYER, {"name": name, "static_layer": _rendered(resource).get("layer", {})}


def _static_cluster(name: str, **fields: Json) -> _Place:
    return "clusters", CLUSTER, {"name": name, "type": "STATIC", "connect_timeout": "1s", **fields}


def _routing_listener(name: str, configuration: Json) -> _Place:
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": TYPE_PREFIX + _ROUTER}}
    manager = {"@type": TYPE_PREFIX + _MANAGER, "stat_prefix": PREFIX, "http_filters": [router]}
    chain = {"filters": [{"name": "http", "typed_config": {**manager, "route_config": configuration}}]}
    return "listeners", LISTENER, {"name": name, "address": _ANYWHERE, "filter_chains": [chain]}


_PLACES: Mapping[str, Callable[[str, Resource], _Place | None]] = {
    CLUSTER: _cluster,
    ENDPOINT: _assignment,
    LISTENER: _listener,
    ROUTE: _routes,
    RUNTIME: _runtime,
    SECRET: _secret,
    VIRTUAL_HOST: _virtual_host,
}


# Replacing discovery


def _inline_discovered(type_name: str, value: Json, context: ProbeContext) -> None:
    """Replace references to discovered resources by the resources, or drop them if these are missing; in place."""
    for full_name, message in typed_values(type_name, value):
        _drop_lost_sockets(message, context.secrets)
        _inline_filters(message, context.extensions)
        rule = _RULES.get(full_name)
        if rule is not None:
            rule(message)


def _drop_lost_sockets(message: Json, secrets: Mapping[str, Json]) -> None:
    """Drop transport sockets with a missing secret, since Envoy cannot check them."""
    socket = message.get("transport_socket")
    if isinstance(socket, dict):
        values = typed_values("envoy.config.core.v3.TransportSocket", socket)
        if any(name == _SDS_CONFIG and each.get("name") not in secrets for name, each in values):
            del message["transport_socket"]


def _inline_filters(message: Json, extensions: Mapping[str, Json]) -> None:
    for key, items in message.items():
        if isinstance(items, list) and any(isinstance(one, dict) and "config_discovery" in one for one in items):
            message[key] = [inlined for one in items if (inlined := _inline_filter(one, extensions)) is not None]


def _inline_filter(one: Json, extensions: Mapping[str, Json]) -> Json | None:
    if "config_discovery" not in one:
        return one
    extension = extensions.get(one.get("name", ""))
    rest = {key: value for key, value in one.items() if key != "config_discovery"}
    return None if extension is None else {**rest, "typed_config": extension.get("typed_config", {})}


def _inline_routes(manager: Json) -> None:
    """Replace RDS by an empty route configuration: routes are checked by themselves."""
    for name in ("rds", "scoped_routes"):
        if manager.pop(name, None) is not None:
            manager["route_config"] = {"name": PREFIX}


def _static_hosts(configuration: Json) -> None:
    configuration.pop("vhds", None)
    configuration["validate_clusters"] = False  # the proxy may have clusters of its own; another check covers these


def _static_endpoints(locality: Json) -> None:
    locality.pop("leds_cluster_locality_config", None)


def _static_secret(reference: Json) -> None:
    reference.pop("sds_config", None)


_RULES: Mapping[str, Callable[[Json], None]] = {
    _MANAGER: _inline_routes,
    _ROUTES: _static_hosts,
    _LOCALITY: _static_endpoints,
    _SDS_CONFIG: _static_secret,
}


def _paths(value: Any, key: str = "") -> Iterator[str]:
    """The files that a resource names. They may exist on the proxy and not on this machine."""
    if isinstance(value, str):
        if key in _PATH_FIELDS and value:
            yield value
        return
    below = (
        value.items() if isinstance(value, dict) else ((key, one) for one in value) if isinstance(value, list) else ()
    )
    for name, one in below:
        yield from _paths(one, name)
