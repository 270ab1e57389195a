"""What the server derives from a resource when it is pushed: its references, and how long its first health check takes.

References: all messages of the resource are visited, packed ones too; `finders` says for each message type what it
refers to. A message that may lead to clusters which its content does not name refers to the cluster ``*``. v2 resources
refer to v2 types. Assignments are long, and few of them refer to anything: only those whose bytes may hold the address
of an internal listener are searched.

First health check: Envoy checks a new endpoint within ``initial_jitter`` and decides by that one check, whatever the
thresholds ("during startup, only a single successful health check is required to mark a host healthy",
HealthCheck.healthy_threshold). A check without an answer fails after ``timeout``. A new cluster warms until each of its
endpoints was checked once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from xds.codec.finders import ANY_CLUSTER, FINDERS, finder_of, internal_listeners, is_untyped
from xds.codec.findings import FieldPath
from xds.codec.naming import to_seconds
from xds.codec.walk import ANY, placed_submessages, submessages, unpack
from xds.model.names import canonical_name
from xds.model.resource import Reference
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    V2_URLS,
    VIRTUAL_HOST,
)


def references_of(type_url: str, message: Any, body: bytes) -> tuple[Reference, ...]:
    """All references of a resource, each once, in their order in the message; ``body`` is the message serialized."""
    if type_url == ENDPOINT:
        return tuple(dict.fromkeys(internal_listeners(message))) if _INTERNAL_ADDRESS.search(body) else ()
    if type_url not in _REFERRING:
        return ()
    references: list[Reference] = []
    _gather(message, references)
    if type_url == VIRTUAL_HOST and any(route.route.cluster_specifier_plugin for route in message.routes):
        references.append(ANY_CLUSTER)  # the route configuration defines the plugin of that name
    references = [one for one in references if one.name]
    if len(references) > 1:
        references = list(dict.fromkeys(references))
    if type_url in _CLUSTERS and ANY_CLUSTER in references:
        references.remove(ANY_CLUSTER)
    if type_url in _V2_TYPES:
        return tuple(replace(one, type_url=V2_URLS.get(one.type_url, one.type_url)) for one in references)
    return tuple(references)


def reference_paths(type_url: str, message: Any) -> dict[tuple[str, str], FieldPath]:
    """The path of the first occurrence of each reference, by type URL and name, within the rendered resource."""
    paths: dict[tuple[str, str], FieldPath] = {}
    if type_url == ENDPOINT:
        return dict.fromkeys(((one.type_url, one.name) for one in internal_listeners(message)), ("endpoints",))
    for path, one in _placed(message, ()):
        meant = V2_URLS.get(one.type_url, one.type_url) if type_url in _V2_TYPES else one.type_url
        paths.setdefault((meant, one.name), path)
    return paths


def _placed(message: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Reference]]:
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if is_untyped(message, inner):
            yield path, ANY_CLUSTER
        elif inner is not None:
            yield from _placed(inner, path)  # in JSON a packed message has the path of its Any
        return
    finder = finder_of(message.DESCRIPTOR)
    for one in finder(message) if finder is not None else ():
        yield (*path, *_naming(message, one.name)), one
    for step, submessage in placed_submessages(message, _WANTED, _NOT_SEARCHED):
        yield from _placed(submessage, (*path, *step))


# The cluster that leads to this server in the bootstraps that it makes.
SERVER_CLUSTER = "xds_cluster"


def served_elsewhere(type_url: str, message: Any) -> set[tuple[str, str]]:
    """The references, by type URL and name, for which a client asks another server by gRPC, such as a SPIRE agent."""
    names: set[tuple[str, str]] = set()
    _gather_elsewhere(message, names)
    return {(V2_URLS.get(url, url), name) for url, name in names} if type_url in _V2_TYPES else names


def _gather_elsewhere(message: Any, names: set[tuple[str, str]]) -> None:
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            _gather_elsewhere(inner, names)
        return
    finder = finder_of(message.DESCRIPTOR)
    if finder is not None and any(map(_is_elsewhere, _config_sources(message))):
        names.update((one.type_url, one.name) for one in finder(message) if one.source == "api")
    for submessage in submessages(message, _WANTED, _NOT_SEARCHED):
        _gather_elsewhere(submessage, names)


def _config_sources(message: Any) -> Iterator[Any]:
    """The config sources in a message's own fields, and in those of the configuration of its EDS, RDS or VHDS."""
    for field, value in message.ListFields():
        if field.message_type is None or field.is_repeated:
            continue
        if field.message_type.full_name in _CONFIG_SOURCES:
            yield value
        elif field.name in _NESTED_SOURCES and value.HasField(_NESTED_SOURCES[field.name]):
            yield getattr(value, _NESTED_SOURCES[field.name])


