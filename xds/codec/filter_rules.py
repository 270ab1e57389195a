"""Rules on listeners, filter chains and the order of filters, measured with Envoy 1.40.

A *terminal* filter answers or forwards: it is the last of its chain, and a chain needs one. The filters listed here as
terminal are those that Envoy reported as such. Filters in neither list, and filters by ECDS, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from ipaddress import ip_network
from itertools import product
from typing import Any

from xds.codec import schema
from xds.codec.address_rules import address_problems
from xds.codec.category_rules import HTTP_FILTERS, misplaced
from xds.codec.findings import FieldPath
from xds.codec.rules import MessageRule, Problem, is_ip, missing
from xds.codec.walk import unpack
from xds.model.resource_type import TYPE_PREFIX

_HTTP = "envoy.extensions.filters.http"
_NETWORK = "envoy.extensions.filters.network"
_MANAGER = f"{_NETWORK}.http_connection_manager.v3"
_CODEC = f"{_HTTP}.upstream_codec.v3.UpstreamCodec"
_UDP = 1  # SocketAddress.Protocol
_HTTP3 = 3  # HttpConnectionManager.CodecType
_HTTP3_BYTES = b"\x08\x03"  # of the field; others may have these bytes too
_COMBINATIONS_LIMIT = 20_000
_REMEMBERED = 1024
_ORDER = "filter_order"
_DROPPED_API = re.compile(r"envoy\.(\w+\.)*v2(alpha\d*)?\.")

_TERMINAL_HTTP = frozenset((f"{_HTTP}.router.v3.Router", f"{_HTTP}.mcp_router.v3.McpRouter"))
_TERMINAL_NETWORK = frozenset(
    (
        f"{_MANAGER}.HttpConnectionManager",
        *(f"{_NETWORK}.{name}.v3.{kind}" for name, kind in (("direct_response", "Config"), ("echo", "Echo"))),
        *(f"{_NETWORK}.{name}.v3.{kind}" for name, kind in (("tcp_proxy", "TcpProxy"), ("dubbo_proxy", "DubboProxy"))),
        *(
            f"{_NETWORK}.{name}.v3.{kind}"
            for name, kind in (("redis_proxy", "RedisProxy"), ("generic_proxy", "GenericProxy"))
        ),
        f"{_NETWORK}.thrift_proxy.v3.ThriftProxy",
    )
)
# Packages of filters that are not terminal.
_PASSING_HTTP = frozenset(
    (
        *("adaptive_concurrency", "admission_control", "alternate_protocols_cache", "api_key_auth", "aws_lambda"),
        *("aws_request_signing", "bandwidth_limit", "basic_auth", "buffer", "cache", "cdn_loop", "compressor"),
        *("connect_grpc_bridge", "cors", "credential_injector", "csrf", "custom_response", "decompressor"),
        *("dynamic_forward_proxy", "ext_authz", "ext_proc", "fault", "file_system_buffer", "gcp_authn", "geoip"),
        *("grpc_http1_bridge", "grpc_http1_reverse_bridge", "grpc_json_transcoder", "grpc_stats", "grpc_web"),
        *("header_mutation", "header_to_metadata", "health_check", "ip_tagging", "json_to_metadata", "jwt_authn"),
        *("local_ratelimit", "lua", "oauth2", "on_demand", "original_src", "rate_limit_quota", "ratelimit", "rbac"),
        *("set_filter_state", "set_metadata", "stateful_session", "tap", "wasm"),
    )
)
_PASSING_NETWORK = frozenset(
    (
        *("connection_limit", "ext_authz", "ext_proc", "local_ratelimit", "mongo_proxy", "ratelimit", "rbac"),
        *("set_filter_state", "sni_cluster", "sni_dynamic_forward_proxy", "wasm", "zookeeper_proxy"),
    )
)


# Extensions without a configuration


def is_empty(holder: Any) -> bool:
    """True for a ``typed_config`` that is set and has no type."""
    return bool(holder.HasField("typed_config")) and not holder.typed_config.type_url


def _check_missing_config(holder: Any) -> list[Problem]:
    """Check that an extension has a configuration: Envoy finds the extension by its type, not by its name."""
    return [unknown_config(holder)] if holder.WhichOneof("config_type") is None or is_empty(holder) else []


def unknown_config(holder: Any) -> Problem:
    """The error for an extension of which only the name is given."""
    detail = f"{holder.name[:80]!r} has no configuration, and Envoy finds the extension by the configuration's type"
    return Problem(("typed_config",), "missing_config", detail, _config_hint(holder.name), is_absence=True)


def _old_config(one: Any) -> Iterator[Problem]:
    if is_dropped_api(one.typed_config.type_url):
        yield dropped_api_problem(one.typed_config.type_url).below("typed_config")


def _other_category(one: Any) -> Iterator[Problem]:
    for problem in misplaced(one.typed_config.type_url, HTTP_FILTERS):
        yield problem.below("typed_config")


@cache
def _types_by_extension() -> Mapping[tuple[str, str], str]:
    """Configurations by kind and name: those of ``envoy.filters.http.router`` are ``("http", "router")``."""
    types: dict[tuple[str, str], list[str]] = {}
    for name in schema.message_names():
        parts = name.split(".")
        if name.startswith("envoy.extensions.") and len(parts) > 5 and parts[-2] == "v3":
            types.setdefault((parts[-4], parts[-3]), []).append(name)
    whole = {key: [one for one in names if not one.endswith("PerRoute")] for key, names in types.items()}
    return {key: names[0] for key, names in whole.items() if len(names) == 1}


def _config_hint(name: str) -> str:
    parts = name.split(".")
    types = _types_by_extension().get((parts[-2], parts[-1])) if len(parts) > 2 else None
    return f'typed_config: {{"@type": "{TYPE_PREFIX}{types}"}}' if types else 'write typed_config: {"@type": ...}'


# Extensions of the v2 API


@lru_cache(_REMEMBERED)
def is_dropped_api(type_url: str) -> bool:
    """True for a type of the v2 API, which Envoy dropped in 1.19."""
    return _DROPPED_API.match(type_url.rpartition("/")[2]) is not None


def dropped_api_problem(type_url: str) -> Problem:
    """The error for a type of the v2 API within a v3 resource."""
    name = type_url.rpartition("/")[2]
    successor = _successor(name)
    hint = f'use "{TYPE_PREFIX}{successor}"' if successor else ""
    return Problem((), "v2_type", f"{name[:200]} is of the v2 API, which Envoy no longer has", hint)


def _successor(name: str) -> str:
    """The v3 type that replaced a v2 type: the one of the same name in the most similar package."""
    own = name.rpartition(".")[2]
    same = [one for one in schema.message_names() if one.rpartition(".")[2] == own and ".v3." in one]
    if own == "Config" or len(same) > 1:
        same = [one for one in same if name.split(".")[-3] in one.split(".")]
    return next(iter(get_close_matches(name, same, n=1, cutoff=0.0)), "")


# The order of filters


def _type_of(one: Any) -> str:
    """The type of a filter's configuration; empty for one by ECDS."""
    return str(one.typed_config.type_url).rpartition("/")[2] if one.HasField("typed_config") else ""


