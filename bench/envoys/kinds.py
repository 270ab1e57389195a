"""The kinds of push: the resources before, those that the n-th push puts and deletes, and the listener with the load.

All kinds share one set of resources, each with a listener of its own, beside clusters that never change. The system
chooses the ports of the listeners, because all Envoys share the loopback address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support import resources as r
from tests.support.resources import Json

TCP_PROXY_TYPE = r.TYPE + "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
BUFFER_BYTES = 1 << 20

Ports = tuple[int, int]  # of the two upstreams that pushes go between


@dataclass(frozen=True, slots=True)
class Push:
    """Resources that are put, and type URL and name of those that are deleted, in one push."""

    put: tuple[Json, ...]
    delete: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """``first`` is what there is of it before its first push; ``push`` makes the n-th one, counted from 1.

    ``listener`` is the one that the load goes through while it is measured.
    """

    name: str
    text: str
    listener: str
    first: Callable[[Ports], list[Json]]
    push: Callable[[Ports, int], Push]

    @property
    def removes(self) -> bool:
        """Whether a cluster goes with each push."""
        return bool(self.push((0, 0), 1).delete)


def first_set(ports: Ports, fillers: int) -> list[Json]:
    """What the fleet is started with: the part of every kind, and so many clusters that never change."""
    parts = [resource for kind in KINDS.values() for resource in kind.first(ports)]
    return [*parts, *(resource for index in range(fillers) for resource in _site("filler", index, ports))]


def _named(name: str, number: int) -> str:
    return f"{name}-{number}"


def _site(name: str, number: int, ports: Ports) -> Iterator[Json]:
    """The n-th cluster of a name, with its assignment; they take turns with the two upstreams."""
    yield r.eds_cluster(_named(name, number))
    yield r.cluster_load_assignment(_named(name, number), ports[number % 2])


def _move(name: str, number: int, ports: Ports, *leading: Json) -> Push:
    """From one cluster to the next: the new one, what now leads there, and the old one deleted."""
    before = _named(name, number - 1)
    gone = ((r.CLUSTER_TYPE, before), (r.ENDPOINT_TYPE, before))
    return Push((*_site(name, number, ports), *leading), gone)


def _web(name: str) -> Json:
    """A listener whose routes come by RDS under the same name."""
    return r.listener(name, r.rds(name))


def _routes(name: str, cluster: str) -> Json:
    return r.route_config(name, r.route(cluster))


# An endpoint changes


def _first_endpoint(ports: Ports) -> list[Json]:
    return [*_site("endpoint", 0, ports), _web("endpoint"), _routes("endpoint", "endpoint-0")]


def _push_endpoint(ports: Ports, number: int) -> Push:
    """The only endpoint is another; the weight of its locality makes each assignment one that never was."""
    value = r.cluster_load_assignment("endpoint-0", ports[number % 2])
    value["endpoints"][0]["load_balancing_weight"] = 1 + number
    return Push((value,))


# A cluster is added


def _push_cluster(ports: Ports, number: int) -> Push:
    return Push(tuple(_site("added", number, ports)))


# A route moves


def _first_route(ports: Ports) -> list[Json]:
    return [*_site("route", 0, ports), _web("route"), _routes("route", "route-0")]


def _push_route(ports: Ports, number: int) -> Push:
    return _move("route", number, ports, _routes("route", _named("route", number)))


# A listener is replaced


def _replaced(number: int) -> Json:
    return {**_web("listener"), "per_connection_buffer_limit_bytes": BUFFER_BYTES + number}


def _first_listener(ports: Ports) -> list[Json]:
    return [*_site("listener", 0, ports), _replaced(0), _routes("listener", "listener-0")]


def _push_listener(_ports: Ports, number: int) -> Push:
    return Push((_replaced(number),))


# Inline routes move


def _inline(number: int) -> Json:
    return r.listener("inline", r.inline_routes("inline", r.route(_named("inline", number))))


def _first_inline(ports: Ports) -> list[Json]:
    return [*_site("inline", 0, ports), _inline(0)]


def _push_inline(ports: Ports, number: int) -> Push:
    return _move("inline", number, ports, _inline(number))


# A TCP proxy moves


def _tcp(number: int) -> Json:
    proxy = {"@type": TCP_PROXY_TYPE, "stat_prefix": "tcp", "cluster": _named("tcp", number)}
    chain = {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}
    return {"@type": r.LISTENER_TYPE, "name": "tcp", "address": r.address(0), "filter_chains": [chain]}


def _first_tcp(ports: Ports) -> list[Json]:
    return [*_site("tcp", 0, ports), _tcp(0)]


def _push_tcp(ports: Ports, number: int) -> Push:
    return _move("tcp", number, ports, _tcp(number))


_ALL = (
    Kind("endpoint", "an endpoint changes (EDS alone)", "endpoint", _first_endpoint, _push_endpoint),
    Kind("cluster", "a cluster is added, with its assignment", "endpoint", lambda _: [], _push_cluster),
    Kind("route", "a route of RDS moves from a to b, a is removed", "route", _first_route, _push_route),
    Kind("listener", "a listener is replaced, routes and clusters stay", "listener", _first_listener, _push_listener),
    Kind("inline", "an inline route moves from a to b, a is removed", "inline", _first_inline, _push_inline),
    Kind("tcp", "a TCP proxy moves from a to b, a is removed", "tcp", _first_tcp, _push_tcp),
)
KINDS = {kind.name: kind for kind in _ALL}
