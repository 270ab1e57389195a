"""The JSON of a request's way through a chain."""

from __future__ import annotations

from typing import Any

from xds.catalog.quantities import percent
from xds.chain.chain import DiscoveryChain
from xds.chain.chain_json import response_json
from xds.chain.request_walk import HttpRequest, TriedRoute, Walk, Way

Json = dict[str, Any]


def walk_json(chain: DiscoveryChain, request: HttpRequest, found: Walk) -> Json:
    """The chain, the request, and its way: the routes that were tried, in order, and where it may end.

    ``routes`` have a ``route`` number from 1 and a ``mismatch``, empty for the last one, which matches. ``next_node``
    is the node of the chain that the router sends to, the start where there is none. Each of ``ways`` gets ``weight``
    percent of such requests. ``path`` is the one that is sent on.
    """
    return {
        **response_json(chain),
        "request": {
            "method": request.method,
            "path": request.path,
            "query": [list(each) for each in request.query],
            "headers": [list(each) for each in request.headers],
        },
        "routes": [_tried(one) for one in found.tried],
        "next_node": found.node,
        "path": found.path,
        "ways": [_way(one) for one in found.ways],
    }


def _tried(tried: TriedRoute) -> Json:
    return {"route": tried.index + 1, "matches": tried.matches, "mismatch": tried.mismatch}


def _way(way: Way) -> Json:
    return {
        "weight": percent(way.weight),
        "resolver": way.resolver.key,
        "target": way.resolver.target,
        "failover": list(way.resolver.failover),
    }
