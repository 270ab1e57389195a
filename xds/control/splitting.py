"""What stands inline in clusters and listeners, taken out as resources of its own: EDS and RDS."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from xds.codec.typed_values import field_value, json_key, typed_values
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE

Json = dict[str, Any]

_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_STATIC_TYPES = (None, "", 0, "STATIC", "static")


def split_endpoints(resources: Iterable[Json], source: Json, notes: list[str]) -> Iterator[Json]:
    """Make EDS clusters of static ones, in place; yields their assignments.

    Clusters found by DNS keep their endpoints: EDS takes addresses only.
    """
    inline = []
    for cluster in (one for one in resources if one["@type"] == CLUSTER):
        if not isinstance(field_value(cluster, "load_assignment"), dict) or not cluster.get("name"):
            continue
        if field_value(cluster, "type") in _STATIC_TYPES and field_value(cluster, "cluster_type") is None:
            yield _assignment(cluster, source)
        else:
            inline.append(cluster["name"])
    if inline:
        notes.append(f"endpoints stay inline, since only static ones can come by EDS: {', '.join(sorted(inline))}")


def _assignment(cluster: Json, source: Json) -> Json:
    assignment = cluster.pop(json_key(cluster, "load_assignment"))
    cluster["type"] = "EDS"
    cluster["eds_cluster_config"] = {"eds_config": copy.deepcopy(source)}
    rest = {key: value for key, value in assignment.items() if key != json_key(assignment, "cluster_name")}
    return {"@type": ENDPOINT, "cluster_name": cluster["name"], **rest}


def split_routes(resources: Iterable[Json], source: Json) -> Iterator[Json]:
    """Replace inline route configurations of listeners by RDS, in place; yields them.

    One without a name is called after its listener and ``stat_prefix``; equal ones of one name are shared.
    """
    taken: dict[str, Json] = {}
    for listener in (one for one in resources if one["@type"] == LISTENER):
        for type_name, manager in typed_values(LISTENER, listener):
            if type_name == _MANAGER and isinstance(field_value(manager, "route_config"), dict):
                routes = manager.pop(json_key(manager, "route_config"))
                name = _named(routes, f"{listener.get('name')}/{field_value(manager, 'stat_prefix')}", taken)
                manager["rds"] = {"route_config_name": name, "config_source": copy.deepcopy(source)}
    for name, routes in taken.items():
        yield {"@type": ROUTE, "name": name, **{key: value for key, value in routes.items() if key != "name"}}


def _named(routes: Json, otherwise: str, taken: dict[str, Json]) -> str:
    given = routes.get("name")
    name = given if given and isinstance(given, str) else otherwise
    if taken.get(name) != routes:
        name = free_name(name, taken)
        taken[name] = routes
    return name


def free_name(name: str, taken: Collection[Any]) -> str:
    """``name``, or with a number behind it where that is taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
