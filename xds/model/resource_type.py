"""Resource types and their rules, as a table.

Any type URL can be served. A type that is not in the table has custom rules: partial in SotW, legacy wildcard, a
missing name is reported in ``removed_resources``. docs/internals/design.md#resource-types explains the table. Rule
numbers are those of docs/protocol.md#rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

TYPE_PREFIX = "type.googleapis.com/"


class Missing(Enum):
    """How the server answers a subscription to a name that does not exist (rules 38, 46, 49, 57)."""

    REMOVED = "removed"  # Delta: removed_resources. SotW: no answer; the client has a timer
    EMPTY_ASSIGNMENT = "empty_assignment"  # Delta: as REMOVED. SotW: an empty ClusterLoadAssignment
    ALIAS_ONLY = "alias_only"  # a Resource with name and alias and without a body
    SILENT = "silent"  # no answer


@dataclass(frozen=True, slots=True)
class ResourceType:
    """The rules of one type URL. Types in ``parents`` and ``narrowed_by`` are type URLs of the same API version.

    * ``alias``: the short name in the admin API and in metrics; custom types use their message name.
    * ``rank``: the order in which a stream offers types; lower first.
    * ``full_state``: a SotW response has every subscribed resource; absence means deletion (rule 34).
    * ``legacy_wildcard``: a first request without names means all resources (rules 27, 29).
    * ``missing``: how a missing name is answered.
    * ``parents``: resources of these types name resources of this type, and warm until they have them. After a response
      of a parent type some are re-sent (`warming`), and a repeated request is answered (rule 43).
    * ``in_tree``: part of a listener tree, whose additions wait for the clusters that the tree refers to.
    * ``after_listeners``: within its tree, the type waits for the ACK of the listeners that refer to it.
    * ``lingers``: removed resources are served for a while (docs/internals/design.md#removals).
    * ``is_route_target``: trees wait for new resources of this type, and a rejected one holds them (clusters).
    * ``kept_on_move``: a node that moves to another group keeps its resources of this type, and gets no others of the
      former group.
    * ``narrowed_by``: a wildcard means the names under the subscribed names of this type (rule 29, VHDS).
    """

    type_url: str
    alias: str
    rank: int = 100
    full_state: bool = False
    legacy_wildcard: bool = True
    missing: Missing = Missing.REMOVED
    parents: tuple[str, ...] = ()
    in_tree: bool = False
    after_listeners: bool = False
    lingers: bool = False
    is_route_target: bool = False
    kept_on_move: bool = False
    narrowed_by: str = ""

    @property
    def is_below_listeners(self) -> bool:
        """Whether resources of the type are parts of trees that listeners name: a listener may warm for them."""
        return self.in_tree and bool(self.parents)


_RULES: tuple[ResourceType, ...] = (
    # EDS, SDS and RTDS never wait (docs/internals/design.md#order-of-updates).
    ResourceType("", "runtimes", rank=10, legacy_wildcard=False),
    ResourceType("", "secrets", rank=20, legacy_wildcard=False,
                 parents=("clusters", "extension_configs", "listeners"), lingers=True, kept_on_move=True),
    ResourceType("", "clusters", rank=30, full_state=True, is_route_target=True, lingers=True),
    ResourceType("", "endpoints", rank=40, legacy_wildcard=False, missing=Missing.EMPTY_ASSIGNMENT,
                 parents=("clusters",), lingers=True, kept_on_move=True),
    ResourceType("", "extension_configs", rank=50, legacy_wildcard=False, missing=Missing.SILENT, in_tree=True,
                 parents=("clusters", "listeners")),
    # Listeners never linger: Envoy drains the connections of a removed one itself.
    ResourceType("", "listeners", rank=60, full_state=True, in_tree=True),
    # Rule 35 lists SRDS as partial, but Envoy removes every scope that a SotW response leaves out.
    ResourceType("", "scoped_routes", rank=70, full_state=True, in_tree=True, after_listeners=True,
                 parents=("extension_configs", "listeners")),
    ResourceType("", "routes", rank=80, legacy_wildcard=False, in_tree=True, after_listeners=True, lingers=True,
                 parents=("extension_configs", "listeners", "scoped_routes")),
    # An empty first VHDS request means the virtual hosts of the subscribed routes (rule 29).
    ResourceType("", "virtual_hosts", rank=90, missing=Missing.ALIAS_ONLY, in_tree=True, after_listeners=True,
                 parents=("listeners", "routes"), narrowed_by="routes"),
)  # fmt: skip

_V3_MESSAGES = {
    "runtimes": "envoy.service.runtime.v3.Runtime",
    "secrets": "envoy.extensions.transport_sockets.tls.v3.Secret",
    "clusters": "envoy.config.cluster.v3.Cluster",
    "endpoints": "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "extension_configs": "envoy.config.core.v3.TypedExtensionConfig",
    "listeners": "envoy.config.listener.v3.Listener",
    "scoped_routes": "envoy.config.route.v3.ScopedRouteConfiguration",
    "routes": "envoy.config.route.v3.RouteConfiguration",
    "virtual_hosts": "envoy.config.route.v3.VirtualHost",
}
_V2_MESSAGES = {
    "runtimes": "envoy.service.discovery.v2.Runtime",
    "secrets": "envoy.api.v2.auth.Secret",
    "clusters": "envoy.api.v2.Cluster",
    "endpoints": "envoy.api.v2.ClusterLoadAssignment",
    "listeners": "envoy.api.v2.Listener",
    "scoped_routes": "envoy.api.v2.ScopedRouteConfiguration",
    "routes": "envoy.api.v2.RouteConfiguration",
    "virtual_hosts": "envoy.api.v2.route.VirtualHost",
}


def _family(messages: dict[str, str]) -> list[ResourceType]:
    """The rules with aliases replaced by the type URLs of one API generation."""

    def urls(aliases: Iterable[str]) -> tuple[str, ...]:
        return tuple(TYPE_PREFIX + messages[alias] for alias in aliases if alias in messages)

    return [
        replace(
            rule,
            type_url=TYPE_PREFIX + messages[rule.alias],
            parents=urls(rule.parents),
            narrowed_by=next(iter(urls([rule.narrowed_by])), ""),
        )
        for rule in _RULES
        if rule.alias in messages
    ]


_BY_URL = {rule.type_url: rule for messages in (_V2_MESSAGES, _V3_MESSAGES) for rule in _family(messages)}
_BY_ALIAS = {rule.alias: rule for rule in _family(_V3_MESSAGES)}
_CUSTOM_TYPES_CACHED = 1024  # bounded, because clients choose these type URLs

RUNTIME = _BY_ALIAS["runtimes"].type_url
SECRET = _BY_ALIAS["secrets"].type_url
CLUSTER = _BY_ALIAS["clusters"].type_url
ENDPOINT = _BY_ALIAS["endpoints"].type_url
ENDPOINT_TYPES = frozenset(TYPE_PREFIX + messages["endpoints"] for messages in (_V2_MESSAGES, _V3_MESSAGES))
ROUTE_TARGETS = frozenset(url for url, rule in _BY_URL.items() if rule.is_route_target)
TRAFFIC_TYPES = frozenset(url for url, rule in _BY_URL.items() if rule.alias in ("listeners", "routes"))
PARENTS = frozenset(url for rule in _BY_URL.values() for url in rule.parents)
EXTENSION_CONFIG = _BY_ALIAS["extension_configs"].type_url
LISTENER = _BY_ALIAS["listeners"].type_url
SCOPED_ROUTE = _BY_ALIAS["scoped_routes"].type_url
ROUTE = _BY_ALIAS["routes"].type_url
VIRTUAL_HOST = _BY_ALIAS["virtual_hosts"].type_url
V3_TYPES: tuple[ResourceType, ...] = tuple(_BY_ALIAS.values())

# v3 type URL -> v2 type URL, where the v2 API has the type.
V2_URLS = {
    TYPE_PREFIX + message: TYPE_PREFIX + _V2_MESSAGES[alias]
    for alias, message in _V3_MESSAGES.items()
    if alias in _V2_MESSAGES
}
_V3_URLS = {v2: v3 for v3, v2 in V2_URLS.items()}


def v3_url(type_url: str) -> str:
    """The v3 type URL of a type of the v2 API; any other type URL unchanged."""
    return _V3_URLS.get(type_url, type_url)


def resource_type(type_url: str) -> ResourceType:
    """The rules of a type URL; custom rules for a type that is not in the table (rule 6)."""
    return _BY_URL.get(type_url) or _custom_type(type_url)


@lru_cache(_CUSTOM_TYPES_CACHED)
def _custom_type(type_url: str) -> ResourceType:
    return ResourceType(type_url, alias=type_url.removeprefix(TYPE_PREFIX))


def type_url_of(alias_or_url: str) -> str:
    """The type URL for an admin API alias (``clusters``), a message name or a type URL itself."""
    known = _BY_ALIAS.get(alias_or_url)
    if known is not None:
        return known.type_url
    return alias_or_url if "/" in alias_or_url else TYPE_PREFIX + alias_or_url


def alias_of(type_url: str) -> str:
    """The short name shown to people: ``clusters``, or the message name of a custom type."""
    return resource_type(type_url).alias
