"""Rules on routes, measured with Envoy 1.40."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.category_rules import HTTP_FILTERS, misplaced
from xds.codec.rules import MessageRule, Problem, missing, nanoseconds

_ROUTE = "envoy.config.route.v3"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_CONNECT = ("connect", "connect-udp")
_BODY_LIMIT_BYTES = 4096  # Envoy's default of max_direct_response_body_size_bytes
_NOTHING: list[Problem] = []
_WEIGHTS_MAX = 2**32 - 1
_PATH_REWRITES = ("prefix_rewrite", "regex_rewrite", "path_rewrite_policy")


# Routes


def _check_weights(weighted: Any) -> list[Problem]:
    """Check a route's ``WeightedCluster``. Envoy adds the weights up in 32 bits."""
    if sum(one.weight.value for one in weighted.clusters) > _WEIGHTS_MAX:
        return [Problem(("clusters",), "out_of_range", f"the sum of the weights must be at most {_WEIGHTS_MAX}")]
    if any(one.weight.value for one in weighted.clusters) or not weighted.clusters:
        return []
    return [Problem(("clusters",), "out_of_range", "the sum of the weights must be above zero", is_absence=True)]


def _check_weighted_cluster(one: Any) -> list[Problem]:
    """Check one cluster of a ``WeightedCluster``."""
    if not (one.name and one.cluster_header):
        return _NOTHING
    return [Problem(("cluster_header",), "not_allowed", "only one of name and cluster_header can be set")]


def _check_rewrites(action: Any) -> list[Problem]:
    """Check a ``RouteAction``: it rewrites the path in one way only."""
    given = [name for name in _PATH_REWRITES if _is_set(action, name)]
    detail = f"only one of {', '.join(_PATH_REWRITES)} can be set"
    return [Problem((name,), "not_allowed", detail) for name in given[1:2]]


def _is_set(message: Any, name: str) -> bool:
    return any(field.name == name for field, _ in message.ListFields())


def _check_added_headers(options: Any) -> list[Problem]:
    """Check the ``*_headers_to_add`` of a route, and of what contains it."""
    return [
        Problem((index, "header", "key"), "not_allowed", _fixed_header_detail(option.header.key))
        for index, option in enumerate(options)
        if _is_fixed(option.header.key)
    ]


def _check_removed_headers(names: Any) -> list[Problem]:
    """Check the ``*_headers_to_remove`` of a route, and of what contains it."""
    return [
        Problem((index,), "not_allowed", _fixed_header_detail(name))
        for index, name in enumerate(names)
        if _is_fixed(name)
    ]


def _is_fixed(header: str) -> bool:
    return header.startswith(":") or header.lower() == "host"


def _fixed_header_detail(header: str) -> str:
    return f"Envoy neither sets nor removes {header[:80]!r} here: rewrites of host and path are fields of the route"


def _check_back_off(one: Any) -> list[Problem]:
    if not one.HasField("max_interval") or nanoseconds(one.max_interval) >= nanoseconds(one.base_interval):
        return []
    return [Problem(("max_interval",), "out_of_range", "max_interval must be at least base_interval")]


def _check_mirror(policy: Any) -> list[Problem]:
    """Check a ``RequestMirrorPolicy``: it has one of two fields."""
    if bool(policy.cluster) != bool(policy.cluster_header):
        return []
    if policy.cluster:
        return [Problem(("cluster_header",), "not_allowed", "only one of cluster and cluster_header can be set")]
    return [missing(("cluster",), "a mirror policy needs one of cluster and cluster_header")]


def _check_upgrades(upgrades: Any) -> list[Problem]:
    """Check the upgrades of a connection manager or route: a type occurs once in any case; only CONNECT has options."""
    problems = []
    seen: set[str] = set()
    for index, one in enumerate(upgrades):
        kind = one.upgrade_type.lower()
        if kind in seen:
            detail = f"an earlier entry has the upgrade type {one.upgrade_type[:80]!r}"
            problems.append(Problem((index, "upgrade_type"), "duplicate_item", detail))
        seen.add(kind)
        if (
            kind not in _CONNECT
            and "connect_config" in one.DESCRIPTOR.fields_by_name
            and one.HasField("connect_config")
        ):
            detail = f"connect_config is for upgrades of type CONNECT and CONNECT-UDP; not {one.upgrade_type[:80]!r}"
            problems.append(Problem((index, "connect_config"), "not_allowed", detail))
    return problems


