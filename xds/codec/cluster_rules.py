"""Rules on whole clusters, measured with Envoy 1.40: what each type of cluster needs and what it cannot have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from xds.codec import schema
from xds.codec.address_rules import assignment_problems, bound_address_problems
from xds.codec.filter_rules import is_empty, unknown_config
from xds.codec.rules import MessageRule, Problem, missing
from xds.model.resource_type import TYPE_PREFIX

_STATIC, _STRICT_DNS, _LOGICAL_DNS, _EDS, _ORIGINAL_DST = range(5)  # Cluster.DiscoveryType
_RING_HASH, _MAGLEV, _CLUSTER_PROVIDED, _BY_CONFIG = 2, 5, 6, 7  # Cluster.LbPolicy
_HASHING = (_RING_HASH, _MAGLEV)
_RING_MIN, _RING_MAX, _TABLE = 1024, 8 << 20, 65_537  # Envoy's defaults
_KEYS_SUBSET = 4  # LbSubsetSelector.LbSubsetSelectorFallbackPolicy
_STATUS_MIN, _STATUS_MAX = 100, 600
_CODE = "cluster_conflict"
_TYPES = "envoy.extensions."
_FIELD = "typed_extension_protocol_options"
_HEX = re.compile(r"([0-9A-Fa-f]{2})+")
_NOTHING: list[Problem] = []


def _check_cluster(cluster: Any) -> list[Problem]:
    """Check a cluster; one without a type is static. Types of extensions are not checked.

    Every new cluster is checked here. Most clusters are of type EDS or STRICT_DNS, so these return early.
    """
    kind = cluster.type
    problems = list(_options(cluster)) if cluster.typed_extension_protocol_options else _NOTHING
    if cluster.lb_policy in _HASHING:
        problems = [*problems, *_table(cluster)]
    has_eds = cluster.HasField("eds_cluster_config")
    if cluster.lb_policy < _CLUSTER_PROVIDED and (
        (kind == _STRICT_DNS and not has_eds) or (kind == _EDS and cluster.eds_cluster_config.HasField("eds_config"))
    ):
        return problems
    if has_eds and kind != _EDS:
        detail = "eds_cluster_config is for clusters of type EDS"
        problems = [*problems, Problem(("eds_cluster_config",), _CODE, detail, "set type: EDS", is_absence=True)]
    if cluster.WhichOneof("cluster_discovery_type") == "cluster_type":
        if is_empty(cluster.cluster_type):
            problems = [*problems, unknown_config(cluster.cluster_type)._replace(path=("cluster_type", "typed_config"))]
        return problems
    return [*problems, *_of_type(cluster, kind), *_policy(cluster, kind)]


def _options(cluster: Any) -> Iterator[Problem]:
    """The keys of options are names of filters, or one of the types for upstreams.

    An empty value has no ``@type``: Envoy knows the type by its key, and reads the value as an empty message.
    """
    options = cluster.typed_extension_protocol_options
    if _HTTP_OPTIONS in options:
        if not options[_HTTP_OPTIONS].type_url:
            detail = "the options are empty, and one of the protocols is required"
            hint = f'"@type": {TYPE_PREFIX}{_HTTP_OPTIONS}'
            yield missing((_FIELD, _HTTP_OPTIONS), detail, hint)
        yield from _transport_problems(cluster)
    for key in options:
        if key.startswith(_TYPES) and key not in _upstream_types():
            near = next(iter(get_close_matches(key, _upstream_types(), n=1)), "")
            detail = f"no extension has options under {key[:200]!r}"
            yield Problem((_FIELD, key), "unknown_extension", detail, f'did you mean "{near}"?' if near else "")


@cache
def _upstream_types() -> frozenset[str]:
    return frozenset(name for name in schema.message_names() if name.startswith(f"{_TYPES}upstreams."))


def _of_type(cluster: Any, kind: int) -> Iterator[Problem]:
    if kind == _EDS:
        yield from _eds(cluster)
    elif kind == _LOGICAL_DNS:
        yield from _logical(cluster)
    elif kind == _ORIGINAL_DST and cluster.HasField("load_assignment"):
        detail = "a cluster of type ORIGINAL_DST has no endpoints of its own"
        yield Problem(("load_assignment",), _CODE, detail, "leave load_assignment out")
    elif kind == _STATIC and cluster.HasField("load_assignment"):
        for problem in assignment_problems(cluster.load_assignment):
            yield problem.below("load_assignment")


def _eds(cluster: Any) -> Iterator[Problem]:
    if cluster.eds_cluster_config.HasField("eds_config"):
        return
    detail = "a cluster of type EDS needs eds_cluster_config.eds_config"
    hint = "eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}"
    yield missing(("eds_cluster_config",), detail, hint)


def _logical(cluster: Any) -> Iterator[Problem]:
    localities = cluster.load_assignment.endpoints
    count = sum(len(locality.lb_endpoints) for locality in localities)
    if count != 1 or len(localities) != 1:
        detail = f"a cluster of type LOGICAL_DNS needs exactly one endpoint, and has {count}"
        yield Problem(("load_assignment",), _CODE, detail, "use STRICT_DNS for several", is_absence=True)


def _policy(cluster: Any, kind: int) -> Iterator[Problem]:
    is_provided = cluster.lb_policy == _CLUSTER_PROVIDED
    if cluster.lb_policy == _BY_CONFIG and not cluster.HasField("load_balancing_policy"):
        yield missing(("load_balancing_policy",), "LOAD_BALANCING_POLICY_CONFIG needs load_balancing_policy")
    if is_provided and cluster.HasField("lb_subset_config"):
        yield Problem(("lb_subset_config",), _CODE, "CLUSTER_PROVIDED cannot be combined with subsets")
    if kind == _ORIGINAL_DST and not is_provided:
        detail = "a cluster of type ORIGINAL_DST chooses its hosts itself"
        yield Problem(("lb_policy",), _CODE, detail, "lb_policy: CLUSTER_PROVIDED", is_absence=True)
    elif is_provided and kind != _ORIGINAL_DST and not cluster.HasField("load_balancing_policy"):
        detail = "CLUSTER_PROVIDED is for clusters that choose their hosts themselves, such as ORIGINAL_DST"
        yield Problem(("lb_policy",), _CODE, detail, is_absence=True)


def _table(cluster: Any) -> Iterator[Problem]:
    """Check the hash table of a policy; Envoy reads its size only if the policy is used."""
    if cluster.lb_policy == _MAGLEV:
        config = cluster.maglev_lb_config
        size = config.table_size.value if config.HasField("table_size") else _TABLE
        if not _is_prime(size):
            yield Problem(("maglev_lb_config", "table_size"), "out_of_range", "table_size must be a prime number")
        return
    config = cluster.ring_hash_lb_config
    least = config.minimum_ring_size.value if config.HasField("minimum_ring_size") else _RING_MIN
    most = config.maximum_ring_size.value if config.HasField("maximum_ring_size") else _RING_MAX
    if least > most:
        name = "maximum_ring_size" if config.HasField("maximum_ring_size") else "minimum_ring_size"
        detail = f"minimum_ring_size is {least}, and maximum_ring_size {most}"
        yield Problem(("ring_hash_lb_config", name), "out_of_range", detail)


@cache
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, min(int(number**0.5), 100_000) + 1))


def _check_selector(selector: Any) -> list[Problem]:
    """Check a ``LbSubsetSelector``: it falls back to some of its keys, not all."""
    fewer, keys = set(selector.fallback_keys_subset), set(selector.keys)
    if selector.fallback_policy != _KEYS_SUBSET or not fewer or fewer < keys:
        return _NOTHING
    detail = "fallback_keys_subset must be some of the keys, and not all of them"
    return [Problem(("fallback_keys_subset",), _CODE, detail)]


def _check_statuses(ranges: Any) -> list[Problem]:
    """Check the ranges of an ``HttpHealthCheck``; their ends are exclusive."""
    detail = f"a range begins at {_STATUS_MIN} or more, ends at {_STATUS_MAX} or less, and begins before it ends"
    return [
        Problem((index,), "out_of_range", detail)
        for index, one in enumerate(ranges)
        if not _STATUS_MIN <= one.start < one.end <= _STATUS_MAX
    ]


def _check_payload(payload: Any) -> list[Problem]:
    """Check the payload that a health check sends or expects: ``text`` is hexadecimal."""
    if payload.WhichOneof("payload") != "text" or _HEX.fullmatch(payload.text):
        return _NOTHING
    return [Problem(("text",), "bad_text", "text is pairs of hexadecimal digits", "PING is 50494e47")]


def _check_policies(policies: Any) -> list[Problem]:
    """Check a ``LoadBalancingPolicy``: Envoy uses the first policy whose type it knows."""
    if not policies or not all(is_empty(one.typed_extension_config) for one in policies):
        return _NOTHING
    problem = unknown_config(policies[0].typed_extension_config)
    return [problem.below(0, "typed_extension_config")]


def _check_health_checks(checks: Any) -> list[Problem]:
    """Check that several health checks have names, which Envoy has only since 1.40."""
    if len(checks) < 2:
        return []
    detail = "several health checks need a name each; Envoy 1.40 refuses them without"
    return [missing((index,), detail)._replace(is_warning=True) for index, check in enumerate(checks) if not check.name]


# HTTP options and the transport socket. HTTP/3 needs QUIC, which Envoy knows by the name of the socket


_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_SOCKETS = "envoy.extensions.transport_sockets"
_PROXY = f"{_SOCKETS}.http_11_proxy.v3.Http11ProxyUpstreamTransport"
_PLAIN = f"{_SOCKETS}.raw_buffer.v3.RawBuffer"
_QUIC_NAME = "envoy.transport_sockets.quic"
_PROXY_NAME = "envoy.transport_sockets.http_11_proxy"


def _transport_problems(cluster: Any) -> Iterator[Problem]:
    """The problems of the transport socket of a cluster that has HTTP options."""
    options = _read(_HTTP_OPTIONS, cluster.typed_extension_protocol_options[_HTTP_OPTIONS])
    if options is None:
        return
    if _speaks_http3(options):
        if not _is_quic(cluster.transport_socket):
            detail = f"HTTP/3 needs a transport socket named {_QUIC_NAME}"
            hint = f'typed_config: {{"@type": {TYPE_PREFIX}{_SOCKETS}.quic.v3.QuicUpstreamTransport}}'
            yield Problem(("transport_socket",), _CODE, detail, hint, is_absence=True)
    elif options.HasField("auto_config") and _is_plain(cluster.transport_socket):
        detail = "auto_config needs a transport socket that negotiates the protocol (ALPN)"
        hint = "set a transport_socket for TLS, or explicit_http_config"
        yield Problem(("transport_socket",), _CODE, detail, hint, is_absence=True)


def _speaks_http3(options: Any) -> bool:
    chosen = options.WhichOneof("upstream_protocol_options")
    return chosen is not None and getattr(options, chosen).HasField("http3_protocol_options")


def _is_quic(socket: Any) -> bool:
    """QUIC itself, or QUIC through a proxy."""
    if socket.name != _PROXY_NAME:
        return bool(socket.name == _QUIC_NAME)
    proxied = _read(_PROXY, socket.typed_config)
    return proxied is None or bool(proxied.transport_socket.name == _QUIC_NAME)


def _is_plain(socket: Any) -> bool:
    return not socket.name or socket.typed_config.type_url.rpartition("/")[2] == _PLAIN


def _read(kind: str, packed: Any) -> Any:
    """The message in an ``Any``; None for another type, and for bytes that do not parse (reported elsewhere)."""
    return schema.parsed(kind, packed.value) if packed.type_url.rpartition("/")[2] == kind else None


def _check_auto_config(config: Any) -> list[Problem]:
    """Check an ``AutoHttpConfig``: its cache is where Envoy remembers which servers speak HTTP/3."""
    if not config.HasField("http3_protocol_options") or config.HasField("alternate_protocols_cache_options"):
        return []
    detail = "auto_config with HTTP/3 needs alternate_protocols_cache_options"
    return [missing(("alternate_protocols_cache_options",), detail)]


CLUSTER_RULES: Mapping[str, MessageRule] = {
    "envoy.config.cluster.v3.Cluster": _check_cluster,
    "envoy.config.cluster.v3.Cluster.LbSubsetConfig.LbSubsetSelector": _check_selector,
    "envoy.config.core.v3.BindConfig": bound_address_problems,
    "envoy.config.core.v3.HealthCheck.Payload": _check_payload,
    f"{_HTTP_OPTIONS}.AutoHttpConfig": _check_auto_config,
}
CLUSTER_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    "envoy.config.cluster.v3.Cluster": {"health_checks": _check_health_checks},
    "envoy.config.cluster.v3.LoadBalancingPolicy": {"policies": _check_policies},
    "envoy.config.core.v3.HealthCheck.HttpHealthCheck": {
        "expected_statuses": _check_statuses,
        "retriable_statuses": _check_statuses,
    },
}
