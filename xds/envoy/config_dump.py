"""Envoy's ``/config_dump`` as a bootstrap: the configuration of a running proxy, from any management server.

The result is based on the bootstrap in the dump. Clusters and listeners from the other server become static resources,
and the configuration of that server is removed. Route configurations, assignments (``?include_eds``), secrets and
extension configurations are separate resources. Envoy redacts private keys, so secrets with a key cannot be pushed.

Assignments in the dump are not those that the server sent: Envoy writes them from its hosts. Values that Envoy adds for
omitted fields, and the results of its own health checks, are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xds.codec.walk import field_value, json_key
from xds.envoy.dumped_assignments import assignments_as_sent
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import ENDPOINT, EXTENSION_CONFIG, ROUTE, SCOPED_ROUTE, SECRET

Json = dict[str, Any]

# Fields of the node that Envoy itself sets at every start.
_SET_BY_ENVOY = (
    *("user_agent_name", "user_agent_version", "user_agent_build_version", "extensions", "client_features"),
    *("hidden_envoy_deprecated_build_version", "dynamic_parameters", "listening_addresses"),
)
_REDACTED = ("[redacted]", "W3JlZGFjdGVkXQ==")  # as a string, and as bytes
# By type of the dump: its lists, the field with the resource, and the type of the resource.
_LISTS = {
    "RoutesConfigDump": (("dynamic_route_configs",), "route_config", ROUTE),
    "ScopedRoutesConfigDump": (("dynamic_scoped_route_configs",), "scoped_route_configs", SCOPED_ROUTE),
    "EndpointsConfigDump": (("dynamic_endpoint_configs",), "endpoint_config", ENDPOINT),
    "SecretsConfigDump": (("dynamic_active_secrets",), "secret", SECRET),
    "EcdsConfigDump": (("ecds_filters",), "ecds_filter", EXTENSION_CONFIG),
}


def bootstrap_of_dump(dump: Json, notes: list[str]) -> tuple[Json, list[Json]]:
    """The bootstrap of a config dump with all its clusters and listeners, and the resources of other types.

    Raises ``ValidationError`` for a dump without a bootstrap.
    """
    parts = {_kind(one): one for one in dump.get("configs", []) if isinstance(one, dict)}
    bootstrap = parts.get("BootstrapConfigDump", {}).get("bootstrap")
    if not isinstance(bootstrap, dict):
        detail = "this config dump has no bootstrap"
        hint = "ask Envoy for all of it: /config_dump?include_eds"
        raise ValidationError([Violation("missing_field", detail, pointer="/configs", hint=hint)])
    _clean(bootstrap)
    static = bootstrap.setdefault(json_key(bootstrap, "static_resources"), {})
    for kind, dynamic in (("clusters", _clusters(parts)), ("listeners", _listeners(parts))):
        static[kind] = [*(static.get(kind) or []), *dynamic]
    if sources := bootstrap.pop(json_key(bootstrap, "dynamic_resources"), None):
        _remove_load_reports(bootstrap, sources)
        notes.append(
            "the snapshot has the resources from the proxy's other server; the configuration of that server is removed"
        )
    notes += _runtime_notes(bootstrap)
    further = [resource for name in _LISTS for resource in _resources(parts.get(name, {}), *_LISTS[name])]
    further = assignments_as_sent(further, static["clusters"], notes)
    if "EndpointsConfigDump" not in parts:
        notes.append("the dump has no endpoints of EDS clusters; /config_dump?include_eds has them")
    return bootstrap, [one for one in further if not _is_redacted(one, notes)]


def _runtime_notes(bootstrap: Json) -> Iterator[str]:
    """A note for each layer whose values come from a server: a dump does not have them."""
    runtime = field_value(bootstrap, "layered_runtime")
    layers = field_value(runtime, "layers") if isinstance(runtime, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        rtds = field_value(layer, "rtds_layer") if isinstance(layer, dict) else None
        if isinstance(rtds, dict):
            name = rtds.get("name") or "(no name)"
            yield (
                f"the values of the runtime layer {name!r} are not in the snapshot: a config dump does not have them. "
                "Push them as an envoy.service.runtime.v3.Runtime of that name; Envoy's /runtime shows them"
            )


def _kind(part: Json) -> str:
    return str(part.get("@type", "")).rpartition(".")[2]


def _clean(bootstrap: Json) -> None:
    node = bootstrap.get("node")
    if isinstance(node, dict):
        for name in _SET_BY_ENVOY:
            node.pop(json_key(node, name), None)


def _remove_load_reports(bootstrap: Json, sources: object) -> None:
    """Remove the load report configuration if it names the server that sent the resources."""
    manager = field_value(bootstrap, "cluster_manager")
    if isinstance(manager, dict):
        reports = json_key(manager, "load_stats_config")
        if set(_named_clusters(manager.get(reports))) & set(_named_clusters(sources)):
            del manager[reports]


def _named_clusters(source: object) -> Iterator[str]:
    """The clusters of management servers in a configuration source, however deep."""
    if isinstance(source, dict):
        named = field_value(source, "cluster_name")
        if isinstance(named, str):
            yield named
        for below in source.values():
            yield from _named_clusters(below)
    elif isinstance(source, list):
        for below in source:
            yield from _named_clusters(below)


def _clusters(parts: dict[str, Json]) -> Iterator[Json]:
    part = parts.get("ClustersConfigDump", {})
    for name in ("dynamic_active_clusters", "dynamic_warming_clusters"):
        for one in part.get(name, []):
            yield from _untyped(one.get("cluster"))


def _listeners(parts: dict[str, Json]) -> Iterator[Json]:
    for one in parts.get("ListenersConfigDump", {}).get("dynamic_listeners", []):
        state = one.get("active_state") or one.get("warming_state") or {}
        yield from _untyped(state.get("listener"))


def _untyped(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        yield {key: below for key, below in value.items() if key != "@type"}


def _resources(part: Json, lists: tuple[str, ...], field: str, type_url: str) -> Iterator[Json]:
    for name in lists:
        for one in part.get(name, []):
            resource = one.get(field)
            for value in resource if isinstance(resource, list) else [resource]:
                if isinstance(value, dict):
                    yield {"@type": type_url, **{key: below for key, below in value.items() if key != "@type"}}


def _is_redacted(resource: Json, notes: list[str]) -> bool:
    if not _has_redacted(resource):
        return False
    name = field_value(resource, "name")
    notes.append(f"secret {name!r} is not in the snapshot: Envoy has redacted its key; push it from its source")
    return True


def _has_redacted(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_redacted, value.values()))
    return any(map(_has_redacted, value)) if isinstance(value, list) else value in _REDACTED