def _passes(kind: str, package: str, passing: frozenset[str]) -> bool:
    return kind.startswith(f"{package}.") and kind[len(package) + 1 :].partition(".")[0] in passing


def _order(
    filters: Sequence[Any], field: str, terminal: frozenset[str], package: str, passing: frozenset[str]
) -> Iterator[Problem]:
    """Problems for terminal filters before the last one, and for a last one that is not terminal."""
    if not filters:
        return
    for index, one in enumerate(filters[:-1]):
        if _type_of(one) in terminal:
            detail = f"{one.name[:80]!r} is a terminal filter and must be the last of its chain"
            yield Problem((field, index), _ORDER, detail, "move it to the end, once")
    last = filters[-1]
    if _passes(_type_of(last), package, passing):
        needed = "envoy.filters.http.router" if package == _HTTP else "such as envoy.filters.network.tcp_proxy"
        detail = f"{last.name[:80]!r} is the last filter and is not terminal"
        hint = f"add a terminal filter after it: {needed}"
        yield Problem((field, len(filters) - 1), _ORDER, detail, hint, is_absence=True)


def _configured(filters: Sequence[Any], field: str) -> Iterator[Problem]:
    """Problems for HTTP filters without a configuration that Envoy knows. Envoy ignores optional ones."""
    for index, one in enumerate(filters):
        if not one.is_optional:
            for problem in (*_check_missing_config(one), *_old_config(one), *_other_category(one)):
                yield problem.below(field, index)


def _check_http_filters(manager: Any) -> list[Problem]:
    """Check the HTTP filters of an ``HttpConnectionManager``."""
    filters = list(manager.http_filters)
    problems = [*_configured(filters, "http_filters")]
    problems += _order(filters, "http_filters", _TERMINAL_HTTP, _HTTP, _PASSING_HTTP)
    if filters and filters[-1].disabled and _type_of(filters[-1]) in _TERMINAL_HTTP:
        detail = "the terminal filter cannot be disabled"
        problems.append(Problem(("http_filters", len(filters) - 1, "disabled"), _ORDER, detail))
    if manager.original_ip_detection_extensions:
        problems += _detection(manager)
    return problems


