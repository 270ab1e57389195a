"""The kinds of swaps, by the difference between the snapshots of consecutive turns.

Each turn has its own cluster, ``c<turn>``, whose requests go to one of two upstreams alternately. The rest of the site
stays. The same push removes the cluster of the previous turn. The routes of every HTTP kind have a path whose requests
are retried after a while, and one whose requests an authoriser holds for a while: both look up their cluster long after
they arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support import resources as r
from tests.support.upstream import PAUSED_PATH, RETRIED_PATH, Upstream

# Retries that wait count as active, and by default Envoy allows 3.
MANY_RETRIES: r.Json = {"circuit_breakers": {"thresholds": [{"max_retries": 1000}]}}
AUTHORIZER = "authorizer"
BESIDE = 100  # the offset of the second cluster of a turn; even, so that the same upstream answers
RETRY_AFTER = "1s"  # at random, up to it
RETRIES: r.Json = {
    "retry_policy": {"retry_on": "5xx", "num_retries": 3, "retry_back_off": {"base_interval": RETRY_AFTER}}
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a site's snapshots. ``cluster_fields`` are further fields of the clusters of all turns."""

    source: r.Json
    port: int
    authorizer: Upstream
    upstreams: tuple[Upstream, Upstream]
    cluster_fields: r.Json = field(default_factory=dict)

    def upstream(self, turn: int) -> Upstream:
        """The upstream that answers in a turn."""
        return self.upstreams[turn % 2]

    def clusters(self, *turns: int) -> list[r.Json]:
        """The clusters of some turns with their assignments, and the authoriser's cluster."""
        return [r.static_cluster(AUTHORIZER, self.authorizer.port), *self._turned(turns)]

    def _turned(self, turns: Iterable[int]) -> Iterable[r.Json]:
        for turn in turns:
            yield r.eds_cluster(name(turn), self.source, **MANY_RETRIES, **self.cluster_fields)
            yield r.cluster_load_assignment(name(turn), self.upstream(turn).port)

    def chain(self, chain_name: str, routes: r.Json, match: r.Json | None = None) -> r.Json:
        """A filter chain with the authoriser before its routes."""
        return r.http_chain(chain_name, routes, [r.authorizing_filter(self.authorizer.port, AUTHORIZER)], match)

    def listener(self, routes: r.Json, listener_name: str = "web") -> r.Json:
        """A listener with one such chain."""
        return r.chained_listener(listener_name, [self.chain(listener_name, routes)], self.port)

    def rds(self, route_config_name: str) -> r.Json:
        """The config source of RDS."""
        return r.rds(route_config_name, self.source)


Kind = Callable[[Scene, int], list[r.Json]]


def name(turn: int) -> str:
    """The cluster of a turn."""
    return f"c{turn}"


def is_turns(cluster: str) -> bool:
    """Whether this is the cluster of a turn."""
    return cluster.startswith("c") and cluster[1:].isdigit()


def to_cluster(cluster: str) -> r.Json:
    """The action of a route."""
    return {"cluster": cluster}


def hosts(action: r.Json) -> list[r.Json]:
    """Virtual hosts whose routes all have the same action."""
    retried = {"match": {"path": RETRIED_PATH.decode()}, "route": {**action, **RETRIES}}
    paused = {"match": {"path": PAUSED_PATH.decode()}, "route": action}
    plain = {"match": {"prefix": "/"}, "route": action}
    at_once = {"typed_per_filter_config": r.UNAUTHORIZED}
    routes = [{**retried, **at_once}, paused, {**plain, **at_once}]
    return [{**r.host("all", routes), "include_request_attempt_count": True}]


def inline(action: r.Json) -> r.Json:
    """Routes of an HTTP connection manager inline."""
    return {"route_config": {"name": "inline", "virtual_hosts": hosts(action)}}


def route_config(route_config_name: str, action: r.Json) -> r.Json:
    """The same by RDS."""
    return r.route_config(route_config_name, hosts=hosts(action))


# Only routes change


def routes_move(scene: Scene, turn: int) -> list[r.Json]:
    """The route configuration keeps its name and changes its content."""
    return [*scene.clusters(turn), scene.listener(scene.rds("r")), route_config("r", to_cluster(name(turn)))]


def weights_move(scene: Scene, turn: int) -> list[r.Json]:
    """Two weighted clusters of a route are replaced by two others."""
    turns = (turn, turn + BESIDE)
    action = {"weighted_clusters": {"clusters": [{"name": name(one), "weight": 1} for one in turns]}}
    return [*scene.clusters(*turns), scene.listener(scene.rds("r")), route_config("r", action)]