def _check_per_filter(configs: Any) -> list[Problem]:
    """Check the ``typed_per_filter_config`` of a route, and of what contains it: Envoy finds each by its type."""
    return [
        Problem((name,), "missing_config", f"{name[:80]!r} has no configuration", 'write {"@type": ...}')
        for name, config in configs.items()
        if not config.type_url
    ]


def _check_filter_config(config: Any) -> list[Problem]:
    """Check a ``FilterConfig``, which has the configuration of a filter, or disables the filter."""
    if config.HasField("config") and not config.is_optional:
        return [one.below("config") for one in misplaced(config.config.type_url, HTTP_FILTERS)]
    if config.HasField("config") or config.disabled or config.is_optional:
        return _NOTHING
    detail = "a filter needs its configuration here, or disabled: true"
    return [Problem(("config",), "missing_config", detail, is_absence=True)]


def _check_rds(rds: Any) -> list[Problem]:
    """Check an ``Rds``: it needs a config source, unless the name is an ``xdstp`` name."""
    if rds.HasField("config_source") or rds.route_config_name.startswith("xdstp:"):
        return _NOTHING
    detail = "rds needs the config_source of its routes"
    hint = "config_source: {ads: {}, resource_api_version: V3}"
    return [missing(("config_source",), detail, hint)]


def _check_bodies(routes: Any) -> list[Problem]:
    """Check the inline bodies of direct responses in a ``RouteConfiguration``: Envoy keeps them in memory."""
    limit_bytes = _BODY_LIMIT_BYTES
    if routes.HasField("max_direct_response_body_size_bytes"):
        limit_bytes = routes.max_direct_response_body_size_bytes.value
    if not limit_bytes or routes.ByteSize() <= limit_bytes:  # Envoy takes a limit of zero as none
        return _NOTHING
    return list(_long_bodies(routes, limit_bytes))


def _long_bodies(routes: Any, limit_bytes: int) -> Iterator[Problem]:
    for place, host in enumerate(routes.virtual_hosts):
        for index, route in enumerate(host.routes):
            if not route.HasField("direct_response"):
                continue
            body = route.direct_response.body
            size_bytes = len(body.inline_bytes) or len(body.inline_string.encode())
            if size_bytes > limit_bytes:
                path = ("virtual_hosts", place, "routes", index, "direct_response", "body")
                detail = f"the body has {size_bytes} bytes, and the limit is {limit_bytes}"
                hint = "max_direct_response_body_size_bytes of the route configuration raises it"
                yield Problem((*path, str(body.WhichOneof("specifier"))), "too_long", detail, hint)


_HEADER_CHANGES: Mapping[str, MessageRule] = {
    f"{side}_headers_to_{change}": rule
    for side in ("request", "response")
    for change, rule in (("add", _check_added_headers), ("remove", _check_removed_headers))
}
_UPGRADE_CONFIGS: Mapping[str, MessageRule] = {"upgrade_configs": _check_upgrades}
ROUTE_RULES: Mapping[str, MessageRule] = {
    f"{_ROUTE}.FilterConfig": _check_filter_config,
    f"{_ROUTE}.RouteAction.RequestMirrorPolicy": _check_mirror,
    f"{_ROUTE}.RouteAction": _check_rewrites,
    f"{_ROUTE}.RouteConfiguration": _check_bodies,
    f"{_ROUTE}.WeightedCluster": _check_weights,
    f"{_ROUTE}.WeightedCluster.ClusterWeight": _check_weighted_cluster,
    f"{_ROUTE}.RetryPolicy.RetryBackOff": _check_back_off,
    "envoy.extensions.filters.network.http_connection_manager.v3.Rds": _check_rds,
}
ROUTE_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    f"{_ROUTE}.RouteAction": _UPGRADE_CONFIGS,
    **{
        f"{_ROUTE}.{holder}": {"typed_per_filter_config": _check_per_filter, **_HEADER_CHANGES}
        for holder in ("Route", "RouteConfiguration", "VirtualHost", "WeightedCluster.ClusterWeight")
    },
    _MANAGER: _UPGRADE_CONFIGS,
}