_NESTED_SOURCES = {"eds_cluster_config": "eds_config", "rds": "config_source", "vhds": "config_source"}


def _is_elsewhere(source: Any) -> bool:
    services = source.api_config_source.grpc_services
    return bool(services) and all(
        one.HasField("google_grpc") or one.envoy_grpc.cluster_name not in ("", SERVER_CLUSTER) for one in services
    )


# Fields that name a resource, or hold the message that does; the first match counts.
_NAMING = (
    *("eds_cluster_config", "rds", "service_name", "route_config_name", "route_configuration_name"),
    *("cluster_name", "collector_cluster", "auth_api_cluster", "override_upstream_cluster", "default_cluster"),
    *("cluster", "clusters", "prefetch_secret_names", "name"),
)


def _naming(message: Any, name: str) -> FieldPath:
    """The path from a message that refers to ``name`` to the field that holds it; empty for a wildcard."""
    fields = message.DESCRIPTOR.fields_by_name
    for key in (key for key in _NAMING if key in fields):
        value = getattr(message, key)
        if fields[key].message_type is not None:
            below = _naming(value, name) if not fields[key].is_repeated and message.HasField(key) else ()
            if below:
                return (key, *below)
        elif fields[key].is_repeated and name in value:
            return (key, list(value).index(name))
        elif not fields[key].is_repeated and canonical_name(value) == name:
            return (key,)
    return ()


def _gather(message: Any, references: list[Reference]) -> None:
    """Add the references of a message and of all within it."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == ANY:
        inner = unpack(message)
        if is_untyped(message, inner):
            references.append(ANY_CLUSTER)
        elif inner is not None:
            _gather(inner, references)
        return
    finder = finder_of(descriptor)
    if finder is not None:
        references.extend(finder(message))
    for submessage in submessages(message, _WANTED, _NOT_SEARCHED):
        _gather(submessage, references)


_CONFIG_SOURCES = ("envoy.config.core.v3.ConfigSource", "envoy.api.v2.core.ConfigSource")
_WANTED = frozenset((ANY, *FINDERS))
# Types that are not searched. The clusters of a ``ConfigSource`` lead to a management server, and are in the bootstrap.
# The finder of a cluster reads the endpoints in its assignment.
_NOT_SEARCHED = frozenset(
    (
        *("envoy.config.core.v3.ConfigSource", "envoy.api.v2.core.ConfigSource"),
        *("envoy.config.endpoint.v3.ClusterLoadAssignment", "envoy.api.v2.ClusterLoadAssignment"),
    )
)

_V3_REFERRING = (CLUSTER, LISTENER, ROUTE, SCOPED_ROUTE, VIRTUAL_HOST, EXTENSION_CONFIG)
_V2_TYPES = frozenset(V2_URLS.values())
_CLUSTERS = frozenset((CLUSTER, V2_URLS[CLUSTER]))
# Secrets and runtime layers refer to nothing.
_REFERRING = frozenset((*_V3_REFERRING, *(V2_URLS[url] for url in _V3_REFERRING if url in V2_URLS)))


# ``Endpoint.address`` (field 1), in it ``envoy_internal_address`` (3), in it ``server_listener_name`` (1), each with
# its length; the rare byte comes first, so that the search is one for that byte in nearly all assignments.
_INTERNAL_ADDRESS = re.compile(
    rb"\x1a(?:(?<=\n[\x00-\x7f]\x1a)|(?<=\n[\x80-\xff][\x00-\x7f]\x1a)|(?<=\n[\x80-\xff]{2}[\x00-\x7f]\x1a)"
    rb"|(?<=\n[\x80-\xff]{3}[\x00-\x7f]\x1a))[\x80-\xff]{0,3}[\x00-\x7f]\n"
)


_CLUSTER_URLS = frozenset((CLUSTER, V2_URLS[CLUSTER]))


def first_check_of(type_url: str, message: Any) -> float:
    """The longest first health check in seconds, by the slowest of the checks; 0 without checks and for other types."""
    if type_url not in _CLUSTER_URLS or not message.health_checks:
        return 0.0
    return max(to_seconds(check.initial_jitter) + to_seconds(check.timeout) for check in message.health_checks)