def members_move(scene: Scene, turn: int) -> list[r.Json]:
    """The members of an aggregate cluster are replaced; the routes stay."""
    turns = (turn, turn + BESIDE)
    aggregate = {**r.aggregate_cluster("all", *map(name, turns)), **MANY_RETRIES}
    routes = route_config("r", to_cluster("all"))
    return [*scene.clusters(*turns), aggregate, scene.listener(scene.rds("r")), routes]


# The listener changes


def inline_routes_move(scene: Scene, turn: int) -> list[r.Json]:
    """The inline routes of the listener lead to another cluster."""
    return [*scene.clusters(turn), scene.listener(inline(to_cluster(name(turn))))]


def route_config_is_renamed(scene: Scene, turn: int) -> list[r.Json]:
    """The listener refers to another route configuration."""
    named = f"r{turn}"
    return [*scene.clusters(turn), scene.listener(scene.rds(named)), route_config(named, to_cluster(name(turn)))]


def routes_come_by_rds_and_inline(scene: Scene, turn: int) -> list[r.Json]:
    """Inline routes become RDS routes, and the reverse."""
    return (inline_routes_move if turn % 2 == 0 else routes_move)(scene, turn)


def listener_is_replaced(scene: Scene, turn: int) -> list[r.Json]:
    """A listener with another name takes over the port."""
    return [*scene.clusters(turn), scene.listener(inline(to_cluster(name(turn))), f"web-{turn}")]


def chains_come_and_go(scene: Scene, turn: int) -> list[r.Json]:
    """A filter chain of a listener is replaced by one with the same match; another chain stays."""
    chain = scene.chain(f"chain-{turn}", inline(to_cluster(name(turn))), r.sources_match(8 + turn % 2))
    rest = r.http_chain("rest", r.inline_routes("rest", r.direct_route("rest")))
    return [*scene.clusters(turn), r.chained_listener("web", [chain, rest], scene.port)]


def bytes_move(scene: Scene, turn: int) -> list[r.Json]:
    """A TCP listener forwards to another cluster."""
    return [*scene.clusters(turn), r.chained_listener("web", [r.tcp_chain("web", name(turn))], scene.port)]


# Requests go over an internal listener, which is new in each turn


def tunnel_is_replaced(scene: Scene, turn: int) -> list[r.Json]:
    """The routes lead to another cluster, whose assignment names another internal listener."""
    routes = route_config("r", to_cluster(name(turn)))
    return [*_tunnel(scene, turn, name(turn)), *_inner(scene, turn), scene.listener(scene.rds("r")), routes]


def tunnel_leads_elsewhere(scene: Scene, turn: int) -> list[r.Json]:
    """The assignment of a cluster that stays in use names another internal listener, which was pushed a turn before."""
    routes = route_config("r", to_cluster("tunnel"))
    inner = [each for beside in (turn - 1, turn, turn + 1) for each in _inner(scene, beside)]
    return [*_tunnel(scene, turn, "tunnel"), *inner, scene.listener(scene.rds("r")), routes]


def _tunnel(scene: Scene, turn: int, tunnel: str) -> list[r.Json]:
    """A cluster that leads to the internal listener of a turn."""
    return [
        *scene.clusters(),
        r.eds_cluster(tunnel, scene.source, **MANY_RETRIES, **scene.cluster_fields),
        r.internal_load_assignment(tunnel, f"inner-{turn}"),
    ]


def _inner(scene: Scene, turn: int) -> list[r.Json]:
    """The internal listener of a turn, and the cluster that it leads to."""
    inner, behind = f"inner-{turn}", turn + BESIDE
    _, *clusters = scene.clusters(behind)
    return [*clusters, r.internal_listener(inner, [r.tcp_chain(inner, name(behind))])]


ROUTE_KINDS: tuple[Kind, ...] = (routes_move, weights_move, members_move)
LISTENER_KINDS: tuple[Kind, ...] = (
    inline_routes_move,
    route_config_is_renamed,
    routes_come_by_rds_and_inline,
    listener_is_replaced,
    chains_come_and_go,
    bytes_move,
)
TUNNEL_KINDS: tuple[Kind, ...] = (tunnel_is_replaced, tunnel_leads_elsewhere)
KINDS: tuple[Kind, ...] = (*ROUTE_KINDS, *LISTENER_KINDS, *TUNNEL_KINDS)