def _detection(manager: Any) -> Iterator[Problem]:
    """Extensions that find the address of a client exclude these fields."""
    for name, is_set in (
        ("use_remote_address", manager.use_remote_address.value),
        ("xff_num_trusted_hops", manager.xff_num_trusted_hops > 0),
    ):
        if is_set:
            detail = f"original_ip_detection_extensions and {name} cannot be combined"
            yield Problem((name,), "not_allowed", detail)


def _upstream_filters(field: str) -> MessageRule:
    """The rule for the filters after the router: the last one is the codec."""

    def rule(holder: Any) -> list[Problem]:
        filters = list(getattr(holder, field))
        if not filters:
            return []
        problems = [*_configured(filters, field), *_order(filters, field, frozenset((_CODEC,)), "", frozenset())]
        kind = _type_of(filters[-1])
        if kind and kind != _CODEC:
            detail = "the last upstream filter must be envoy.filters.http.upstream_codec"
            problems.append(Problem((field, len(filters) - 1), _ORDER, detail, is_absence=True))
        return problems

    return rule


# Listeners


def _check_listener(listener: Any) -> list[Problem]:
    """Check a listener, unless it has an ``api_listener``: only that is read then, by gRPC clients."""
    if listener.HasField("api_listener"):
        return []
    return [*_addresses(listener), *_transport(listener), *_chains(listener)]


def _addresses(listener: Any) -> Iterator[Problem]:
    if listener.WhichOneof("listener_specifier") == "internal_listener":
        if listener.HasField("address"):
            detail = "an internal listener has no address: endpoints name the listener"
            yield Problem(("address",), "not_allowed", detail)
        return
    if not listener.HasField("address"):
        detail = "a listener needs an address"
        hint = "address: {socket_address: {address: 0.0.0.0, port_value: 8080}}"
        yield missing(("address",), detail, hint)
        return
    yield from _address(listener.address, ("address",))
    for index, further in enumerate(listener.additional_addresses):
        path = ("additional_addresses", index, "address")
        if not further.HasField("address"):
            yield missing(path, "an address is required")
        yield from _address(further.address, path)


def _address(address: Any, path: FieldPath) -> Iterator[Problem]:
    for problem in address_problems(address, "0.0.0.0 means all IPv4 addresses of the host"):
        yield problem.below(*path)
    if address.WhichOneof("address") != "socket_address":
        return
    socket = address.socket_address
    if socket.ipv4_compat and is_ip(socket.address) and not _is_mapped(socket.address):
        detail = f"ipv4_compat is for the address :: or an IPv4-mapped one; not {socket.address}"
        yield Problem((*path, "socket_address", "ipv4_compat"), "not_allowed", detail)


def _is_mapped(text: str) -> bool:
    return text == "::" or text.lower().startswith("::ffff:")


def _transport(listener: Any) -> Iterator[Problem]:
    """Problems for chains that do not fit the protocol: only QUIC has connections over UDP, and HTTP/3 needs QUIC."""
    is_udp = listener.address.socket_address.protocol == _UDP
    is_quic = is_udp and listener.udp_listener_config.HasField("quic_options")
    for path, chain in _placed_chains(listener):
        if is_udp and not is_quic:
            detail = "a UDP listener has no filter chains: UDP has no connections"
            hint = "use listener_filters; QUIC needs udp_listener_config.quic_options"
            yield Problem(path, "not_allowed", detail, hint)
        elif is_quic and not chain.HasField("transport_socket"):
            detail = "a filter chain of a QUIC listener needs the transport socket envoy.transport_sockets.quic"
            yield missing((*path, "transport_socket"), detail)
        elif not is_quic:
            yield from _without_quic(chain, path)


def _placed_chains(listener: Any) -> Iterator[tuple[FieldPath, Any]]:
    for index, chain in enumerate(listener.filter_chains):
        yield ("filter_chains", index), chain
    if listener.HasField("default_filter_chain"):
        yield ("default_filter_chain",), listener.default_filter_chain


def _without_quic(chain: Any, path: FieldPath) -> Iterator[Problem]:
    for index, one in enumerate(chain.filters):
        if _HTTP3_BYTES in one.typed_config.value and _speaks_http3(one):
            detail = "HTTP/3 needs a QUIC listener: UDP with udp_listener_config.quic_options"
            yield Problem((*path, "filters", index, "typed_config", "codec_type"), "not_allowed", detail)


def _speaks_http3(one: Any) -> bool:
    manager: Any = unpack(one.typed_config) if _type_of(one) == f"{_MANAGER}.HttpConnectionManager" else None
    return manager is not None and manager.codec_type == _HTTP3


def _chains(listener: Any) -> Iterator[Problem]:
    if listener.filter_chains:
        if listener.HasField("filter_chain_matcher"):
            yield from _chain_names(listener.filter_chains)
        elif len(listener.filter_chains) > 1 or listener.filter_chains[0].HasField("filter_chain_match"):
            yield from _equal_chains(listener.filter_chains)
    elif not listener.HasField("default_filter_chain") and listener.address.socket_address.protocol != _UDP:
        yield missing(("filter_chains",), "a listener needs filter_chains or a default_filter_chain")
    for path, chain in _placed_chains(listener):
        yield from _network_filters(chain, path)


