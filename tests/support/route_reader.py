"""An interpreter of lowered resources: the endpoints that a request reaches, as Envoy would route it.

It reads the JSON that is pushed, not the values of the lowering, and shares no code with the lowering.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

Json = dict[str, Any]
Place = tuple[str, int]

HEALTHY = "HEALTHY"


@dataclass(frozen=True)
class Request:
    path: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RoutedRequest:
    """``clusters`` has the weight of each cluster; ``path`` is the path of the forwarded request."""

    clusters: Mapping[str, int]
    path: str
    route: Json


class RouteReader:
    """Resources in JSON, with their ``@type``."""

    def __init__(self, resources: Iterable[Json]) -> None:
        self._by_type: dict[str, dict[str, Json]] = {}
        for one in resources:
            kind = one["@type"].rpartition(".")[2]
            name: str = one["cluster_name"] if "cluster_name" in one else one["name"]
            self._by_type.setdefault(kind, {})[name] = one

    def listener(self, name: str) -> Json:
        return self._by_type["Listener"][name]

    def route_request(self, listener: str, request: Request) -> RoutedRequest | None:
        """How a listener routes a request; None if no route matches."""
        config = self._http_config(self.listener(listener))
        if config is None:
            return RoutedRequest({self._tcp_cluster(listener): 1}, request.path, {})
        for route in self._routes(config):
            if _matches(route["match"], request):
                action = route["route"]
                return RoutedRequest(_clusters(action), _rewritten(route["match"], action, request.path), route)
        return None

    def priorities(self, cluster: str) -> list[list[tuple[Place, bool]]]:
        """The endpoints of a cluster with their health, by priority; an aggregate has those of its members in turn."""
        found = self._by_type["Cluster"][cluster]
        if "cluster_type" in found:
            members = found["cluster_type"]["typed_config"]["clusters"]
            return [each for member in members for each in self.priorities(member)]
        assert found["type"] == "EDS"
        return _priorities(self._by_type["ClusterLoadAssignment"][cluster])

    def serving(self, cluster: str) -> set[Place]:
        """The endpoints that get the requests of a cluster: the healthy ones of the first priority that has any."""
        for endpoints in self.priorities(cluster):
            healthy = {place for place, is_healthy in endpoints if is_healthy}
            if healthy:
                return healthy
        return set()

    def _http_config(self, listener: Json) -> Json | None:
        if "api_listener" in listener:
            config: Json = listener["api_listener"]["api_listener"]
            return config
        (chain,) = listener["filter_chains"]
        (proxy,) = chain["filters"]
        found: Json = proxy["typed_config"]
        return found if found["@type"].endswith(".HttpConnectionManager") else None

    def _tcp_cluster(self, listener: str) -> str:
        ((proxy,),) = [chain["filters"] for chain in self.listener(listener)["filter_chains"]]
        cluster: str = proxy["typed_config"]["cluster"]
        return cluster

    def _routes(self, config: Json) -> list[Json]:
        if "route_config" in config:
            found = config["route_config"]
        else:
            found = self._by_type["RouteConfiguration"][config["rds"]["route_config_name"]]
        (host,) = found["virtual_hosts"]
        assert host["domains"] == ["*"]
        routes: list[Json] = host.get("routes", [])
        return routes


def _priorities(assignment: Json) -> list[list[tuple[Place, bool]]]:
    found: dict[int, list[tuple[Place, bool]]] = {}
    for entry in assignment.get("endpoints", []):
        held = found.setdefault(entry.get("priority", 0), [])
        for one in entry.get("lb_endpoints", []):
            at = one["endpoint"]["address"]["socket_address"]
            held.append(((at["address"], at["port_value"]), one["health_status"] == HEALTHY))
    assert list(found) == list(range(len(found))), "a gap in the priorities"
    return [found[priority] for priority in sorted(found)]


# Matching


def _matches(match: Json, request: Request) -> bool:
    return (
        _path_matches(match, request.path)
        and all(_header_matches(one, request) for one in match.get("headers", []))
        and all(_parameter_matches(one, request) for one in match.get("query_parameters", []))
    )


def _path_matches(match: Json, path: str) -> bool:
    if "safe_regex" in match:
        return _full_match(match["safe_regex"]["regex"], path)
    fold = str if match.get("case_sensitive", True) else str.lower
    if "path" in match:
        return fold(path) == fold(match["path"])
    return fold(path).startswith(fold(match["prefix"]))


def _header_matches(match: Json, request: Request) -> bool:
    headers = (*request.headers, (":method", request.method))
    values = [value for name, value in headers if name.lower() == match["name"].lower()]
    inverts = match.get("invert_match", False)
    if match.get("present_match"):
        return bool(values) is not inverts
    return bool(values) and _text_matches(match["string_match"], ",".join(values)) is not inverts


def _parameter_matches(match: Json, request: Request) -> bool:
    values = [value for name, value in request.query if name == match["name"]]
    if not values:
        return False
    return bool(match.get("present_match")) or _text_matches(match["string_match"], values[0])


def _text_matches(match: Json, text: str) -> bool:
    ((kind, wanted),) = match.items()
    if kind == "safe_regex":
        return _full_match(wanted["regex"], text)
    if kind == "exact":
        return bool(text == wanted)
    return text.startswith(wanted) if kind == "prefix" else text.endswith(wanted)


def _full_match(regex: str, text: str) -> bool:
    return re2.fullmatch(regex, text) is not None


def _clusters(action: Json) -> dict[str, int]:
    if "cluster" in action:
        return {action["cluster"]: 1}
    weights: Counter[str] = Counter()
    for leg in action["weighted_clusters"]["clusters"]:
        weights[leg["name"]] += leg["weight"]
    assert weights.total() > 0, "Envoy refuses a sum of 0"
    return dict(weights)


def _rewritten(match: Json, action: Json, path: str) -> str:
    if "regex_rewrite" in action:
        rewrite = action["regex_rewrite"]
        return re.sub(rewrite["pattern"]["regex"], rewrite["substitution"], path)
    if "prefix_rewrite" not in action:
        return path
    rewritten: str = action["prefix_rewrite"]
    matched: str = match["path"] if "path" in match else match["prefix"]
    return rewritten + path[len(matched) :]
