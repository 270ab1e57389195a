"""The path of a request through one proxy: listener, route, cluster, endpoints, certificates, load.

The steps are checked on the resources that the proxy has, as its ACKs prove, and on the references between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xds.calls import fleet
from xds.calls import load as of_load
from xds.cli.client import Client
from xds.cli.health import (
    DAY_S,
    EXPIRY_DAYS,
    FAILED,
    OK,
    STATE,
    WARNING,
    certificate_line,
    seconds_left,
)
from xds.cli.table import Column, TableLayout
from xds.codec.resources import decode_resource
from xds.model.errors import ValidationError
from xds.model.names import WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, SECRET, alias_of

Json = dict[str, Any]
Key = tuple[str, str]  # type URL and name

STEPS = TableLayout(
    name="step",
    columns=(
        Column("STEP", "step"),
        STATE,
        Column("DETAIL", "detail", is_prose=True),
        Column("NEXT", "next"),
    ),
)

WINDOW_S = 60
FAILING_FROM = 0.5  # of the requests
HEALTHY = frozenset({"", "UNKNOWN", "HEALTHY", "DEGRADED"})
NAMED = 3
LOAD_SERVICE = "LRS"  # as streams of nodes name it


def _step(step: str, state: str, detail: str, next: str = "") -> Json:
    """A row: ``state`` is ok, warning or failed; ``next`` is a command that tells more, empty if none is needed."""
    return {"step": step, "state": state, "detail": detail, "next": next}


@dataclass(slots=True)
class NodeContent:
    """The resources of a proxy: documents, their references, and their states, by type URL and name."""

    documents: dict[Key, Json] = field(default_factory=dict)
    states: dict[Key, str] = field(default_factory=dict)
    references: dict[Key, tuple[Key, ...]] = field(default_factory=dict)

    def path_to(self, target: Key) -> list[Key]:
        """A path from a listener to the target; empty if there is none."""
        came_from: dict[Key, Key | None] = {key: None for key in self.documents if key[0] == LISTENER}
        waiting = list(came_from)
        for key in waiting:  # the loop appends to the list
            if key == target:
                return list(_back(came_from, key))
            for used in self.references.get(key, ()):
                if used not in came_from and (used in self.documents or used == target):
                    came_from[used] = key
                    waiting.append(used)
        return []

    def users(self, target: Key) -> list[Key]:
        """The resources that refer to the target."""
        return [key for key, used in self.references.items() if target in used]


def _back(came_from: Mapping[Key, Key | None], key: Key | None) -> Iterator[Key]:
    path = []
    while key is not None:
        path.append(key)
        key = came_from[key]
    yield from reversed(path)


def check_path(client: Client, node_id: str, cluster: str) -> Iterator[Json]:
    """The steps in the order of a request. Stops at a node that is not connected. Raises ``CommandError``."""
    node = client.find(fleet.node(node_id))
    if node is None or not node["connected"]:
        state = "disconnected" if node is not None else "unknown"
        yield _step("node", FAILED, f"{node_id} is {state}", "xds nodes")
        return
    yield _node_step(node)
    content = read_content(client, node_id)
    target = (CLUSTER, cluster)
    path = content.path_to(target)
    yield _listener_step(content, node, path, target)
    yield from _route_steps(content, node, path, target)
    yield _cluster_step(content, node, target)
    if target in content.documents:
        yield _endpoint_step(content, node, content.documents[target])
        yield _certificate_step(client, content, node, [*path, target])
    yield _load_step(client, node, cluster)


def read_content(client: Client, node_id: str) -> NodeContent:
    """The resources of a connected node. Raises ``CommandError``."""
    content = NodeContent()
    for item in client.items(fleet.node_resources(node_id, contents=True)):
        key = (item["type_url"], item["name"])
        content.states[key] = item["state"]
        if "resource" not in item:
            continue
        content.documents[key] = item["resource"]
        content.references[key] = tuple(_references(item["resource"]))
    return content


def _references(document: Json) -> Iterator[Key]:
    resource = _decoded(document)
    for reference in resource.references if resource is not None else ():
        if reference.name != WILDCARD:
            yield reference.type_url, reference.name


def _decoded(document: Json) -> Resource | None:
    try:
        return decode_resource(_without_redacted(document))
    except ValidationError:
        return None


def _without_redacted(value: Any) -> Any:
    """A document without redacted values, which cannot be decoded and have no references."""
    if isinstance(value, dict):
        return {key: _without_redacted(each) for key, each in value.items() if each != "[redacted]"}
    return [_without_redacted(each) for each in value] if isinstance(value, list) else value


def _node_step(node: Json) -> Json:
    nacked = sorted(alias for alias, state in node["types"].items() if state["state"] == "nacked")
    pending = sorted(alias for alias, state in node["types"].items() if state["state"] == "pending")
    group = node["group"] or "no group"
    if not node["group"]:
        return _step("node", FAILED, "no group matches it", f"xds explain {node['id']}")
    if nacked:
        detail = f"{group}; it rejects {', '.join(nacked)} and keeps earlier versions"
        return _step("node", WARNING, detail, f"xds nacks --node {node['id']} --state open")
    if pending:
        return _step(
            "node", WARNING, f"{group}; not ACKed yet: {', '.join(pending)}", f"xds describe node {node['id']}"
        )
    return _step("node", OK, f"connected, group {group}, in sync")


def _listener_step(content: NodeContent, node: Json, path: list[Key], target: Key) -> Json:
    listeners = [name for type_url, name in content.documents if type_url == LISTENER]
    if path:
        listener = content.documents[path[0]]
        return _step("listener", OK, f"{path[0][1]}{_address_text(listener)} leads to {target[1]}")
    if not listeners:
        return _step("listener", FAILED, "it holds no listener", f"xds explain {node['id']} listeners")
    return _step(
        "listener",
        FAILED,
        f"none of its {len(listeners)} listeners leads to {target[1]}",
        f"xds config {node['id']} routes",
    )


def _address_text(listener: Json) -> str:
    address = listener.get("address", {}).get("socket_address", {})
    return f" ({address['address']}:{address.get('port_value', '')})" if "address" in address else ""


def _route_steps(content: NodeContent, node: Json, path: list[Key], target: Key) -> Iterator[Json]:
    if path:
        between = [f"{alias_of(url)}/{name}" for url, name in path[1:-1]]
        detail = " -> ".join(between) if between else "the listener names the cluster itself"
        yield _step("route", OK, detail)
        return
    users = [key for key in content.users(target) if key[0] != LISTENER]
    if not users:
        describe, explain = f"xds describe cluster {target[1]} -g {node['group']}", f"xds explain {node['id']} routes"
        detail = f"no route that it holds names {target[1]}"
        yield _step("route", FAILED, detail, describe if node["group"] else explain)
        return
    names = ", ".join(f"{alias_of(url)}/{name}" for url, name in users[:NAMED])
    yield _step(
        "route", FAILED, f"{names} names it, but no listener refers to that", f"xds config {node['id']} listeners"
    )


def _cluster_step(content: NodeContent, node: Json, target: Key) -> Json:
    state = content.states.get(target, "")
    explain = f"xds explain {node['id']} clusters {target[1]}"
    if target not in content.documents:
        return _step("cluster", FAILED, f"it does not hold {target[1]}", explain)
    if state == "nacked":
        return _step("cluster", WARNING, "it rejects the current version, and keeps an earlier one", explain)
    kind = content.documents[target].get("type", "")
    return _step("cluster", OK, f"{target[1]}{f', {kind}' if isinstance(kind, str) and kind else ''}")


def _endpoint_step(content: NodeContent, node: Json, cluster: Json) -> Json:
    name = str(cluster.get("eds_cluster_config", {}).get("service_name") or cluster.get("name", ""))
    ask = f"xds explain {node['id']} endpoints {name}"
    if cluster.get("type") != "EDS":
        counts = _count_by_health(cluster.get("load_assignment", {}))
        if cluster.get("type") in {"STRICT_DNS", "LOGICAL_DNS"}:
            return _step("endpoints", OK, f"{sum(counts.values())} names, which the proxy resolves itself")
    elif (ENDPOINT, name) not in content.documents:
        return _step("endpoints", FAILED, f"it holds no assignment named {name}", ask)
    else:
        counts = _count_by_health(content.documents[ENDPOINT, name])
    healthy = sum(count for health, count in counts.items() if health in HEALTHY)
    shown = ", ".join(f"{count} {_health(health)}" for health, count in sorted(counts.items()))
    if not healthy:
        return _step("endpoints", FAILED, f"none takes requests{f': {shown}' if shown else ''}", ask)
    state = OK if healthy == sum(counts.values()) else WARNING
    return _step(
        "endpoints", state, f"{healthy} of {sum(counts.values())} take requests" if state == WARNING else shown
    )


def _health(status: str) -> str:
    return "of unknown health" if status in ("", "UNKNOWN") else status.lower()


def _count_by_health(assignment: Json) -> Counter[str]:
    """Endpoints by health status, as it was pushed."""
    parts: Iterable[Json] = assignment.get("endpoints", ())
    each = (endpoint for part in parts for endpoint in part.get("lb_endpoints", ()))
    return Counter(str(endpoint.get("health_status", "UNKNOWN")) for endpoint in each)


def _certificate_step(client: Client, content: NodeContent, node: Json, path: list[Key]) -> Json:
    wanted = {used for key in path for used in content.references.get(key, ()) if used[0] == SECRET}
    missing = sorted(name for key in wanted if (name := key[1]) and key not in content.documents)
    if missing:
        names_text = ", ".join(missing[:NAMED])
        return _step(
            "certificates",
            FAILED,
            f"secrets that it lacks: {names_text}",
            f"xds explain {node['id']} secrets {missing[0]}",
        )
    names = {(alias_of(url), name) for url, name in (*path, *wanted)}
    items = client.items(fleet.certificates(group=node["group"])) if node["group"] else iter(())
    used = [item for item in items if (item["type"], item["name"]) in names]
    soon = [item for item in used if seconds_left(item) < EXPIRY_DAYS * DAY_S]
    describe = f"xds describe group {node['group']}"
    if soon:
        state = FAILED if any(seconds_left(item) <= 0 for item in soon) else WARNING
        return _step("certificates", state, "; ".join(map(certificate_line, soon[:NAMED])), describe)
    if not used and not wanted:
        return _step("certificates", OK, "none on this path")
    return _step("certificates", OK, f"{len(wanted)} secrets present; {len(used)} certificates, none expires soon")


def _load_step(client: Client, node: Json, cluster: str) -> Json:
    show = f"xds load {cluster} --by node"
    load = client.find(of_load.cluster_load(cluster, by="node", window_s=WINDOW_S))
    if load is None:
        if any(stream["service"] == LOAD_SERVICE for stream in node["streams"]):
            return _step("load", WARNING, f"it reports load, but none of {cluster} yet", "xds load")
        return _step("load", WARNING, "no load reports: does its bootstrap have load_stats_config?", "xds load")
    own_row = next((row for row in load.get("reporters", ()) if row.get("node") == node["id"]), None)
    if own_row is not None:
        attempts, ratio, whose = own_row["successes"] + own_row["errors"], own_row["error_ratio"], "of this node"
        span = f"its latest report ({own_row['window_s']:g} s)"
    else:
        attempts, ratio, whose = load["attempts"], load["failed_ratio"], "of all nodes"
        span = f"the last {WINDOW_S} s"
    if not attempts:
        return _step("load", WARNING, f"no requests {whose} in {span}", show)
    state = FAILED if ratio >= FAILING_FROM else WARNING if ratio > 0 else OK
    return _step("load", state, f"{ratio:.0%} of {attempts:.0f} requests {whose} fail", show if state != OK else "")