def _chain_names(chains: Iterable[Any]) -> Iterator[Problem]:
    """The matcher of a listener selects its chains by name."""
    seen: set[str] = set()
    for index, chain in enumerate(chains):
        path = ("filter_chains", index, "name")
        if not chain.name:
            yield missing(path, "a filter chain needs a name where the listener has a filter_chain_matcher")
        elif chain.name in seen:
            yield Problem(path, "duplicate_item", f"an earlier filter chain has the name {chain.name[:80]!r}")
        seen.add(chain.name)


def _network_filters(chain: Any, path: FieldPath) -> Iterator[Problem]:
    for problem in _order(list(chain.filters), "filters", _TERMINAL_NETWORK, _NETWORK, _PASSING_NETWORK):
        yield problem.below(*path)


def _equal_chains(chains: Iterable[Any]) -> Iterator[Problem]:
    """Problems for chains that match the same connections: each combination of criteria belongs to one chain."""
    owners: dict[tuple[Any, ...], int] = {}
    left = _COMBINATIONS_LIMIT
    for index, chain in enumerate(chains):
        for one in product(*_criteria(chain.filter_chain_match)):
            left -= 1
            if left < 0:
                return
            if one not in owners:
                owners[one] = index
                continue
            owner = "it" if owners[one] == index else f"filter_chains/{owners[one]}"
            detail = f"filter chain {index} matches what {owner} matches already"
            hint = "give it another filter_chain_match" if chain.HasField("filter_chain_match") else _NO_MATCH
            yield Problem(("filter_chains", index), "duplicate_match", detail, hint, is_absence=True)
            break


_NO_MATCH = "a chain without filter_chain_match takes every connection; only one can"


def _criteria(match: Any) -> tuple[list[Any], ...]:
    """The values of each criterion. None stands for an empty criterion, which matches what no other chain names."""
    return (
        [match.destination_port.value if match.HasField("destination_port") else None],
        [_network(one) for one in match.prefix_ranges] or [None],
        [name.lower() or None for name in match.server_names] or [None],
        [match.transport_protocol],
        [name or None for name in match.application_protocols] or [None],
        [_network(one) for one in match.direct_source_prefix_ranges] or [None],
        [match.source_type],
        [_network(one) for one in match.source_prefix_ranges] or [None],
        list(match.source_ports) or [None],
    )


def _network(cidr: Any) -> str:
    """A range as Envoy reads it: the prefix is at most as long as the address, and bits after it are cleared."""
    bits = 32 if "." in cidr.address_prefix and ":" not in cidr.address_prefix else 128
    try:
        return str(ip_network(f"{cidr.address_prefix}/{min(cidr.prefix_len.value, bits)}", strict=False))
    except ValueError:
        return str(cidr.address_prefix)


def _check_chain_match(match: Any) -> list[Problem]:
    """Check a ``FilterChainMatch`` for fields that Envoy does not implement, and for names that it cannot match."""
    problems = [
        Problem((field.name,), "not_allowed", f"Envoy does not implement {field.name}")
        for field, _ in match.ListFields()
        if field.name in ("address_suffix", "suffix_len")
    ]
    for index, name in enumerate(match.server_names):
        if "*" in name.removeprefix("*."):
            detail = f"a wildcard is the first label of a server name; not {name[:80]!r}"
            problems.append(Problem(("server_names", index), "pattern", detail, 'such as "*.example.com"'))
    return problems


_NAMED = (
    "envoy.config.accesslog.v3.AccessLog",
    "envoy.config.accesslog.v3.ExtensionFilter",
    "envoy.config.core.v3.HealthCheck.CustomHealthCheck",
    "envoy.config.core.v3.TransportSocket",
    "envoy.config.listener.v3.Filter",
    "envoy.config.listener.v3.ListenerFilter",
    "envoy.config.route.v3.RetryPolicy.RetryHostPredicate",
    "envoy.config.route.v3.RetryPolicy.RetryPriority",
    "envoy.config.trace.v3.Tracing.Http",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftFilter",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter",
)
FILTER_RULES: Mapping[str, MessageRule] = {
    **dict.fromkeys(_NAMED, _check_missing_config),
    "envoy.config.listener.v3.Listener": _check_listener,
    "envoy.config.listener.v3.FilterChainMatch": _check_chain_match,
    f"{_HTTP}.router.v3.Router": _upstream_filters("upstream_http_filters"),
    f"{_MANAGER}.HttpConnectionManager": _check_http_filters,
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": _upstream_filters("http_filters"),
}
