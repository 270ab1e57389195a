"""The models of answers about discovery chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnswer:
    """A compiled discovery chain.

    * ``Chain``: Consul's ``CompiledDiscoveryChain``.
    """

    Chain: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedRequest:
    """The request that was followed.

    * ``method``: its method;
    * ``path``: its path, without the query;
    * ``query``: its query parameters, as pairs of name and value;
    * ``headers``: its headers, as pairs of name and value.
    """

    method: str
    path: str
    query: tuple[tuple[str, ...], ...]
    headers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRoute:
    """A route of the router that was tried.

    * ``route``: its position, from 1 on;
    * ``matches``: whether it matches the request;
    * ``mismatch``: the first thing that does not match; empty if all does.
    """

    schema_name: ClassVar[str] = "TriedRouteItem"

    route: int
    matches: bool
    mismatch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWay:
    """One way that such requests may take.

    * ``weight``: the percentage of the requests;
    * ``resolver``: the key of the resolver node in the chain;
    * ``target``: the target of the resolver;
    * ``failover``: the targets that it fails over to, in order.
    """

    schema_name: ClassVar[str] = "WayItem"

    weight: float
    resolver: str
    target: str
    failover: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkAnswer:
    """The way of a request through a discovery chain.

    * ``Chain``: the whole chain: Consul's ``CompiledDiscoveryChain``;
    * ``request``: the request;
    * ``routes``: the routes that were tried, up to the one that matches; empty without a router;
    * ``next_node``: the key of the node that the router sends the request to; the first node without a router;
    * ``path``: the path that is sent on;
    * ``ways``: the ways that the request may take from there.
    """

    Chain: Mapping[str, Any]
    request: WalkedRequest
    routes: tuple[CheckedRoute, ...]
    next_node: str
    path: str
    ways: tuple[RequestWay, ...]
